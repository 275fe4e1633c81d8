import asyncio
import contextlib
import json
import re
import threading
import urllib.parse

import pytest

from keras_transformer.apps.serve.config import ServeConfig
from keras_transformer.apps.serve.routes import name_of
from keras_transformer.apps.serve.server import _bound_socket

GOOD = {"q": "a dog. a cat.", "source": "en", "target": "de"}


def as_json(client, parameters, **options):
    return client.post("/translate", json=parameters, **options)


def as_form(client, parameters, **options):
    return client.post("/translate", data=parameters, **options)


def as_multipart(client, parameters, **options):
    files = [(name, (None, value)) for name, value in parameters.items() if isinstance(value, str)]
    return client.post("/translate", files=files, **options)


def as_query(client, parameters, **options):
    return client.post(f"/translate?{urllib.parse.urlencode(parameters, doseq=True)}", **options)


WAYS = [as_json, as_form, as_multipart, as_query]


@pytest.mark.parametrize("send", WAYS)
def test_a_text_is_translated_in_each_kind_of_request(client, send):
    answer = send(client, {**GOOD, "q": "ein Über-\n\n  - b. c"})
    assert (answer.status_code, answer.json()) == (200, {"translatedText": "EIN ÜBER-\n\n  - B. C"})


@pytest.mark.parametrize("send", [as_json, as_form, as_query])
def test_a_list(client, send):
    assert send(client, {**GOOD, "q": ["a.", "b."]}).json() == {"translatedText": ["A.", "B."]}


def test_a_list_of_one_text_is_a_list(client):
    assert as_json(client, {**GOOD, "q": ["a"]}).json() == {"translatedText": ["A"]}


def test_an_empty_text_in_a_list_stays_empty(client):
    assert as_json(client, {**GOOD, "q": ["a", "", " "]}).json() == {"translatedText": ["A", "", " "]}


def test_html_keeps_its_tags(client):
    answer = as_json(client, {**GOOD, "q": "<p>a &lt; <b>dog</b></p>\n", "format": "html"})
    assert answer.json() == {"translatedText": "<p>A &lt; <b>DOG</b></p>\n"}


def test_a_request_of_mastodon_is_answered(client):
    """A post with a mention, a tag and an emoji, its content warning, and a description, of an unknown language."""
    post = (
        '<p><span class="h-card" translate="no"><a href="https://a.example/@bob" class="u-url mention">@<span>'
        'bob</span></a></span> two dogs <span translate="no">:cat:</span><br />see <a '
        'href="https://a.example/tags/dogs" class="mention hashtag" rel="tag">#<span>dogs</span></a></p>'
    )
    body = json.dumps(
        {"q": [post, "hot &amp; cold", "a dog"], "source": "auto", "target": "de", "format": "html", "api_key": None}
    )
    answer = client.post("/translate", content=body, headers={"content-type": "application/json"}).json()
    assert answer["detectedLanguage"] == [{"language": "en", "confidence": 100.0}] * 3
    translated, *others = answer["translatedText"]
    assert others == ["HOT &amp; COLD", "A DOG"]
    kept = post[post.index("<span") : post.index(" two")]
    assert translated.startswith("<p>") and kept in translated and '<span translate="no">:cat:</span>' in translated
    assert re.findall("<[^>]*>", translated) == re.findall("<[^>]*>", post)
    assert re.sub("<[^>]*>", "", translated) == "@bob TWO DOGS :cat:SEE #dogs"
    (english, _) = client.get("/languages", headers={"content-type": "application/json"}).json()
    assert english == {"code": "en", "name": "English", "targets": ["de"]}


def test_requests_of_discourse_are_answered(client):
    """It detects the language, looks for both languages in the list, and posts HTML as a form with an empty key."""
    (found,) = client.post("/detect", data={"q": "two dogs", "api_key": ""}).json()
    assert {"en", "de"} <= {language["code"] for language in client.get("/languages").json()}
    form = {"q": "<p>two <em>dogs</em></p>", "source": found["language"], "target": "de", "format": "html"}
    answer = as_form(client, {**form, "api_key": ""})
    assert answer.json() == {"translatedText": "<p>TWO <em>DOGS</em></p>"}


