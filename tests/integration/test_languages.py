"""A model of several languages: every command, runtime and export translates each line between its own languages."""

import asyncio
import io
import json
import sys

import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer.apps.serve.config import ServeConfig
from keras_transformer.cli import main
from keras_transformer.evaluation.scorer import LikelihoodScorer
from keras_transformer.translate import available_runtimes, load_translator
from keras_transformer.translate.finished_model import load_finished
from keras_transformer.translate.keras_translator import KerasTranslator

pytestmark = pytest.mark.slow
CODES = ["en", "de", "fr"]
LINES = ["baka dulo", "gomi", "", "fino fino baka 12:30", "baka"]
SOURCES, TARGETS = ["en", "de", "en", "fr", "en"], ["de", "en", "fr", "en", "fr"]
EXPORTS = "saved_model,onnx,ctranslate2"


@pytest.fixture(scope="module")
def forced(make_directory, tmp_path_factory):
    """A model that starts each side with the token of its language, and its exports."""
    path = tmp_path_factory.mktemp("forced") / "run"
    directory = make_directory(
        path, lambda tokens: {"source_tokens": tokens, "target_tokens": tokens, "forces_target": True}
    )
    assert main(["export", str(path), f"--format={EXPORTS}", "--beam_size=2", "--extra_length=3"]) == 0
    return directory


@pytest.fixture(scope="module")
def named(make_directory, tmp_path_factory):
    """A model whose sources start with a fixed token and that of the target language, and its exports.

    German is the default.
    """
    path = tmp_path_factory.mktemp("named") / "run"
    default = {"source": "en", "target": "de", "source_start": (10,)}
    directory = make_directory(
        path, lambda tokens: {**default, "source_tokens": dict.fromkeys(tokens), "target_tokens": tokens}
    )
    assert main(["export", str(path), "--format=saved_model", "--beam_size=2", "--extra_length=3"]) == 0
    return directory


def texts(translator, **languages):
    return [(one.text, one.source_language, one.target_language) for one in translator.translate(LINES, **languages)]


@pytest.mark.parametrize("name", ["forced", "named"])
def test_each_runtime_translates_each_line_between_its_languages(name, request):
    directory = request.getfixturevalue(name)
    strategy = kt.decoding.BeamSearch(beam_size=2, extra_length=3)
    keras = load_translator(directory.path, "keras", strategy=strategy)
    expected = texts(keras, source_language=SOURCES, target_language=TARGETS)
    assert [one[1:] for one in expected] == [*zip(SOURCES, TARGETS, strict=True)]
    assert "12:30" in expected[3][0] and expected[2][0] == ""
    for i, line in enumerate(LINES):  # As alone, and unlike to the other languages.
        alone = keras.translate([line], source_language=SOURCES[i], target_language=TARGETS[i])
        assert alone[0].text == expected[i][0]
    assert (
        len({one.text for one in keras.translate(["baka dulo"] * 3, source_language="en", target_language=CODES)}) == 3
    )
    for runtime in [*available_runtimes(directory.path)][1:3]:
        translator = load_translator(directory.path, runtime)
        assert texts(translator, source_language=SOURCES, target_language=TARGETS) == expected
        stream = translator.translate_stream(iter(LINES), source_language=iter(SOURCES), target_language=iter(TARGETS))
        assert [one.text for one in stream] == [one[0] for one in expected]
        assert (
            len(translator.translate(["baka"], n_best=2, source_language="en", target_language="de")[0].hypotheses) == 2
        )
        for options, message in (
            ({"target_language": "nl"}, "`target_language` must be a language of the model: en, de, fr"),
            ({"target_language": ["de"]}, "same number of items"),
        ):
            with pytest.raises(ValueError, match=message):
                translator.translate(LINES, source_language="en", **options)


def test_an_alignment_has_no_column_of_the_language(forced):
    translator = load_translator(forced.path, strategy=kt.decoding.GreedySearch(extra_length=3))
    found = translator.translate(LINES[:1], source_language="en", target_language="fr")
    (aligned,) = translator.align(LINES[:1], found)
    source = translator.languages.direction("en", "fr").source_ids(translator.source_tokenizer.encode(LINES[:1])[0])
    weights = translator.mean_attention(np.array([source]), np.array([found[0].tokens]))[0]
    expected = weights[: len(aligned.target), 1 : 1 + len(aligned.source)]
    assert len(aligned.source) == len(source) - 2
    np.testing.assert_allclose(aligned.weights, expected / expected.sum(axis=0), rtol=1e-5)


