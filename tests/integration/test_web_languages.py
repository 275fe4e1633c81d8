"""The format `web` with a model of several languages: its page and its module translate between the chosen ones."""

import functools
import gzip
import io
import json
import types

import numpy as np
import pytest
import sentencepiece
from onnx import TensorProto, helper

from keras_transformer.cli import main
from keras_transformer.decoding import BeamSearch
from keras_transformer.export import OnnxTranslator
from keras_transformer.export.format import Exported
from keras_transformer.export.web import export
from keras_transformer.export.web.packages import require_packages
from keras_transformer.storage.languages import Languages, languages_of
from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.text import Tokenizer
from keras_transformer.translate import load_translator

pytestmark = pytest.mark.slow
LINES = ["baka dulo", "gomi", "", "fino fino baka 12:30", "baka"]
#: Codes as some models have them. Browsers write them with hyphens.
CODES = ["en_XX", "de_DE", "el_GR"]
#: Name -> arguments of `Languages`, from the token of each language.
KINDS = {
    # Each side starts with the token of its language. There is no default.
    "forced": lambda tokens: {"source_tokens": tokens, "target_tokens": tokens, "forces_target": True},
    # Sources start with the token of the target language.
    "named": lambda tokens: {
        **{"source": [*tokens][0], "target": [*tokens][1]},
        **{"source_tokens": dict.fromkeys(tokens), "target_tokens": tokens},
    },
    "any source": lambda tokens: {"target_tokens": tokens},
}
#: Calls a method of the module. The translator is loaded once.
CALL = """async ([method, argument, options]) => {
    const { Translator } = await import("./translator.js");
    globalThis.translator ??= await Translator.load();
    return translator[method](argument, options);
}"""


@pytest.fixture(scope="module", autouse=True)
def packages():
    try:
        require_packages()
    except ValueError as error:
        pytest.skip(str(error))


@pytest.fixture
def address(serve):
    """The address of a folder, which is served until the end of the test."""
    return functools.cache(lambda folder: serve(folder).url)


@pytest.fixture
def call(page, address):
    """Calls a method of a folder's JavaScript module, from a page without other scripts."""

    def call(folder, method, argument=None, **options):
        if not page.url.endswith("licences.txt"):
            page.goto(f"{address(folder)}licences.txt")
        return page.evaluate(CALL, [method, argument, options])

    return call


@pytest.fixture
def translate_on_page(page):
    """Translates a text on the open page, between chosen languages."""

    def translate_on_page(text, source, target):
        page.get_by_text("Download: ").wait_for()
        for side, code in (("source", source), ("target", target)):
            if code is not None:
                page.locator(f"#{side}-language").select_option(code)
        page.locator("#source").fill(text)
        page.get_by_role("button", name="Translate").click()
        page.locator("#status", has_text=" in ").wait_for()
        page.evaluate("document.querySelector('#status').textContent = ''")
        return page.locator("#target").text_content()

    return translate_on_page


