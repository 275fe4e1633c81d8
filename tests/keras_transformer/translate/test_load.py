import pytest

from keras_transformer.export import CTranslate2Translator, OnnxTranslator, SavedModelTranslator
from keras_transformer.export.registry import FORMATS
from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.translate.load import FASTEST_FIRST, RUNTIMES, available_runtimes, load_translator


@pytest.fixture
def unexported(tmp_path):
    """A finished model without any export."""
    directory = ModelDirectory(tmp_path / "run")
    directory.write_record({}, finished=True)
    directory.write_tokenizers((b"subwords",))
    directory.model_file.write_bytes(b"weights")
    return directory.path


def test_an_unknown_runtime_is_refused(unexported):
    with pytest.raises(ValueError, match="`runtime` .*keras, saved_model, onnx.*Received: runtime='tf'"):
        load_translator(unexported, "tf")


@pytest.mark.parametrize(
    ("runtime", "translator", "message"),
    [
        ("onnx", OnnxTranslator, "ONNX export .*{} .*model.onnx"),
        ("onnx_int8", None, "ONNX int8 export .*{} .*model.onnx"),
        ("saved_model", SavedModelTranslator, "SavedModel export .*{} .*saved_model.pb"),
        ("ctranslate2", CTranslate2Translator, "CTranslate2 export .*{} .*model.bin"),
    ],
)
def test_a_missing_export_is_named(unexported, runtime, translator, message):
    for load in filter(None, (translator, lambda path: load_translator(path, runtime))):
        with pytest.raises(ValueError, match=message.format(unexported)):
            load(unexported)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_missing_directory_is_named(tmp_path, runtime):
    with pytest.raises(ValueError, match=str(tmp_path / "none")):
        load_translator(tmp_path / "none", runtime)


def test_parallel_batches_divide_the_cores_by_default(unexported, monkeypatch):
    monkeypatch.setattr("keras_transformer.translate.threads.num_cores", lambda: 6)
    monkeypatch.setattr("keras_transformer.export.onnx.translator.OnnxTranslator", lambda directory, **options: options)
    monkeypatch.setattr(
        "keras_transformer.translate.keras_translator.KerasTranslator", lambda directory, **options: options
    )
    monkeypatch.setattr("keras_transformer.translate.load.set_keras_threads", lambda *numbers: None)
    for runtime, options in (("onnx", {"num_threads": 3}), ("keras", {})):
        assert load_translator(unexported, runtime, 3, None) == {**options, "parallel_batches": 2}
        assert load_translator(unexported, runtime, 3) == {**options, "parallel_batches": 1}


def test_broken_files_are_named(unexported):
    for folder, name in (("onnx", "model.onnx"), ("saved_model", "saved_model.pb")):
        (unexported / "export" / folder).mkdir(parents=True)
        (unexported / "export" / folder / name).write_bytes(b"\xffnonsense")
    with pytest.raises(ValueError, match=f"Invalid .*{unexported / 'export' / 'saved_model'} "):
        load_translator(unexported, "saved_model")
    with pytest.raises(ValueError, match=f"Invalid .*{unexported / 'export' / 'onnx' / 'model.onnx'} "):
        load_translator(unexported, "onnx")


def test_importing_the_clients_brings_neither_tensorflow_nor_keras(run_python):
    program = "import sys, keras_transformer.{}; print({{'keras', 'tensorflow'}} & set(sys.modules))"
    for module in (*(f"export.{name}.translator" for name in ("onnx", "saved_model", "ctranslate2")), "translate.load"):
        assert run_python(program.format(module)) == "set()\n"


def test_available_runtimes_are_keras_and_the_exports(unexported):
    assert available_runtimes(unexported) == ["keras"]
    for name in ("onnx_int8", "saved_model", ".tmp-1"):
        (unexported / "export" / name).mkdir(parents=True)
    assert available_runtimes(unexported) == ["keras", "saved_model", "onnx_int8"]


def test_each_runtime_but_keras_is_a_format():
    assert RUNTIMES[0] == "keras" and {*RUNTIMES[1:]} == {*FORMATS} - {"huggingface", "web"}
    assert sorted(FASTEST_FIRST) == sorted(RUNTIMES)