def test_a_stream_of_too_few_languages_is_refused(named):
    translator = load_translator(named.path, "saved_model")
    with pytest.raises(ValueError, match="`target_language` must be one language, or one for each line"):
        [*translator.translate_stream(LINES, source_language="en", target_language=["de"])]


def without_the_end(tokens):
    return [*map(int, tokens[: np.flatnonzero(np.asarray(tokens) == 3)[0]])]


def test_ctranslate2_forces_the_language(forced):
    """It writes the same, and goes on at the limit, because it does not force the end token."""
    languages = {"source_language": SOURCES, "target_language": TARGETS}
    ours = load_translator(forced.path, strategy=kt.decoding.GreedySearch(extra_length=3))
    theirs = load_translator(forced.path, "ctranslate2")
    theirs.strategy = kt.decoding.BeamSearch(beam_size=1, extra_length=3, length_penalty=0.0)
    for one, other in zip(*(x.translate(LINES, **languages) for x in (ours, theirs)), strict=True):
        if one.tokens:
            expected = without_the_end(one.tokens)
            assert list(other.tokens[: len(expected)]) == expected


@pytest.mark.nightly
def test_prefixes_of_1_to_5_tokens_are_forced_in_each_runtime(forced):
    model, (tokenizer, _) = load_finished(forced)
    random = np.random.default_rng(3)
    source = random.integers(8, tokenizer.vocab_size, (500, 9)).astype("int32")
    source[:, -1] = 3
    lengths = random.integers(1, 6, 500)
    prefix = random.integers(5, tokenizer.vocab_size, (500, 5)).astype("int32")
    prefix[np.arange(5) >= lengths[:, None]] = 0
    options = {"text_constraints": tokenizer.text_constraints, "prefix": prefix}
    beam = model.generate(source, kt.decoding.BeamSearch(beam_size=2, extra_length=3), **options).tokens[:, 0]
    greedy = model.generate(source, kt.decoding.GreedySearch(extra_length=3), **options).tokens[:, 0]
    assert all((row[:n] == first[:n]).all() for row, first, n in zip(beam, prefix, lengths, strict=True))
    assert len({tuple(row) for row in beam.tolist()}) > 490
    for runtime, expected in (("onnx", beam), ("saved_model", beam), ("ctranslate2", greedy)):
        translator = load_translator(forced.path, runtime)
        if runtime == "ctranslate2":
            translator.strategy = kt.decoding.BeamSearch(beam_size=1, extra_length=3, length_penalty=0.0)
        found = translator.search(source, prefix=prefix)[0][:, 0]
        if runtime == "ctranslate2":  # It does not force the end token at the limit.
            rows = [without_the_end(row) for row in expected]
            equal = sum([*map(int, row[: len(ours)])] == ours for row, ours in zip(found, rows, strict=True))
        else:
            equal = int(sum((found == expected).all(axis=1)))
        print(f"{runtime}: {equal} of 500 equal")
        assert equal == 500


def test_the_verification_has_the_forced_languages(forced, named):
    records = [json.loads(one.verification_file.read_text()) for one in (forced, named)]
    assert {"onnx prefix", "saved_model prefix"} <= records[0].keys() and "onnx prefix" not in records[1]
    assert records[0]["onnx prefix"]["equal"] == 224 and records[1]["saved_model text"]["equal"] == 226


def test_the_languages_of_a_saved_model_are_inputs(forced, named):
    import tensorflow as tf

    folders = {"forced": forced.exported("saved_model"), "named": named.exported("saved_model")}
    loaded = {name: tf.saved_model.load(str(folder)) for name, folder in folders.items()}
    assert "serving_default" not in loaded["forced"].signatures and "serving_default" in loaded["named"].signatures
    inputs = {"text": tf.constant(["baka"]), "source_language": tf.constant(["en"])}
    for one in loaded.values():
        found = one.signatures["between"](**inputs, target_language=tf.constant(["fr"]))
        assert found["translation"].shape == (1,)
        with pytest.raises(tf.errors.InvalidArgumentError, match="must be a language of the model: en, de, fr"):
            one.signatures["between"](**inputs, target_language=tf.constant(["nl"]))
    default = loaded["named"].signatures["serving_default"](text=inputs["text"])["translation"]
    german = loaded["named"].signatures["between"](**inputs, target_language=tf.constant(["de"]))["translation"]
    assert default.numpy() == german.numpy()


