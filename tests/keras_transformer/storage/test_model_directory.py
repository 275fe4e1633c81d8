import json
import os
import re

import pytest

from keras_transformer.storage.atomic_files import TEMPORARY
from keras_transformer.storage.model_directory import FORMAT_VERSION, ModelDirectory, ModelDirectoryError
from keras_transformer.storage.token_directory import TokenDirectory

RECORD = {"dataset": "d", "recipe": {"seed": 1, "epochs": 3}}
HOLD = """
import sys
from keras_transformer.storage.model_directory import ModelDirectory
with ModelDirectory(sys.argv[1]).locked():
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def directory(tmp_path):
    return ModelDirectory(tmp_path / "run")


def finish(directory, record=None):
    directory.write_record(record or RECORD, finished=True)
    directory.model_file.write_bytes(b"weights")
    directory.write_tokenizers((b"subwords",))
    return directory


def contents(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_record_round_trip(directory):
    directory.write_record(RECORD, finished=False)
    assert directory.record() == {"format": FORMAT_VERSION, "finished": False, **RECORD}


def test_an_edited_record_is_read(directory):
    directory.path.mkdir()
    directory.record_file.write_text("format: '1'\nfinished: false\nlanguages:\ntokens: x\n", encoding="utf-8")
    assert directory.record()["prepared"] == "x" and directory.languages == (None, None)


@pytest.mark.parametrize("text", ["", "[1, 2]", "a: [", "finished: true", "\x80\x81"])
def test_an_unreadable_record_is_refused(directory, text):
    directory.path.mkdir()
    directory.record_file.write_bytes(text.encode("latin-1"))
    with pytest.raises(ModelDirectoryError, match=f"Unreadable.*{directory.record_file}"):
        directory.record()


def test_a_missing_record_is_refused(directory):
    with pytest.raises(ModelDirectoryError, match=r"/run .*no such directory"):
        directory.record()
    directory.path.write_text("text")
    with pytest.raises(ModelDirectoryError, match=r"/run .*is a file"):
        directory.record()
    directory.path.unlink()
    directory.path.mkdir()
    with pytest.raises(ModelDirectoryError, match=r"/run .*no config.yaml"):
        directory.record()


def test_a_record_of_format_1_has_todays_names(directory):
    directory.path.mkdir()
    old = {"format": 1, "finished": False, "tokens": "corpus", "recipe": {"keep": 5}, "model_as_built": {"d_model": 8}}
    directory.record_file.write_text(json.dumps(old))  # JSON is YAML.
    new = {"prepared": "corpus", "recipe": {"keep_checkpoints": 5}, "model_config": {"d_model": 8}}
    assert directory.record() == {"format": 1, "finished": False, **new}


def test_a_newer_format_is_refused(directory):
    directory.path.mkdir()
    directory.record_file.write_text(f"format: {FORMAT_VERSION + 6}\nfinished: true\n")
    for ask in (
        directory.record,
        directory.require_finished,
        directory.is_started,
    ):
        with pytest.raises(ModelDirectoryError, match=rf"format {FORMAT_VERSION + 6}\b.*\b{FORMAT_VERSION}$"):
            ask()


def test_separate_tokenizers_replace_a_shared_one(directory):
    directory.write_tokenizers((b"both",))
    assert [file.read_bytes() for file in directory.tokenizer_files] == [b"both", b"both"]
    directory.write_tokenizers((b"one", b"other"))
    assert [file.read_bytes() for file in directory.tokenizer_files] == [b"one", b"other"]
    assert contents(directory.path) == ["source_tokenizer.model", "target_tokenizer.model"]


def test_a_finished_directory_gives_its_record(directory):
    assert finish(directory).require_finished()["dataset"] == "d"


def test_an_unfinished_directory_is_refused(directory):
    finish(directory).write_record(RECORD, finished=False)
    with pytest.raises(ModelDirectoryError, match=r"no finished model.*training"):
        directory.require_finished()


def test_a_model_stays_while_it_is_trained_for_longer(directory):
    finish(directory, {**RECORD, "weights_of_steps": [7]}).write_record({**RECORD, "weights_of_steps": [7]}, False)
    assert directory.require_finished()["weights_of_steps"] == [7]


def test_an_overwritten_model_stays_until_the_new_one_is_complete(directory):
    finish(directory, {**RECORD, "languages": ["la", "it"], "model_config": {"d_model": 8}})
    old = directory.require_finished()
    for name in ("export/onnx/model.onnx", "shortlist.npz", "checkpoints/step-00000010.keras"):
        (directory.path / name).parent.mkdir(parents=True, exist_ok=True)
        (directory.path / name).touch()
    directory.verification_file.write_text(json.dumps({"onnx": {}}))
    new = {**RECORD, "dataset": "e"}
    for _ in range(2):  # It may be overwritten again before it has finished.
        directory.clear()
        assert not directory.is_started()
        directory.write_record({**directory.record(), **new, "languages": ["en", "de"]}, finished=False)
        assert directory.is_started() and directory.replaces_model
    with pytest.raises(ModelDirectoryError, match="unfinished run"):
        directory.require_free(overwrite=False)
    with pytest.raises(OSError, match="full"), directory.replacing_model((b"one", b"other")) as temporary:
        temporary.write_bytes(b"half")
        raise OSError("full")
    assert directory.require_finished() == {**old, "finished": False} and directory.languages == ("la", "it")
    assert (directory.model_file.read_bytes(), directory.tokenizer_models()) == (b"weights", (b"subwords",))
    assert (directory.export / "onnx").is_dir() and directory.shortlist_file.exists()
    with directory.replacing_model((b"one", b"other")) as temporary:
        temporary.write_bytes(b"new weights")
    with pytest.raises(ModelDirectoryError, match="no finished model .training has not finished"):
        directory.require_finished()
    directory.write_record(directory.record(), finished=True)
    assert directory.require_finished()["dataset"] == "e" and directory.languages == ("en", "de")
    assert contents(directory.path) == [
        "config.yaml",
        "model.keras",
        "source_tokenizer.model",
        "target_tokenizer.model",
    ]


@pytest.mark.parametrize("name", ["model.keras", "tokenizer.model"])
def test_a_file_is_missing(directory, name):
    (finish(directory).path / name).unlink()
    with pytest.raises(ModelDirectoryError, match=rf"no finished model.*missing.*{directory.path / name}"):
        directory.require_finished()


def test_a_new_directory_is_free(directory):
    for _ in range(2):
        assert not directory.is_started()
        directory.require_free(overwrite=False)
        directory.path.mkdir(exist_ok=True)


@pytest.mark.parametrize(("finished", "what"), [(False, "an unfinished run"), (True, "a finished model")])
def test_a_run_is_replaced_only_if_asked(directory, finished, what):
    directory.write_record(RECORD, finished)
    assert directory.is_started()
    directory.require_free(overwrite=True)
    with pytest.raises(ModelDirectoryError, match=f"{directory.path} contains {what}. To replace it, use --overwrite"):
        directory.require_free(overwrite=False)


FOREIGN = (
    "thesis.tex",
    "tokenizer.model",
    "checkpoints/pytorch_epoch9.pt",
    "logs/train/experiment.log",
    "tokens/a.npy",
)


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", FOREIGN)
def test_a_folder_of_something_else_is_refused(directory, overwrite, name):
    (directory.path / name).parent.mkdir(parents=True)
    (directory.path / name).touch()
    with pytest.raises(ModelDirectoryError, match="not empty.*no config.yaml"):
        directory.require_free(overwrite)


def test_a_mark_stays_only_beside_other_files(directory):
    for files in ([], ["tokenizer.model"]):
        with pytest.raises(RuntimeError), directory.locked(), directory.claimed():
            assert not directory.is_started()
            for name in files:
                (directory.path / name).touch()
            raise RuntimeError
        assert directory.path.exists() == bool(files)
    assert not directory.is_started()  # A new run may take the directory, whatever its configuration.
    with directory.claimed():
        directory.write_record(RECORD, finished=False)
    assert directory.is_started()


def test_temporary_files_of_a_killed_process_are_deleted(directory):
    (directory.path / f"{TEMPORARY}abc").mkdir(parents=True)
    assert not directory.is_started()
    with directory.locked():
        assert contents(directory.path) == []


def test_clear_leaves_other_files_and_the_mark(directory):
    finish(directory).write_record(RECORD, finished=False)
    for name in ("checkpoints/step-00000010.keras", "checkpoints/validations.json", "logs/train/events.out.tfevents.1"):
        (directory.path / name).parent.mkdir(parents=True, exist_ok=True)
        (directory.path / name).touch()
    for name in (*FOREIGN[2:], "export/onnx/model.onnx", "export/mine/model.onnx", "notes.txt"):
        (directory.path / name).parent.mkdir(parents=True, exist_ok=True)
        (directory.path / name).touch()
    directory.verification_file.write_text(json.dumps({"onnx encoder and decoder": {}}))
    directory.clear()
    TokenDirectory(directory.tokens).delete()
    files = [name for name in contents(directory.path) if (directory.path / name).is_file()]
    assert files == sorted([*FOREIGN[2:], "export/mine/model.onnx", "notes.txt", "config.yaml"])
    assert not directory.is_started()


def test_clear_follows_no_links(directory, tmp_path, capsys):
    finish(directory).write_record(RECORD, finished=False)
    for folder in (directory.checkpoints, directory.export):
        disk = tmp_path / "disk" / folder.name
        (disk / "onnx").mkdir(parents=True)
        (disk / "step-00000010.keras").touch()
        folder.symlink_to(disk)
    before = contents(tmp_path / "disk")
    directory.clear()
    assert contents(directory.path) == ["config.yaml"] and contents(tmp_path / "disk") == before
    assert re.search(f"link {directory.checkpoints};.*{tmp_path}/disk/checkpoints", capsys.readouterr().err)


def test_an_export_replaces_exports_alone(directory):
    directory.require_replaceable("onnx")
    (directory.exported("onnx")).mkdir(parents=True)
    with pytest.raises(ModelDirectoryError, match="export/onnx .*verification.json"):
        directory.require_replaceable("onnx")
    (directory.exported("onnx") / "origin.json").touch()  # One whose export was killed before it was recorded.
    directory.require_replaceable("onnx")
    (directory.exported("onnx") / "origin.json").unlink()
    directory.verification_file.write_text(json.dumps({"onnx": {}}))
    directory.require_replaceable("onnx")
    directory.verification_file.write_text("[1]")
    with pytest.raises(ModelDirectoryError, match="Unreadable .*verification.json"):
        directory.require_replaceable("onnx")


def test_a_second_lock_in_one_process_is_refused(directory):
    with directory.locked():
        (directory.path / "kept").touch()
        with pytest.raises(ModelDirectoryError, match="/run .*in use"), directory.locked():
            pass
    with directory.locked():
        assert contents(directory.path) == ["kept"]


def test_locked_by_another_process_until_it_is_killed(directory):
    import subprocess
    import sys

    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, directory.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ
    )
    with holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(ModelDirectoryError, match="/run .*in use"), directory.locked():
            pass
        holder.kill()
        holder.wait()
    with directory.locked():
        assert directory.path.is_dir()


def test_folders_that_stay_empty_are_removed(tmp_path):
    (tmp_path / "kept").mkdir()
    with pytest.raises(RuntimeError), ModelDirectory(tmp_path / "kept" / "a" / "b").locked():
        raise RuntimeError
    assert [path.name for path in tmp_path.rglob("*")] == ["kept"]


def test_a_directory_that_stays_empty_is_removed(directory):
    with pytest.raises(RuntimeError), directory.locked():
        raise RuntimeError
    assert not directory.path.exists()


def test_a_directory_that_is_a_file(directory):
    directory.path.write_text("text")
    with pytest.raises((ModelDirectoryError, OSError), match=str(directory.path)):
        directory.is_started()