def test_alternatives_are_joined_by_rank(client):
    answer = as_json(client, {**GOOD, "alternatives": 2}).json()
    assert answer == {"translatedText": "A DOG. A CAT.", "alternatives": ["1 1", "2 2"]}
    answer = as_json(client, {**GOOD, "q": ["a", "b"], "alternatives": "1"}).json()
    assert answer == {"translatedText": ["A", "B"], "alternatives": [["1"], ["1"]]}
    assert as_json(client, {**GOOD, "q": "a", "alternatives": -1}).json() == {"translatedText": "A"}


@pytest.mark.parametrize("format", ["text", "html"])
def test_sentences_with_fewer_hypotheses_repeat_their_last_one(make_client, make_pair, upper, format):
    class Few(upper):
        def _translate_batch(self, sentences, n_best):
            found = super()._translate_batch(sentences, n_best)
            return [hypotheses[: len(hypotheses[0].text) - 2] for hypotheses in found]

    client = make_client([make_pair(translator=Few())])
    answer = as_json(client, {**GOOD, "q": ["ab. bcde.", "ab.", ""], "alternatives": 2, "format": format}).json()
    assert answer == {"translatedText": ["AB. BCDE.", "AB.", ""], "alternatives": [["AB. 1", "AB. 2"], [], []]}


def test_alternatives_differ_if_sentences_have_fewer_hypotheses(make_client, make_pair, upper):
    class Few(upper):
        def _translate_batch(self, sentences, n_best):
            found = super()._translate_batch(sentences, n_best)
            return [hypotheses[: 1 if "DOG" in hypotheses[0].text else None] for hypotheses in found]

    client = make_client([make_pair(translator=Few())])
    answer = as_json(client, {**GOOD, "alternatives": 2}).json()
    assert answer == {"translatedText": "A DOG. A CAT.", "alternatives": ["A DOG. 1", "A DOG. 2"]}
    answer = as_json(client, {**GOOD, "q": ["a dog", " "], "alternatives": 2}).json()
    assert answer == {"translatedText": ["A DOG", " "], "alternatives": [[], []]}
    answer = as_json(client, {**GOOD, "q": "<p>a <b>dog</b></p>", "format": "html", "alternatives": 1}).json()
    assert answer["alternatives"] == []


def test_a_single_source_language_need_not_be_named(client):
    english = {"language": "en", "confidence": 100.0}
    answer = as_json(client, {**GOOD, "q": "a", "source": "auto"}).json()
    assert answer == {"translatedText": "A", "detectedLanguage": english}
    answer = as_json(client, {**GOOD, "q": ["a", "b"], "source": "auto"}).json()
    assert answer == {"translatedText": ["A", "B"], "detectedLanguage": [english] * 2}
    assert client.post("/detect", json={"q": "a"}).json() == [english]


def test_source_languages_are_detected(make_client, make_pair, upper):
    pairs = [make_pair("en", "fr", upper("F")), make_pair("de", "fr", upper("G")), make_pair("en", "it", upper("I"))]
    client = make_client(pairs)
    found = client.post("/detect", data={"q": "Zwei Männer stehen auf der Straße."}).json()
    assert [one["language"] for one in found] == ["de", "en"] and found[0]["confidence"] > 90
    answer = as_form(client, {"q": "Zwei Männer stehen da.", "source": "auto", "target": "fr"}).json()
    assert answer["translatedText"].endswith("G") and answer["detectedLanguage"]["language"] == "de"
    answer = as_form(client, {"q": "Two men are outside.", "source": "auto", "target": "it"}).json()
    assert answer["translatedText"].endswith("I")
    assert client.get("/languages").json() == [
        {"code": "en", "name": "English", "targets": ["fr", "it"]},
        {"code": "fr", "name": "French", "targets": []},
        {"code": "de", "name": "German", "targets": ["fr"]},
        {"code": "it", "name": "Italian", "targets": []},
    ]


@pytest.mark.parametrize(("source", "target"), [("EN", "De"), ("en-US", "de-AT"), (" en ", "deu"), ("en_GB", "ger")])
def test_codes_are_known_in_other_forms(client, source, target):
    assert as_json(client, {**GOOD, "source": source, "target": target}).status_code == 200


def test_a_code_without_script_finds_the_only_language_with_one(make_client, make_pair):
    client = make_client([make_pair("en", "zh-Hans"), make_pair("en", "pt-BR"), make_pair("en", "pt-PT")])
    targets = ("zh", "zh_CN", "zho_Hans", "zh-TW", "zt", "pt", "pt-PT", "PT_br", "pb")
    found = [as_json(client, {**GOOD, "target": target}).status_code for target in targets]
    assert found == [200, 200, 200, 400, 400, 400, 200, 200, 200]