def test_lines_of_json_name_their_languages(forced, tmp_path, monkeypatch, capsys):
    lines = [
        {"source": line, "source_language": source, "target_language": target}
        for line, source, target in zip(LINES, SOURCES, TARGETS, strict=True)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "lines.json").write_text(text)
    command = ["translate", str(forced.path), "--runtime=onnx"]
    out = tmp_path / "out"
    assert main([*command, "--from_json", "--json", f"--output={out}", str(tmp_path / "lines.json")]) == 0
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert [{name: one[name] for name in lines[0]} for one in found] == lines
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(LINES[:1]).encode())))
    assert main([*command, "--source_language=en", "--target_language=de"]) == 0
    assert capsys.readouterr().out == found[0]["translations"][0]["text"] + "\n"
    for arguments, content, message in (
        (["--from_json"], '{"target_language": "de"}', "line 1 must be a JSON object with the string `source`"),
        (["--from_json"], "[1", "line 1 must be a JSON object"),
        (["--from_json", "--target_language=de"], text, "`--target_language` must not be given with `--from_json`"),
        (
            ["--source_language=en"],
            "baka",
            "`target_language` must be given, one of the languages of the model: en, de",
        ),
        (["--source_language=en", "--target_language=nl"], "baka", "must be a language of the model: en, de, fr"),
    ):
        (tmp_path / "wrong").write_text(content)
        assert main([*command, *arguments, f"--output={tmp_path / 'other'}", str(tmp_path / "wrong")]) == 2
        assert message in capsys.readouterr().err and not (tmp_path / "other").exists()


def test_scores_are_those_of_the_words_after_the_language(forced, capsys, tmp_path):
    scorer = LikelihoodScorer(forced.path)
    (one,), (other,) = (
        scorer.score(["baka dulo"], ["gomi"], target_language=code, source_language="en") for code in CODES[1:]
    )
    assert one.num_tokens == other.num_tokens == len(scorer.tokenizers[1].encode(["gomi"])[0])
    assert one.log_prob != other.log_prob
    for name, line in (("source", "baka dulo"), ("target", "gomi")):
        (tmp_path / name).write_text(f"{line}\n")
    files = [f"--source={tmp_path / 'source'}", f"--target={tmp_path / 'target'}"]
    assert main(["score", str(forced.path), *files, "--source_language=en", "--target_language=de"]) == 0
    assert capsys.readouterr().out.startswith(f"{one.log_prob:.4f}\t{one.num_tokens}\t")
    files[1] = f"--reference={tmp_path / 'target'}"
    languages = ["--source_language=en", "--target_language=de"]
    assert main(["evaluate", str(forced.path), *files, "--runtime=onnx", *languages]) == 0
    assert main(["evaluate", str(forced.path), *files, "--runtime=onnx"]) == 2


def test_a_server_offers_each_pair(forced):
    from starlette.testclient import TestClient

    from keras_transformer.apps.serve.server import load_app

    app, pairs = load_app([forced.path], ServeConfig(runtime="onnx"))
    assert len(pairs) == 6 and len({pair.batcher for pair in pairs}) == 1
    client = TestClient(app)
    assert {one["code"]: one["targets"] for one in client.get("/languages").json()} == {
        code: [other for other in CODES if other != code] for code in CODES
    }
    translator = load_translator(forced.path, "onnx")
    for source, target in (("en", "de"), ("de", "fr"), ("eng", "fra")):
        (expected,) = translator.translate(["baka dulo"], source_language=source, target_language=target)
        answer = client.post("/translate", json={"q": "baka dulo", "source": source, "target": target}).json()
        assert answer["translatedText"] == expected.text
    _, (only,) = load_app([forced.path], ServeConfig(runtime="onnx", languages="en-fr"))
    assert (only.source, only.target) == ("en", "fr")
    with pytest.raises(ValueError, match="`target_language` must be a language of the model: en, de, fr"):
        load_app([forced.path], ServeConfig(runtime="onnx", languages="en-nl"))
    assert asyncio.run(only.translate(["baka dulo"]))[0].texts


