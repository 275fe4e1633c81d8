"""The server as a process, with clients that speak LibreTranslate's API, and with a browser."""

import concurrent.futures
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request

import pytest

from keras_transformer.apps.html.html_text import HtmlText
from keras_transformer.cli import main
from keras_transformer.export import OnnxTranslator
from keras_transformer.text.sentences import SentenceSplitter
from keras_transformer.translate.splitting_translator import SplittingTranslator

pytestmark = pytest.mark.nightly


class Server:
    """A server process.

    Attributes:
        url: its address.
        process: the process.
    """

    def __init__(self, command, *arguments):
        self.process = subprocess.Popen(
            [*command, "serve", "--port=0", *map(str, arguments)],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self.messages = []
        for line in self.process.stderr:
            self.messages.append(line)
            if found := re.search(r"Serving on (http://\S+) ", line):
                self.url = found[1]
                break
        else:
            raise RuntimeError("".join(self.messages))

    def post(self, parameters):
        """Translates by JSON."""
        request = urllib.request.Request(
            f"{self.url}/translate", json.dumps(parameters).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def stop(self, number=signal.SIGTERM):
        """Stops the process and returns its status."""
        self.process.send_signal(number)
        return self.process.wait(60)


@pytest.fixture(scope="module")
def start(command):
    """Starts a server, which is stopped after the tests."""
    servers = []

    def start(*arguments):
        servers.append(Server(command, *arguments))
        return servers[-1]

    yield start
    for server in servers:
        server.process.kill()
        server.process.wait()
        server.process.stderr.close()


@pytest.fixture(scope="module")
def server(start, exported):
    """A server of the fastest export."""
    return start(exported, "--languages=en-de", "--page=false")


@pytest.fixture(scope="module")
def texts(lines):
    """100 texts, some with several sentences, lists and blank lines."""
    return [
        (". ", "\n\n", "\n- ", " ")[i % 4].join(lines[(i + k) % len(lines)] for k in range(1 + i % 3))
        for i in range(100)
    ]


@pytest.fixture(scope="module")
def expected(exported, texts):
    """The translations of the texts by `translate`."""
    splitter = SentenceSplitter("en")
    translator = OnnxTranslator(exported, quantize="int8")
    found = []
    for text in texts:
        split = splitter.split(text)
        found.append(split.join(one.text for one in translator.translate(split.sentences)))
    lines = [text for text in texts if "\n" not in text]
    by_line = dict(zip(lines, SplittingTranslator(translator, "en").translate(lines), strict=True))
    assert all(by_line[text].text == one for text, one in zip(texts, found, strict=True) if text in by_line)
    return found


def test_the_fastest_export_is_served(server):
    assert "en-de: onnx_int8\n" in server.messages


def test_libretranslatepy_translates(server, texts, expected):
    from libretranslatepy import LibreTranslateAPI

    client = LibreTranslateAPI(server.url)
    assert [client.translate(text, "en", "de") for text in texts] == expected
    assert client.detect("two") == [{"confidence": 100.0, "language": "en"}]
    assert client.languages()[0] == {"code": "en", "name": "English", "targets": ["de"]}


def test_deep_translator_translates(server, texts, expected):
    from deep_translator import LibreTranslator

    client = LibreTranslator(source="en", target="de", api_key="not needed", custom_url=f"{server.url}/")
    stripped = [text.strip() for text in texts]  # As this client does.
    assert client.translate_batch(stripped) == [text.strip() for text in expected]


def test_many_clients_at_once_get_their_own_translations(server, texts, expected):
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = [*pool.map(lambda text: server.post({"q": text, "source": "en", "target": "de"}), texts * 4)]
    assert [answer["translatedText"] for answer in answers] == expected * 4


def test_a_request_of_mastodon_is_answered(server, lines, exported):
    posts = [f"<p>{lines[0]}, <a href=x>{lines[1]}</a></p><p>{lines[2]}</p>", f"<p>{lines[3]}</p>"]
    answer = server.post({"q": posts, "source": "auto", "target": "de", "format": "html", "api_key": None})
    translator, expected = OnnxTranslator(exported, quantize="int8"), []
    for post in posts:
        page = HtmlText(post, SentenceSplitter("en"))
        found = translator.translate(page.sentences)
        expected.append(page.join([one.text for one in found], translator.align(page.sentences, found)))
    assert answer == {
        "translatedText": expected,
        "detectedLanguage": [{"language": "en", "confidence": 100.0}] * 2,
    }


def test_the_key_of_the_environment_is_required(start, exported, monkeypatch):
    monkeypatch.setenv("KERAS_TRANSFORMER_API_KEY", "secret")
    server = start(exported, "--languages=en-de", "--page=false")
    request = {"q": "two", "source": "en", "target": "de"}
    for key, status in ((None, "400"), ("wrong", "403")):
        with pytest.raises(urllib.error.HTTPError, match=status):
            server.post({**request, "api_key": key})
    assert server.post({**request, "api_key": "secret"})["translatedText"]


def test_a_request_of_weblate_is_answered(server, lines, expected, texts):
    form = urllib.parse.urlencode({"api_key": "", "q": texts[0], "source": "en", "target": "de"}).encode()
    with urllib.request.urlopen(f"{server.url}/translate", form) as answer:
        assert json.load(answer)["translatedText"] == expected[0]


def test_accepted_requests_are_answered_after_sigterm(start, exported, lines):
    server = start(exported, "--languages=en-de", "--runtime=onnx", "--page=false", "--max_characters=1000000")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        long = {"q": lines * 300, "source": "en", "target": "de"}
        answer = pool.submit(server.post, long)
        while "waiting_sentences 0.0" in urllib.request.urlopen(f"{server.url}/metrics").read().decode():
            assert not answer.done()
        server.process.send_signal(signal.SIGTERM)
        with pytest.raises(OSError):  # No new requests, although the process goes on.
            while True:
                urllib.request.urlopen(f"{server.url}/health")
        assert not answer.done()
        assert len(answer.result()["translatedText"]) == len(lines) * 300
    assert server.process.wait(60) == 0


@pytest.mark.parametrize("runtime", ["onnx", "ctranslate2", "saved_model", "keras"])
@pytest.mark.slow
def test_other_runtimes_serve(start, exported, lines, runtime):
    server = start(exported, "--languages=en-de", f"--runtime={runtime}", "--page=false")
    answer = server.post({"q": f"<b>{lines[0]}</b> {lines[1]}", "source": "en", "target": "de", "format": "html"})
    assert f"en-de: {runtime}\n" in server.messages
    assert answer["translatedText"].count("<b>") == answer["translatedText"].count("</b>") == 1
    assert server.stop() == 0


@pytest.fixture
def refusal(capsys):
    """Runs `serve` and returns its error."""

    def refusal(*arguments):
        assert main(["serve", "--port=0", *map(str, arguments)]) == 2
        return capsys.readouterr().err

    return refusal


def test_directories_that_cannot_be_served(refusal, exported, model_directory, tmp_path):
    assert "Not a model directory" in refusal(tmp_path / "nothing")
    assert "does not record the languages of both sides. Give the pairs, such as --languages en-de" in refusal(exported)
    assert "for 1 directories" in refusal(exported, "--languages=en-de,de-en")
    assert "Received: en-de more than once" in refusal(exported, exported, "--languages=en-de,en-de")
    assert "No ONNX export" in refusal(model_directory, "--languages=en-de", "--runtime=onnx")
    broken = tmp_path / "broken"
    shutil.copytree(exported, broken, symlinks=True)
    (broken / "export/onnx_int8/model.onnx").write_bytes(b"no model")
    assert "Invalid ONNX model" in refusal(broken, "--languages=en-de")


def test_a_port_that_is_in_use(refusal, exported):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        error = refusal(exported, "--languages=en-de", f"--port={port}")
    assert f"port={port} (Address already in use)" in error


@pytest.mark.slow
def test_the_page_translates_and_shows_attention(start, exported, lines, tmp_path):
    playwright = pytest.importorskip("playwright.sync_api")
    browser_file = shutil.which("chromium") or shutil.which("google-chrome")
    if browser_file is None:
        pytest.skip("needs Chromium or Chrome")
    server = start(exported, "--languages=en-de", "--max_characters=1000")
    text = f"{lines[0]}.\n\n- {lines[1]}"
    expected = server.post({"q": text, "source": "en", "target": "de"})["translatedText"]
    with playwright.sync_playwright() as context:
        options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = context.chromium.launch(executable_path=browser_file, args=options)
        page, hosts, errors = browser.new_page(), set(), []
        page.on("request", lambda request: hosts.add(request.url.split("/")[2]))
        page.on("pageerror", lambda error: errors.append(error))
        for width in (1280, 390):
            page.set_viewport_size({"width": width, "height": 800})
            page.goto(server.url)
            source = page.get_by_role("textbox", name="English")
            source.fill(text)
            page.get_by_label("Hypotheses").select_option("4")
            page.get_by_role("button", name="Translate").click()
            page.get_by_text("2 sentences in").wait_for()
            assert page.locator("#target").text_content() == expected
            page.get_by_text("Hypotheses and scores").click()
            page.locator("#others tr").nth(2 * 4).wait_for()  # The headings, and four translations of each sentence.
            page.get_by_text("Attention", exact=True).click()
            page.locator("#weights td").first.wait_for()
            source.fill("word " * 300)
            page.get_by_role("button", name="Translate").click()
            page.get_by_text("exceeds text limit (1000)").wait_for()
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert hosts == {server.url.split("/")[2]} and not errors
        browser.close()
    assert server.stop() == 0