def test_a_code_that_names_less_finds_the_language_that_has_the_pair(make_client, make_pair, upper):
    client = make_client([make_pair("pt-BR", "en", upper("B")), make_pair("pt-PT", "fr", upper("P"))])
    assert as_json(client, {"q": "a", "source": "pt", "target": "fr"}).json() == {"translatedText": "AP"}
    assert as_json(client, {"q": "a", "source": "pt", "target": "en-US"}).json() == {"translatedText": "AB"}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"q": None}, "Invalid request: missing q parameter"),
        ({"q": []}, "Invalid request: missing q parameter"),
        ({"q": ""}, "Invalid request: missing q parameter"),
        ({"q": 3}, "Invalid request: q parameter is not a text or a list of texts"),
        ({"q": [["a"]]}, "Invalid request: q parameter is not a text or a list of texts"),
        ({"q": "a" * 101}, "Invalid request: request (101) exceeds text limit (100)"),
        ({"q": ["a" * 60] * 2}, "Invalid request: request (120) exceeds text limit (100)"),
        ({"source": None}, "Invalid request: missing source parameter"),
        ({"target": None}, "Invalid request: missing target parameter"),
        ({"target": ["de"]}, "Invalid request: target parameter is not a text"),
        ({"source": "xx"}, "xx is not supported"),
        ({"target": "xx"}, "xx is not supported"),
        (
            {"source": "de", "target": "en"},
            "English (en) is not available as a target language from German (de)",
        ),
        ({"target": "auto"}, "auto is not supported"),
        ({"format": "pdf"}, "pdf format is not supported"),
        ({"alternatives": "x"}, "Invalid request: alternatives parameter is not a number"),
        ({"alternatives": float("inf")}, "Invalid request: alternatives parameter is not a number"),
        ({"target": "\ud800"}, "? is not supported"),
        ({"target": "x" * 1000}, "Invalid request: target parameter is too long"),
        ({"alternatives": 3}, "Invalid request: alternatives parameter must be <= 2"),
    ],
)
def test_bad_parameters_are_refused_with_the_reason(make_client, changes, reason):
    body = json.dumps({**GOOD, **changes})
    client = make_client(max_characters=100)
    answer = client.post("/translate", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()) == (400, {"error": reason})


@pytest.mark.parametrize(
    ("body", "kind", "reason"),
    [
        (b"{", "application/json", "it is not JSON"),
        (b"[1]", "application/json; charset=utf-8", "Invalid JSON format"),
        (b"[" * 100_000, "application/json", "it is nested too deeply"),
        (b'{"q": ' + b"1" * 5000 + b"}", "application/json", "it is not JSON"),
        (b'{"q": "\xff"}', "application/json", "it is not UTF-8"),
        (b"q=\xff", "application/x-www-form-urlencoded", "it is not UTF-8"),
        (b"q=%ff&source=en&target=de", "application/x-www-form-urlencoded", "it is not UTF-8"),
        (b"a" * 700_000, "text/plain", "it has more than 610000 bytes"),
        (b"q=a&" * 20_000, "application/x-www-form-urlencoded", "it has more than 10000 fields"),
    ],
)
def test_malformed_requests_are_refused_with_the_reason(client, body, kind, reason):
    answer = client.post("/translate", content=body, headers={"content-type": kind})
    assert answer.status_code == 400 and reason in answer.json()["error"]


def test_a_multipart_form_that_is_not_utf_8(client):
    parts = [("q", b"\xff"), ("source", b"en"), ("target", b"de")]
    answer = client.post("/translate", files=[(name, (None, value)) for name, value in parts])
    assert answer.status_code == 400 and "it is not UTF-8" in answer.json()["error"]


def test_a_query_that_is_not_utf_8(client):
    assert client.post("/translate?q=%ff&source=en&target=de").status_code == 400


def test_half_a_character_becomes_a_question_mark(client):
    body = json.dumps({**GOOD, "q": "a \ud800 b"})
    answer = client.post("/translate", content=body, headers={"content-type": "application/json"})
    assert answer.json() == {"translatedText": "A ? B"}