@pytest.fixture(scope="module")
def plain(make_directory, tmp_path_factory):
    """Two model directories: the languages are forced, or in front of the source."""
    folder = tmp_path_factory.mktemp("plain")
    kinds = {
        "forced": lambda tokens: {"source_tokens": tokens, "target_tokens": tokens, "forces_target": True},
        "named": lambda tokens: {"source_tokens": dict.fromkeys(tokens), "target_tokens": tokens},
    }
    return {name: make_directory(folder / name, kind).path for name, kind in kinds.items()}


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize(
    ("name", "start", "target"), [("forced", ["<en>"], ["<fr>"]), ("named", ["<fr>"], [])], ids=["forced", "named"]
)
def test_attention_is_plotted_with_the_languages(plain, tmp_path, monkeypatch, capsys, name, start, target):
    drawn = []
    module = "keras_transformer.cli.attention_plot.plot_attention"
    monkeypatch.setattr(module, lambda *given: drawn.append(given[:-1]) or given[-1].write_bytes(b""))
    command = ["plot-attention", str(plain[name]), LINES[0], f"--output={tmp_path / 'picture.png'}"]
    languages = ["--source_language=en", "--target_language=fr"]
    assert main([*command, *languages]) == 0 and main([*command, *languages, "--target=gomi"]) == 0
    translated = load_translator(plain[name]).translate(LINES[:1], source_language="en", target_language="fr")
    assert capsys.readouterr().out.splitlines() == [translated[0].text, "gomi"]
    assert len(drawn) == 2
    for scores, of_source, of_target in drawn:
        assert scores.shape[1:] == (len(of_target), len(of_source))
        assert of_source[: len(start)] == start and of_target[: len(target)] == target
    assert main(command) == 2 and "_language` must be given" in capsys.readouterr().err


@pytest.mark.nightly
def test_models_are_compared_in_one_direction(plain, tmp_path, capsys):
    texts = {"source": [line for line in LINES if line], "reference": ["gomi"] * 4}
    files = [f"--{name}={tmp_path / name}" for name in texts]
    for name, lines in texts.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    command = ["compare", str(plain["forced"]), str(tmp_path / "reference"), *files, "--json", "--differences=4"]
    assert main([*command, "--source_language=en", "--target_language=fr"]) == 0
    found = json.loads(capsys.readouterr().out)
    translator = load_translator(plain["forced"])
    expected = translator.translate(texts["source"], source_language="en", target_language="fr")
    assert found["better"]
    for line in found["better"]:
        assert line["translations"] == [expected[line["number"] - 1].text, "gomi"]
    assert main(command) == 2 and "`source_language` must be given" in capsys.readouterr().err


@pytest.mark.nightly
def test_an_interrupted_translation_of_several_languages_is_resumed(plain, tmp_path, monkeypatch, capsys):
    pairs = [*zip(LINES * 30, SOURCES * 30, TARGETS * 30, strict=True)]
    names = ("source", "source_language", "target_language")
    (tmp_path / "lines").write_text("".join(json.dumps(dict(zip(names, pair, strict=True))) + "\n" for pair in pairs))
    command = ["translate", str(plain["forced"]), str(tmp_path / "lines"), "--from_json", "--batch_size=1"]
    assert main(command) == 0
    expected = capsys.readouterr().out
    assert len({*expected.splitlines()}) >= 4
    search, calls = KerasTranslator.search, []

    def interrupted(self, *given, **options):
        calls.append(given)
        if len(calls) >= 100:
            raise KeyboardInterrupt
        return search(self, *given, **options)

    command += [f"--output={tmp_path / 'out'}"]
    with monkeypatch.context() as patch:
        patch.setattr(KerasTranslator, "search", interrupted)
        assert main(command) == 130
    assert (tmp_path / "out.partial/lines").read_text().count("\n") > 50
    calls.clear()
    monkeypatch.setattr(
        KerasTranslator, "search", lambda *given, **options: calls.append(given) or search(*given, **options)
    )
    assert main([*command, "--resume"]) == 0
    assert (tmp_path / "out").read_text() == expected and 0 < len(calls) < 80


@pytest.mark.nightly
def test_an_ensemble_has_the_languages_of_its_models(plain, capsys):
    languages = {"source_language": SOURCES, "target_language": TARGETS}
    one = load_translator(plain["forced"]).translate(LINES, **languages)
    ensemble = load_translator([plain["forced"], plain["forced"]])
    assert [each.text for each in ensemble.translate(LINES, **languages)] == [each.text for each in one]
    with pytest.raises(ValueError, match="must have the same language tokens.*/named"):
        load_translator([plain["forced"], plain["named"]])


@pytest.mark.nightly
def test_html_is_translated_between_the_languages(plain):
    from starlette.testclient import TestClient

    from keras_transformer.apps.serve.server import load_app

    app, _ = load_app([plain["forced"]], ServeConfig(runtime="keras"))
    translator = load_translator(plain["forced"])
    texts = [
        one.text for one in translator.translate(["baka dulo"] * 2, source_language="en", target_language=["de", "fr"])
    ]
    assert len({*texts}) == 2
    for target, text in zip(("de", "fr"), texts, strict=True):
        query = {"q": "<p>baka dulo</p>", "source": "en", "target": target, "format": "html"}
        answer = TestClient(app).post("/translate", json=query).json()["translatedText"]
        assert answer == f"<p>{text}</p>"