def echo(name, exported, quantize):
    """The place of the search: a graph that writes its prefix, if it has one, and its source."""
    inputs = ["prefix", "source"] if name == "model_prefix" else ["source"]
    nodes = [
        helper.make_node("Concat", inputs, ["ids"], axis=1),
        helper.make_node("Unsqueeze", ["ids", "one"], ["tokens"]),
        helper.make_node(
            "Constant", [], ["scores"], value=helper.make_tensor("scores", TensorProto.FLOAT, [1, 1], [-1])
        ),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        name,
        [info(each, TensorProto.INT32, ["batch", f"{each}_length"]) for each in inputs],
        [info("tokens", TensorProto.INT32, ["batch", 1, "length"]), info("scores", TensorProto.FLOAT, [1, 1])],
        [helper.make_tensor("one", TensorProto.INT64, [1], [1])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.fixture(scope="module")
def echoes(tmp_path_factory):
    """Folders with `echo`, whose tokens of languages are text. A source has at most 8 tokens before its end."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["two men are outside; a dog runs."] * 9),
        model_writer=model,
        vocab_size=24,
        user_defined_symbols=[f"<{code}>" for code in CODES],
        **{"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3},
        minloglevel=2,
    )
    tokenizer = Tokenizer(model.getvalue())
    tokens = {code: tokenizer.pieces.index(f"<{code}>") for code in CODES}
    model, folders = types.SimpleNamespace(config=types.SimpleNamespace(max_length=9)), {}
    for kind, languages in KINDS.items():
        path = tmp_path_factory.mktemp("echo")
        directory = ModelDirectory(path)
        directory.write_record(Languages(**languages(tokens)).to_record(), finished=True)
        directory.write_tokenizers((tokenizer.model,))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(export, "make_graph", echo)
            patch.setattr(export.gzip, "compress", functools.partial(gzip.compress, compresslevel=1))
            exported = Exported(model, directory, (tokenizer, tokenizer), BeamSearch(beam_size=1))
            export.write_web(exported, path / "web")
        folders[kind] = path / "web"
    return folders


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("forced", "<el_GR><de_DE> two"), ("named", "<el_GR> two"), ("any source", "<el_GR> two")],
)
def test_the_model_gets_the_tokens_of_the_chosen_languages(
    kind, expected, echoes, page, address, call, translate_on_page
):
    folder = echoes[kind]
    source = None if kind == "any source" else "de_DE"
    page.goto(address(folder))
    assert translate_on_page("two", source, "el_GR") == expected
    assert page.locator("label[for=target]").text_content() == "Greek (Greece)"
    assert page.locator("#target").get_attribute("lang") == "el-GR"
    assert page.locator("#source-language").is_visible() == (source is not None)
    if source is not None:
        assert page.title() == "German (Germany) to Greek (Greece)"
        assert page.locator("#target-language option").all_text_contents() == ["English (XX)", "Greek (Greece)"]
        page.locator("#source-language").select_option("el_GR")  # The chosen target is one of its own no more.
        assert page.locator("#target-language").input_value() == "en_XX"

    languages = {"sourceLanguage": source, "targetLanguage": "el_GR"}
    (one,) = call(folder, "translate", ["two"], **languages)
    assert (one["text"], one["truncated"]) == (expected, False)
    (long,) = call(folder, "translate", ["two men are outside"], **languages)
    prefix = len(one["tokens"]) - len(call(folder, "encode", ["two"])[0])
    assert long["truncated"] and len(long["tokens"]) == prefix + 7 + 1
    assert "first 7 subwords" in long["warnings"][0]


def test_a_text_is_split_by_the_rules_of_the_chosen_language(echoes, call):
    """In Greek, the sign `;` is a question mark."""
    for language, expected in (("en_XX", ["Two; men"]), ("el_GR", ["Two;", "men"])):
        parts = call(echoes["forced"], "split", "Two; men", sourceLanguage=language)
        assert [part["text"] for part in parts if part.get("isSentence")] == expected


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("forced", {}, "`sourceLanguage` must be given, one of the languages of the model: en_XX, de_DE, el_GR"),
        ("any source", {}, "`targetLanguage` must be given, one of the languages of the model: en_XX, de_DE, el_GR"),
        (
            "named",
            {"targetLanguage": "nl"},
            '`targetLanguage` must be a language of the model: en_XX, de_DE, el_GR. Received: targetLanguage="nl"',
        ),
    ],
)
def test_an_unknown_language_is_refused(kind, options, message, echoes, call):
    with pytest.raises(Exception) as error:  # noqa: B017, PT011  # Playwright's, which may be missing.
        call(echoes[kind], "translate", ["two"], **options)
    assert message in str(error.value)
    if kind == "named":
        assert call(echoes[kind], "targets", "de_DE") == ["en_XX", "el_GR"]
        with pytest.raises(Exception, match='must be a language of the model.* Received: sourceLanguage="de"'):
            call(echoes[kind], "targets", "de")


def export_web(directory):
    """Exports a model to its folder."""
    options = ["--beam_size=2", "--n_best=2", "--extra_length=3"]
    assert main(["export", str(directory.path), "--format=web", *options]) == 0
    return directory.exported("web")


def check_translations(folder, lines, pairs, page, address, call, translate_on_page):
    """The module and the page translate between each pair of languages as `OnnxTranslator` does, by the same graph."""
    translator = OnnxTranslator(folder)
    texts = set()
    for source, target in pairs:
        languages = {"source_language": source, "target_language": target}
        expected = [translator.translate([line], n_best=2, **languages)[0] for line in lines]
        found = call(folder, "translate", lines, nBest=2, sourceLanguage=source, targetLanguage=target)
        for one, line in zip(expected, found, strict=True):
            hypotheses = [line, *line["alternatives"]]
            assert [each["text"] for each in hypotheses] == [other.text for other in one.hypotheses]
            assert [tuple(each["tokens"]) for each in hypotheses] == [other.tokens for other in one.hypotheses]
            scores = [other.score for other in one.hypotheses]
            assert [each["score"] for each in hypotheses] == pytest.approx(scores, rel=1e-3)
        texts.add(tuple(one.text for one in expected))
    assert len(texts) >= len({target for _, target in pairs})
    page.goto(address(folder))
    for source, target in pairs:
        languages = {"source_language": source, "target_language": target}
        expected = [one.text for one in translator.translate(lines, **languages)]
        assert translate_on_page("\n".join(lines), source, target) == "\n".join(expected)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["forced", "named"])
def test_translations_equal_those_of_python(kind, make_directory, tmp_path, page, address, call, translate_on_page):
    directory = make_directory(tmp_path / "run", KINDS[kind])
    folder = export_web(directory)
    recorded = json.loads(directory.verification_file.read_text())
    assert ("web prefix" in recorded) == (kind == "forced") and recorded["web"]["sentences"] == 224
    assert [file.name for file in folder.glob("*.onnx")] == ["model.onnx"]
    pairs = [(one.source, one.target) for one in languages_of(directory.path).directions()]
    assert len(pairs) == 6
    check_translations(folder, LINES, pairs, page, address, call, translate_on_page)
    keras = load_translator(directory.path, "keras", strategy=BeamSearch(beam_size=2, n_best=2, extra_length=3))
    languages = dict(zip(("source_language", "target_language"), pairs[3], strict=True))
    texts = [[one.text for one in each.translate(LINES, **languages)] for each in (keras, OnnxTranslator(folder))]
    assert np.mean([one == other for one, other in zip(*texts, strict=True)]) >= 0.6  # Weights are int8.


#: Name -> class of the model of transformers, fields of its configuration, and its tokenizer.
IMPORTED = {
    "M2M-100": (
        "M2M100",
        {
            **{"d_model": 48, "encoder_layers": 1, "decoder_layers": 1, "max_position_embeddings": 61},
            **{f"{stack}_attention_heads": 6 for stack in ("encoder", "decoder")},
            **{f"{stack}_ffn_dim": 37 for stack in ("encoder", "decoder")},
            **{"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2},
        },
        "M2M100Tokenizer",
    ),
    "MADLAD-400": (
        "T5",
        {
            **{"d_model": 48, "d_kv": 7, "d_ff": 37, "num_layers": 1, "num_decoder_layers": 1, "num_heads": 3},
            **{"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0},
            **{"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        },
        "T5Tokenizer",
    ),
}


def train_sentencepiece(**options):
    """A tokenizer of the words of `LINES`, and its pieces."""
    model = io.BytesIO()
    words = [f"{a}{b}{c}{d}" for a in "bdfg" for b in "aeiou" for c in "klmn" for d in "aio"]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([" ".join(words[i : i + 6]) for i in range(len(words) - 6)]),
        model_writer=model,
        vocab_size=93,
        minloglevel=2,
        **options,
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    return model.getvalue(), [processor.id_to_piece(i) for i in range(processor.vocab_size())]


def write_checkpoint(folder, name):
    """A small model of transformers with random weights, whose output depends on the source and on languages."""
    import torch
    import transformers

    kind, fields, tokenizer = IMPORTED[name]
    settings = {"tokenizer_class": tokenizer}
    if kind == "T5":
        symbols = ["<2de>", "<2fr>", "<2zh_Hant>"]
        model, pieces = train_sentencepiece(pad_id=0, eos_id=1, unk_id=2, bos_id=-1, user_defined_symbols=symbols)
        (folder / "spiece.model").write_bytes(model)
        settings["additional_special_tokens"] = []  # Otherwise, transformers 5 lists the languages.
    else:
        model, pieces = train_sentencepiece(model_type="bpe")
        (folder / "sentencepiece.bpe.model").write_bytes(model)
        pieces = ["<s>", "<pad>", "</s>", "<unk>", *pieces[3:]]
        (folder / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}))
        settings |= {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
        settings["additional_special_tokens"] = [f"__{code}__" for code in ("de", "en", "fr", "zh")]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    loaded = transformers.AutoTokenizer.from_pretrained(folder)
    loaded.save_pretrained(folder)
    config = getattr(transformers, f"{kind}Config")(vocab_size=len(loaded), **fields)
    model = getattr(transformers, f"{kind}ForConditionalGeneration")(config)
    torch.manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.copy_(torch.randn_like(parameter) * 48**-0.5)
    model.save_pretrained(folder)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")  # Those of transformers.
@pytest.mark.parametrize("name", IMPORTED)
def test_imported_models_translate_between_the_chosen_languages(name, tmp_path, page, address, call, translate_on_page):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    write_checkpoint(checkpoint, name)
    assert main(["import", str(checkpoint), f"--output={tmp_path / 'run'}"]) == 0
    directory = ModelDirectory(tmp_path / "run")
    languages = languages_of(directory.path)
    assert languages.forces_target == (name == "M2M-100") and bool(languages.source_start) == (name != "M2M-100")
    assert {"de", "en", "fr", "zh"} <= {*languages.source_tokens} or [*languages.target_tokens] == [
        "de",
        "fr",
        "zh_Hant",
    ]
    folder = export_web(directory)
    pairs = [("en", "de"), ("zh", "fr"), ("de", "en")] if name == "M2M-100" else [(None, "zh_Hant"), (None, "de")]
    check_translations(folder, LINES, pairs, page, address, call, translate_on_page)
