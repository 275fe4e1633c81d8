"""The command `distill`."""

import json
import re
import shutil

import numpy as np
import pytest
import sacrebleu

from keras_transformer.cli import main
from keras_transformer.evaluation.scorer import LikelihoodScorer
from keras_transformer.storage.token_directory import TokenDirectory
from keras_transformer.translate import load_translator

pytestmark = pytest.mark.nightly


@pytest.fixture
def files(toy_files, tmp_path):
    """The first 200 lines of the training text."""
    for language in ("en", "de"):
        lines = (toy_files / f"train.{language}").read_text(encoding="utf-8").splitlines()[:200]
        (tmp_path / language).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return tmp_path / "en", tmp_path / "de"


@pytest.fixture
def command(exported, files, tmp_path):
    return ["distill", f"--teacher={exported}", f"--source={files[0]}", f"--output={tmp_path}/out"]


def read(path):
    return path.read_text(encoding="utf-8").splitlines()


def hypotheses(folder):
    return [json.loads(line)["translations"] for line in read(folder / "translations.jsonl")]


@pytest.mark.slow
def test_the_best_hypotheses_become_the_tokens(command, exported, files, tmp_path):
    assert main([*command, "--cleaning.duplicates=none", "--cleaning.copies=false"]) == 0
    source = read(files[0])
    expected = [line.text for line in load_translator(exported, "onnx_int8").translate(source)]
    assert len(hypotheses(tmp_path / "out")[0]) == 1
    pairs = [pair for pair in zip(source, expected, strict=True) if pair[1].strip()]
    texts = [read(tmp_path / "out" / f"train.{side}.txt") for side in ("source", "target")]
    assert list(zip(*texts, strict=True)) == pairs and len(pairs) > 150
    tokens = TokenDirectory(tmp_path / "out" / "tokens")
    assert tokens.tokenizer_models() == ((exported / "tokenizer.model").read_bytes(),)
    assert tokens.statistics("train").pairs + tokens.statistics("validation").pairs == len(pairs)
    options = ["--recipe.max_steps=1", "--recipe.warmup_steps=1", "--recipe.xla=false", "--tokens_per_batch=600"]
    sizes = ["--model.num_layers=1", "--model.d_model=16", "--model.num_heads=2", "--model.d_ff=32"]
    assert main(["train", f"--prepared={tokens.path}", f"--output={tmp_path}/student", *options, *sizes]) == 0


@pytest.mark.parametrize("select", [None, "bleu"])
def test_the_hypothesis_closest_to_the_reference_is_chosen(command, files, tmp_path, select):
    options = [f"--select={select}"] if select else []
    assert main([*command, f"--target={files[1]}", *options]) == 0
    metric = sacrebleu.sentence_bleu if select else sacrebleu.sentence_chrf
    expected, first = [], 0
    for found, reference in zip(hypotheses(tmp_path / "out"), read(files[1]), strict=True):
        assert len({one["text"] for one in found}) == len(found) <= 4
        quality = [metric(one["text"], [reference]).score for one in found]
        first += quality.index(max(quality)) == 0
        expected += [found[quality.index(max(quality))]["text"]]
    assert read(tmp_path / "out" / "train.target.txt") == [text for text in expected if text.strip()]
    assert select or 0 < first < 200


def test_an_interrupted_distillation_is_resumed(command, tmp_path, monkeypatch, capsys):
    assert main([*command, "--batch_size=1"]) == 0
    expected = (tmp_path / "out" / "translations.jsonl").read_bytes()
    shutil.rmtree(tmp_path / "out")
    module = "keras_transformer.apps.distillation.pipeline"
    with monkeypatch.context() as patch:

        def load(*arguments, **options):
            translator = load_translator(*arguments, **options)
            translate = translator.translate_stream

            def stopping(*arguments, **options):
                for i, translation in enumerate(translate(*arguments, **options)):
                    if i == 70:
                        raise KeyboardInterrupt
                    yield translation

            translator.translate_stream = stopping
            return translator

        patch.setattr(f"{module}.load_translator", load)
        assert main([*command, "--batch_size=1"]) == 130
    assert "start the command again to continue" in capsys.readouterr().err
    partial = tmp_path / "out" / "translations.jsonl.partial" / "lines"
    assert len(read(partial)) == 70 and not (tmp_path / "out" / "tokens").exists()
    assert main([*command, "--batch_size=1"]) == 0
    assert (tmp_path / "out" / "translations.jsonl").read_bytes() == expected and not partial.exists()


