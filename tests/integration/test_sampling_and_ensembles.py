import shutil

import pytest

from keras_transformer.cli import main
from keras_transformer.translate import KerasTranslator


@pytest.fixture
def translated(lines, tmp_path, capsys):
    """Translates lines with options of the command line."""

    def translated(directory, *options, text=None):
        (tmp_path / "text").write_text("".join(f"{line}\n" for line in text or lines), encoding="utf-8")
        capsys.readouterr()
        assert main(["translate", str(directory), str(tmp_path / "text"), "--extra_length=3", *options]) == 0
        return capsys.readouterr().out.splitlines()

    return translated


@pytest.mark.slow
def test_samples_depend_on_the_seed_and_the_line_only(translated, unlike, lines):
    sample = ["--sampling", "--temperature=0.7"]
    found = translated(unlike, *sample)
    assert found == translated(unlike, *sample, "--batch_size=3") != translated(unlike, *sample, "--seed=2")
    assert translated(unlike, *sample, text=lines[5:7]) == found[5:7]
    several = [row.split("\t") for row in translated(unlike, *sample, "--n_best=3", text=lines[:2])]
    assert [*dict.fromkeys(row[0] for row in several)] == ["1", "2"] and 2 < len(several) <= 6
    assert len({(row[0], row[2]) for row in several}) == len(several)


@pytest.mark.nightly
def test_sampling_that_is_resumed_is_the_same(translated, unlike, lines, tmp_path, monkeypatch):
    """It is interrupted after the first chunk of 64 batches."""
    text, batches = (70 * lines)[:70], []
    found = translated(unlike, "--sampling", "--batch_size=1", text=text)
    translate_batch = KerasTranslator._translate_batch

    def interrupted(self, *arguments, **options):
        batches.append(arguments)
        if len(batches) == 66:
            raise KeyboardInterrupt
        return translate_batch(self, *arguments, **options)

    command = ["translate", str(unlike), str(tmp_path / "text"), "--extra_length=3", "--sampling", "--batch_size=1"]
    with monkeypatch.context() as patch:
        patch.setattr(KerasTranslator, "_translate_batch", interrupted)
        assert main([*command, "--output", str(tmp_path / "output")]) == 130
    assert len((tmp_path / "output.partial/lines").read_text(encoding="utf-8").splitlines()) == 64
    translated(unlike, "--sampling", "--batch_size=1", "--output", str(tmp_path / "output"), "--resume", text=text)
    assert (tmp_path / "output").read_text(encoding="utf-8").splitlines() == found


@pytest.mark.nightly
def test_models_translate_together(translated, unlike, model_directory, lines):
    both = translated(f"{unlike},{model_directory}")
    expected = KerasTranslator([unlike, model_directory]).translate(lines)
    assert [line.text for line in expected] and len(both) == len(lines)
    assert translated(f"{unlike},{unlike}") == translated(unlike) != both


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seed=3", "--top_k=5"], "`--top_k`, `--seed` must be given with `--sampling`"),
        (["--sampling", "--beam_size=2"], "`--beam_size` must not be given with `--sampling`"),
        (["--sampling", "--runtime=onnx"], "require `--runtime keras`"),
        (["--sampling", "--top_p=0"], "top_p=0"),
    ],
)
def test_bad_options_are_refused(unlike, options, message, capsys):
    assert main(["translate", str(unlike), *options, __file__]) == 2
    assert message in capsys.readouterr().err


def test_models_of_an_ensemble_need_one_tokenizer(unlike, tmp_path, toy_files, capsys):
    other = shutil.copytree(unlike, tmp_path / "other")
    with open(other / "tokenizer.model", "ab") as file:
        file.write(b"\x0a\x00")
    test = ["--source", str(toy_files / "test.en"), "--reference", str(toy_files / "test.de")]
    assert main(["evaluate", f"{unlike},{other}", *test]) == 2
    assert "must have the same tokenizers" in capsys.readouterr().err
    assert main(["evaluate", f"{unlike},nowhere", *test]) == 2
    assert "nowhere" in capsys.readouterr().err
