"""The format `web` in a browser: its subwords, its translations, its page, and without a network."""

import json
import pathlib
import random
import shutil
import unicodedata

import onnx
import pytest
from onnx.external_data_helper import uses_external_data

from keras_transformer.cli import main
from keras_transformer.export import OnnxTranslator
from keras_transformer.export.web import export
from keras_transformer.export.web.packages import require_packages
from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.text.lines import checked_lines
from keras_transformer.translate.threads import num_cores

pytestmark = pytest.mark.nightly

STATIC = pathlib.Path(export.__file__).parent / "static"
#: Changes that SentencePiece normalizes, or that it encodes as bytes.
HARD = (
    lambda line, draw: "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else "\u3000" for c in line),  # Full width.
    lambda line, draw: line.replace("o", "ﬀ").replace("e", "ﬃ").replace("t", "ﬆ"),
    lambda line, draw: unicodedata.normalize("NFD", line.replace("e", "é").replace("o", "ô")),
    lambda line, draw: line.replace(" ", draw.choice("😀❤🇩👍") + draw.choice(("", "\u200d", "\ufe0f", "🏽"))),
    lambda line, draw: line.replace(" ", "\t"),
    lambda line, draw: f"  {line}   ".replace(" ", "  "),
    lambda line, draw: line.replace(" ", draw.choice("\u00a0\u2009\u200b\u202f\ufeff\u0085\u2028")),
    lambda line, draw: "".join(chr(draw.randrange(1, 0xD800)) for _ in line),
    lambda line, draw: "".join(chr(draw.randrange(0xE000, 0x110000)) for _ in line),
    lambda line, draw: f"{line} ▁▁ <s></s><pad><unk><0x41> \x00\x01\r\n",
    lambda line, draw: "".join(c + draw.choice(("", "\u0301", "\u0323\u0302")) for c in line),
    lambda line, draw: line + draw.choice(("\ud83d", "\udc00x", "x\ud800 ")),  # A lone surrogate.
)


@pytest.fixture(scope="module")
def folder(exported, keras_translator, tmp_path_factory):
    """The export of the model of `exported`, in a model directory of its own."""
    try:
        require_packages()
    except ValueError as error:
        pytest.skip(str(error))
    copy = tmp_path_factory.mktemp("web") / "model"
    shutil.copytree(exported, copy, ignore=shutil.ignore_patterns("export"))
    loaded = keras_translator.model, (keras_translator.source_tokenizer, keras_translator.target_tokenizer)
    with pytest.MonkeyPatch.context() as patch:
        for module in ("translate.finished_model", "export.pipeline"):
            patch.setattr(f"keras_transformer.{module}.load_finished", lambda directory: loaded)
        assert main(["export", str(copy), "--extra_length=5", "--format=web"]) == 0
    return copy / "export" / "web"


#: Calls a method of the translator in the page.
CALL = """async ([method, argument, options]) => {
    const { Translator } = await import("./translator.js");
    globalThis.translator ??= await Translator.load();
    return translator[method](argument, options);
}"""


@pytest.fixture
def call(page, serve, folder):
    """Calls a method of the folder's JavaScript module, from a page without other scripts."""
    server = serve(folder)
    page.goto(f"{server.url}licences.txt")
    return lambda method, argument, **options: page.evaluate(CALL, [method, argument, options])


def test_the_embedding_is_in_the_file_once(folder):
    graph = onnx.load(folder / "model.onnx", load_external_data=False).graph
    (embedding,) = filter(uses_external_data, graph.initializer)
    assert [entry.value for entry in embedding.external_data if entry.key == "location"] == ["model.onnx"]


def test_the_files_beside_the_model_are_small(folder):
    models = {folder / "model.onnx", *ModelDirectory(folder).tokenizer_files}
    assert sum(file.stat().st_size for file in folder.iterdir() if file not in models) < 5_000_000


def test_translations_equal_those_of_python(call, folder, exported, lines):
    """Line by line, with the program of the format onnx."""
    lines = [*lines, "", " ", "six " * (1 + OnnxTranslator(folder).max_source_length)]
    for translator in (OnnxTranslator(exported, quantize="int8"), OnnxTranslator(folder)):
        with pytest.warns(UserWarning, match="truncated"):
            expected = [translator.translate([line], n_best=4)[0] for line in lines]
        found = call("translate", lines, nBest=4)
        for one, line in zip(expected, found, strict=True):
            hypotheses = [line, *line["alternatives"]]
            assert [hypothesis["text"] for hypothesis in hypotheses] == [other.text for other in one.hypotheses]
            assert [tuple(hypothesis["tokens"]) for hypothesis in hypotheses] == [h.tokens for h in one.hypotheses]
            scores = [other.score for other in one.hypotheses]
            assert [hypothesis["score"] for hypothesis in hypotheses] == pytest.approx(scores, rel=1e-4)
    assert [line["truncated"] for line in found] == [False] * (len(lines) - 1) + [True]