def test_translations_are_used_again(command, files, tmp_path, capsys):
    assert main(command) == 0
    translations = tmp_path / "out" / "translations.jsonl"
    before = translations.stat().st_mtime_ns
    assert main(command) == 2
    assert "contains tokens; use --overwrite" in capsys.readouterr().err
    assert main([*command, "--overwrite", "--reject=0.25"]) == 0
    assert translations.stat().st_mtime_ns == before
    scores = np.array([found[0]["score"] for found in hypotheses(tmp_path / "out")])
    used = np.sort(np.argsort(scores, kind="stable")[50:])
    texts = [found[0]["text"] for found in hypotheses(tmp_path / "out")]
    expected = [texts[i] for i in used if texts[i].strip()]
    assert read(tmp_path / "out" / "train.target.txt") == expected
    shutil.rmtree(tmp_path / "out" / "tokens")
    assert main([*command, f"--target={files[1]}"]) == 2
    assert "translations with another n_best; use --overwrite" in capsys.readouterr().err
    assert main([*command, f"--target={files[1]}", "--overwrite"]) == 0
    assert max(map(len, hypotheses(tmp_path / "out"))) == 4


@pytest.mark.slow
def test_the_worst_pairs_by_a_reverse_model_are_removed(command, files, unlike, tmp_path):
    assert main([*command, f"--reverse_model={unlike}", "--reject=0.5", "--cleaning.duplicates=none"]) == 0
    source, texts = read(files[0]), [found[0]["text"] for found in hypotheses(tmp_path / "out")]
    scores = [score.mean_log_prob for score in LikelihoodScorer(unlike).score(texts, source)]
    kept = read(tmp_path / "out" / "train.source.txt")
    worst = np.sort(scores)[99]
    assert {line for line, score in zip(source, scores, strict=True) if score > worst + 1e-3} <= {*kept}
    assert len(kept) <= 100


@pytest.mark.slow
def test_several_teachers_translate_together(command, exported, unlike, tmp_path):
    assert main([*command, f"--teacher={exported},{unlike}", "--n_best=2"]) == 0
    assert max(map(len, hypotheses(tmp_path / "out"))) == 2


BAD = {
    "--source=none": "none: No such file",
    "--target=none": "none: No such file",
    "--target={longer}": "200 lines in .*201 in",
    "--validation_source={source}": "must have the same number of files",
    "--teacher=none": "Not a model directory: none",
    "--teacher={exported},{exported} --runtime=onnx": "Several teachers require the keras runtime",
    "--runtime=x": "`runtime` must be one of .*'x'",
    "--parallel_batches=0": "`parallel_batches` must be at least 1.*0",
    "--n_best=5": "`n_best`.*5",
    "--n_best=0": "`n_best` must be at least 1.*0",
    "--batch_size=0": "`batch_size`.*0",
    "--max_length=1": "`max_length` must be at least 2",
    "--reject=0.6 --reverse_model={exported}": "`validation_source` must be given.*200 lines, reject=0.6",
    "--cleaning.rejected={few}": "`cleaning.rejected` must name a new file",
    "--source={few}": "`validation_source` must be given.*99 lines",
    "--cleaning.languages": "requires `source_language`",
    "--select=chrf": "`select` by chrf requires `target`",
    "--reject=1": "`reject` must be in",
    "--reverse_model={exported}": "`reverse_model` requires `reject`",
    "--validation_target={source}": "`validation_source` and `validation_target` must have the same .* 0 and 1",
    "--output={source}": "is not empty and contains no distillation",
    "--output={folder}": "is not empty and contains no distillation",
    "--cleaning.model={exported}": "`cleaning.model` requires `cleaning.min_score`",
    "--cleaning.model=none --cleaning.min_score=0.5": "Not a model directory: none",
    "--cleaning.min_score=0.5": "`min_score` requires `model`",
}


@pytest.mark.parametrize("options", BAD)
def test_bad_input_is_refused(command, exported, files, tmp_path, capsys, options):
    (tmp_path / "longer").write_text(files[1].read_text(encoding="utf-8") + "null\n", encoding="utf-8")
    (tmp_path / "few").write_text("one\n" * 99, encoding="utf-8")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "text").touch()
    names = {name: tmp_path / name for name in ("longer", "few", "folder")}
    given = options.format(source=files[0], exported=exported, **names).split()
    assert main([*command, *given]) == 2
    error = capsys.readouterr().err
    assert re.search(BAD[options], error), error
    assert not (tmp_path / "out").exists()
