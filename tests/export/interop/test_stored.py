import json
import tracemalloc

import ml_dtypes
import numpy as np
import pytest

from keras_transformer.export.interop.stored import changed, stored_tensors

numpy = pytest.importorskip("safetensors.numpy")

IN_A_NEW_PROCESS = """
import pathlib, sys
import numpy as np
from keras_transformer.export.interop.stored import stored_tensors
(tensor,) = stored_tensors(pathlib.Path(sys.argv[1])).values()
print(sorted({"keras", "ml_dtypes"} & sys.modules.keys()), np.asarray(tensor, "float32").tolist())
"""


def test_bfloat16_is_read_in_a_process_without_keras(tmp_path, run_python):
    """The weights are read before Keras is imported, which registers bfloat16 with NumPy."""
    array = np.array([[1.5, -2.0, 0.25]], ml_dtypes.bfloat16)
    numpy.save_file({"w": array}, tmp_path / "model.safetensors")
    found = run_python(IN_A_NEW_PROCESS, tmp_path / "model.safetensors")
    assert found.strip() == "['ml_dtypes'] [[1.5, -2.0, 0.25]]"


def test_only_used_tensors_are_in_memory(tmp_path):
    arrays = {name: np.full((500, 1000), i, "float32") for i, name in enumerate("abcd")}
    numpy.save_file(arrays, tmp_path / "model.safetensors")
    stored_tensors(tmp_path / "model.safetensors")  # Imports the library.
    tracemalloc.start()
    tensors = stored_tensors(tmp_path / "model.safetensors")
    tensors = {name: changed(tensor, lambda x: 2 * x[3:], rows=497) for name, tensor in tensors.items()}
    assert tracemalloc.get_traced_memory()[1] < 200_000
    for i, tensor in enumerate(tensors.values()):
        array = np.asarray(tensor)
        assert array.shape == tensor.shape == (497, 1000) and array.min() == array.max() == 2 * i
    # The file has 8 MB. Three arrays of 2 MB are in memory: the last one, the one that is read and the one changed.
    assert tracemalloc.get_traced_memory()[1] < 7_000_000
    tracemalloc.stop()


def test_dtypes_that_numpy_does_not_have_are_refused_before_they_are_read(tmp_path):
    header = json.dumps({"w": {"dtype": "F8_E4M3", "shape": [3], "data_offsets": [0, 3]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"abc")
    with pytest.raises(ValueError, match="model.safetensors must have dtypes that NumPy supports. Received: F8_E4M3"):
        stored_tensors(tmp_path / "model.safetensors")


def test_a_cut_file_is_refused_before_it_is_read(tmp_path):
    numpy.save_file({"w": np.zeros(9)}, tmp_path / "model.safetensors")
    (tmp_path / "cut.safetensors").write_bytes((tmp_path / "model.safetensors").read_bytes()[:-8])
    with pytest.raises(ValueError, match="cut.safetensors must be a safetensors file"):
        stored_tensors(tmp_path / "cut.safetensors")