def test_subwords_equal_those_of_python(call, exported, lines):
    draw = random.Random(1)
    hard = [change(line, draw) for line in lines for change in HARD]
    tokenizer = OnnxTranslator(exported).source_tokenizer
    rows = tokenizer.encode(checked_lines("lines", hard))
    assert call("encode", hard) == rows
    rows += [[draw.randrange(tokenizer.vocab_size) for _ in range(9)] for _ in range(100)]  # Invalid UTF-8, too.
    assert call("decode", rows) == tokenizer.decode(rows)


def test_wrong_arguments_are_refused(call):
    for argument, options, message in (
        ("text", {}, '`lines` must be an array of strings. Received: "text"'),
        (["text"], {"nBest": 5}, "`nBest` must be in [1, 4]. Received: nBest=5"),
    ):
        with pytest.raises(Exception) as error:  # noqa: B017, PT011  # Playwright's, which may be missing.
            call("translate", argument, **options)
        assert message in str(error.value)


def test_the_page_translates_on_wide_and_narrow_screens(page, serve, folder, lines):
    server = serve(folder)
    expected = [OnnxTranslator(folder).translate([line])[0].text for line in (f"{lines[0]}.", lines[1])]
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 800})
        page.goto(server.url)
        page.get_by_text("Download: ").wait_for()
        page.locator("#source").fill(f"{lines[0]}. \n\n- {lines[1]}")
        page.locator("#n-best").select_option("4")
        page.get_by_role("button", name="Translate").click()
        page.get_by_text("2 sentences in").wait_for()
        assert page.locator("#target").text_content() == f"{expected[0]} \n\n- {expected[1]}"
        page.get_by_text("Hypotheses and scores").click()
        page.locator("#others tr").nth(2 * 4).wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert not page.locator("#error").is_visible()


def test_the_page_works_offline_after_the_first_visit(page, serve, folder, lines):
    server = serve(folder)
    page.goto(server.url)
    page.get_by_text("1 thread.").wait_for()  # Nothing has added the headers yet.
    page.get_by_text("The page works offline.").wait_for()
    server.stop()
    page.reload()
    page.get_by_text("2 threads." if num_cores() > 1 else "1 thread.").wait_for()
    assert page.evaluate("crossOriginIsolated")
    page.locator("#source").fill(lines[0])
    page.get_by_role("button", name="Translate").click()
    page.get_by_text("1 sentence in").wait_for()
    assert page.locator("#target").text_content() == OnnxTranslator(folder).translate(lines[:1])[0].text
    server.start()


def test_a_new_export_replaces_the_kept_files(page, serve, folder, tmp_path):
    served = tmp_path / "served"
    shutil.copytree(folder, served)
    server = serve(served)
    page.goto(server.url)
    page.get_by_text("The page works offline.").wait_for()
    change_limit(served)
    page.reload()
    page.get_by_text("A new version is ready").wait_for()
    page.reload()
    page.get_by_text("The page works offline.").wait_for()
    length = "fetch('translator.json').then((response) => response.json()).then((found) => found.max_source_length)"
    assert page.evaluate(length) == 38
    assert page.evaluate("caches.keys().then((names) => names.length)") == 1


def change_limit(folder):
    """Changes the files as an export of a model with another limit does."""
    description, script = folder / export.DESCRIPTION, folder / "service-worker.js"
    described = {**json.loads(description.read_text(encoding="utf-8")), "max_source_length": 38}
    description.write_text(json.dumps(described), encoding="utf-8")
    shutil.copy(STATIC / script.name, script)
    export._write_service_worker(folder, described["files"])


def test_errors_are_shown_in_words(page, serve, folder, tmp_path):
    served = tmp_path / "served"
    shutil.copytree(folder, served)
    (served / "model.onnx").unlink()
    page.goto(serve(served).url)
    message = "The translator could not be loaded. model.onnx could not be loaded: the server answers 404"
    page.get_by_text(message).wait_for()
    (served / "model.onnx").write_bytes(b"no model")
    page.reload()
    page.get_by_text("model.onnx has 8 bytes instead of").wait_for()