@pytest.mark.parametrize("send", WAYS)
def test_a_key_is_required_and_checked(make_client, send):
    client = make_client(api_key="secret")
    for key in ({}, {"api_key": ""}):
        answer = send(client, {**GOOD, **key})
        reason = "Please contact the server operator to get an API key"
        assert (answer.status_code, answer.json()) == (400, {"error": reason})
    answer = send(client, {**GOOD, "api_key": "wrong"})
    assert (answer.status_code, answer.json()) == (403, {"error": "Invalid API key"})
    assert send(client, {**GOOD, "api_key": "secret"}).status_code == 200
    assert client.get("/languages").status_code == client.get("/health").status_code == 200


def test_a_key_is_ignored_if_none_is_required(client):
    assert as_json(client, {**GOOD, "api_key": ["x"]}).status_code == 200


def test_too_many_requests_are_refused(make_client):
    client = make_client(requests_per_minute=2)
    assert [as_json(client, GOOD).status_code for _ in range(3)] == [200, 200, 429]
    assert as_json(client, GOOD).json() == {"error": "Slowdown: 2 per 1 minute"}
    assert client.get("/health").json() == {"status": "ok"}


def test_a_sentence_that_is_cut_is_reported(client):
    answer = as_json(client, {**GOOD, "q": "word " * 25}).json()
    assert answer["translatedText"].split() == ["WORD"] * 25
    assert "25 subwords, more than 20" in answer["warnings"][0]


@pytest.mark.parametrize("format", ["text", "html"])
@pytest.mark.parametrize("q", [["a"] * 500, [""] * 500, "a. " * 500])
def test_large_requests_do_not_occupy_the_event_loop(make_client, make_pair, upper, q, format):
    translator, loops = upper(), []
    count_tokens = translator.count_tokens

    def noting(lines):
        with contextlib.suppress(RuntimeError):  # Of a thread without an event loop.
            loops.append(asyncio.get_running_loop())
        return count_tokens(lines)

    translator.count_tokens = noting
    answer = as_json(make_client([make_pair(translator=translator)]), {**GOOD, "q": q, "format": format})
    assert answer.status_code == 200 and not loops


def test_texts_that_are_not_split(make_client, make_pair, upper):
    translator = upper()
    client = make_client([make_pair(translator=translator, split_sentences=False)])
    assert as_json(client, GOOD).json() == {"translatedText": "A DOG. A CAT."}
    assert translator.batches == [["a dog. a cat."]]


def test_a_failure_is_that_of_one_request(client, capsys):
    answer = as_json(client, {**GOOD, "q": "fail"})
    assert (answer.status_code, answer.json()) == (500, {"error": "Cannot translate text: internal error"})
    assert "RuntimeError('no memory')" in capsys.readouterr().err
    assert as_json(client, GOOD).status_code == 200


