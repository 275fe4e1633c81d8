import errno

import pytest

from keras_transformer.storage.exhaustion import full_disk, is_out_of_memory


class ResourceExhaustedError(Exception):
    """Named as TensorFlow's, which raises it for memory and for full disks."""


class OutOfMemoryError(RuntimeError):
    """Named as PyTorch's."""


MEMORY = [
    MemoryError(),
    MemoryError("Unable to allocate 8.0 TiB for an array with shape (1, 2) and data type float64"),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
    ResourceExhaustedError("{{function_node}} OOM when allocating tensor with shape[9,9] and type float"),
    OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8"),
    RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8 bytes."),
    RuntimeError("[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : bfc_arena.cc Failed to allocate memory for buffer"),
    RuntimeError("std::bad_alloc"),
    RuntimeError("CUDA failed with error out of memory"),
]
DISK = [
    OSError(errno.ENOSPC, "No space left on device", "model.keras"),
    OSError("Can't write data (file write failed: errno = 28, error message = 'No space left on device')"),
    ResourceExhaustedError("saved_model/variables.data-00000; No space left on device"),
    RuntimeError("Failed to write: No space left on device"),
]
OTHERS = [
    ValueError("No such file: out of memory.txt"),
    OSError(errno.EACCES, "Permission denied", "out of memory"),
    RuntimeError("allocated"),
    KeyError("bad_alloc"),
]


@pytest.mark.parametrize("error", MEMORY, ids=str)
def test_errors_of_memory_are_recognized(error):
    assert is_out_of_memory(error) and full_disk(error) is None


@pytest.mark.parametrize("error", DISK, ids=str)
def test_errors_of_a_full_disk_are_recognized(error):
    assert full_disk(error) == errno.ENOSPC and not is_out_of_memory(error)


@pytest.mark.parametrize("error", OTHERS, ids=str)
def test_other_errors_are_neither(error):
    assert full_disk(error) is None and not is_out_of_memory(error)