def test_the_sentences_of_a_client_that_disconnects_are_not_translated(make_client, make_pair, upper):
    translator, opened = upper(), threading.Event()
    inner = translator._translate_batch
    translator._translate_batch = lambda sentences, n_best: opened.wait(60) and inner(sentences, n_best)
    pair = make_pair(translator=translator)
    client = make_client([pair])

    async def disconnect(sentence):
        body = json.dumps({**GOOD, "q": sentence}).encode()
        messages = [{"type": "http.request", "body": body}, {"type": "http.disconnect"}]
        sent = []

        async def receive():
            await asyncio.sleep(0.05)
            return messages.pop(0)

        async def send(message):
            sent.append(message)

        headers = [(b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/translate", "query_string": b"", "headers": headers}
        await asyncio.wait_for(client.app(scope, receive, send), 10)
        return sent[0]["status"]

    async def requests():
        assert [await disconnect(sentence) for sentence in ("first", "second", "third")] == [499] * 3
        opened.set()
        await pair.batcher.translate(["fourth"])

    asyncio.run(requests())
    assert translator.batches == [["first"], ["fourth"]]
    assert 'requests_total{path="/translate",status="499"} 3.0' in client.get("/metrics").text


def test_a_request_with_more_sentences_than_may_wait(make_client):
    client = make_client(max_queue=2)
    assert as_json(client, {**GOOD, "q": ["a", "b"]}).status_code == 200
    answer = as_json(client, {**GOOD, "q": ["a", "bee. cat"]})
    assert answer.json() == {"error": "Invalid request: the text has 3 sentences, more than 2"}
    assert answer.status_code == 400


def test_a_full_queue_answers_503(make_client, make_pair, monkeypatch):
    pair = make_pair(max_queue=2)
    monkeypatch.setattr(pair.batcher, "_queue", [None] * 2)
    answer = as_json(make_client([pair]), GOOD)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json() == {"error": "The server is busy: its queue is full"}


def test_metrics_count_requests_by_path_and_status(client):
    as_json(client, GOOD), as_json(client, {})
    found = client.get("/metrics")
    assert found.headers["content-type"].startswith("text/plain; version=")
    lines = found.text.splitlines()
    for line in (
        'keras_transformer_requests_total{path="/translate",status="200"} 1.0',
        'keras_transformer_requests_total{path="/translate",status="400"} 1.0',
        'keras_transformer_request_seconds_count{path="/translate"} 2.0',
        "keras_transformer_characters_total 13.0",
        "keras_transformer_waiting_sentences 0.0",
    ):
        assert line in lines


def test_settings_tell_the_limits_and_default_languages(make_client):
    settings = make_client(api_key="x").get("/frontend/settings").json()
    assert settings["keyRequired"] is True and settings["charLimit"] == 50_000
    assert settings["language"]["target"] == {"code": "de", "name": "German"}


def test_other_paths_and_methods_are_refused(client):
    assert (client.get("/nothing").status_code, client.get("/nothing").json()) == (404, {"error": "Not Found"})
    assert client.put("/translate").json() == {"error": "Method Not Allowed"}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        *(("GET", "/detect", 405), ("GET", "/translate", 405), ("POST", "/languages", 405), ("POST", "/health", 405)),
        *(("GET", "/spec", 200), ("POST", "/spec", 405), ("POST", "/frontend/settings", 405)),
        *(("POST", "/suggest", 403), ("POST", "/translate_file", 403), ("GET", "/download_file/a.txt", 400)),
    ],
)
def test_each_path_has_the_methods_of_libretranslate(client, method, path, status):
    assert client.request(method, f"{path}?q=a&source=en&target=de").status_code == status


def test_the_specification_has_both_names(client):
    assert client.get("/spec").json() == client.get("/openapi.json").json()


@pytest.mark.parametrize("path", ["/health", "/languages", "/frontend/settings", "/spec", "/metrics"])
def test_monitors_that_ask_for_the_headers_only(client, path):
    assert client.head(path).status_code == 200


def test_the_openapi_page_describes_the_endpoints(client):
    paths = client.get("/openapi.json").json()["paths"]
    assert [*paths] == ["/translate", "/detect", "/attention", "/languages", "/frontend/settings", "/health"]
    body = paths["/translate"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body["required"] == ["q", "source", "target"] and "alternatives" in body["properties"]
    assert client.get("/docs").status_code == 200


def test_two_servers_that_start_at_the_same_time_on_a_port():
    with _bound_socket(ServeConfig(port=0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ValueError, match=rf"port={port} \(Address already in use\)"):
            _bound_socket(ServeConfig(port=port))


def test_an_unknown_host_is_refused():
    with pytest.raises(ValueError, match=r"host=no\.such\.invalid, port=5000 \((?!Unknown error)"):
        _bound_socket(ServeConfig(host="no.such.invalid"))


@pytest.mark.parametrize(("code", "name"), [("de", "German"), ("pt-BR", "Portuguese (Brazil)"), ("qq", "qq")])
def test_names_of_languages(code, name):
    assert name_of(code) == name


@pytest.mark.parametrize(
    ("languages", "pairs"),
    [
        ("en-de, DE-en", [("en", "de"), ("de", "en")]),
        ("pt_BR-en,en-zh_hans", [("pt-BR", "en"), ("en", "zh-Hans")]),
        ("zh-TW:en", [("zh-TW", "en")]),
    ],
)
def test_languages_name_the_pair_of_each_directory(languages, pairs):
    assert ServeConfig(languages=languages).pairs_of_languages == pairs


@pytest.mark.parametrize("languages", ["en", "en-xx", "german-english", "zh-TW-en"])
def test_unknown_languages_of_the_directories_are_refused(languages):
    with pytest.raises(ValueError, match="`languages` .* Received: languages=.*The known codes: aa, ab, "):
        ServeConfig(languages=languages)


def test_an_empty_key_is_refused():
    with pytest.raises(ValueError, match="`api_key` must not be empty"):
        ServeConfig(api_key="")
