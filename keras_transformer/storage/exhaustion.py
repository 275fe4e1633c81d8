"""Errors that mean too little memory or a full disk, of all libraries that this package runs."""

import errno
import os
import re

#: Errors of the operating system while a file is written.
ERRORS_OF_WRITING = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
#: Names of exceptions of TensorFlow and PyTorch.
_MEMORY_ERRORS = {"ResourceExhaustedError", "OutOfMemoryError"}
#: What other exceptions say: those of JAX, onnxruntime, CTranslate2, CUDA, and of PyTorch on a CPU.
_MEMORY_MESSAGE = re.compile(
    r"out of memory|RESOURCE_EXHAUSTED|bad_?alloc|bad allocation|not enough memory"
    r"|(?:failed|unable|cannot|can't|could not) (?:to )?allocate",
    re.IGNORECASE,
)
#: Command -> how it needs less memory.
_LESS_MEMORY = {
    "train": "lower `--tokens_per_device`, which keeps the batch, or `--tokens_per_batch`",
    "prepare": "lower `--tokenizer.sample_size`",
    "score": "lower `--batch_size` or `--batch_tokens`",
    "export": "export one `--format` at a time, or with a lower `--beam_size`",
    "shortlist": "lower `--max_pairs`",
    **dict.fromkeys(
        ("translate", "evaluate", "compare", "distill", "serve"),
        "lower `--batch_size`, `--batch_tokens` or `--parallel_batches`",
    ),
}


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of any library means that memory has run out, on the CPU or on another device.

    Example:

    >>> is_out_of_memory(RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8 bytes."))
    True
    """
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if isinstance(error, (ValueError, LookupError)) or full_disk(error):
        return False
    if _MEMORY_ERRORS & {kind.__name__ for kind in type(error).__mro__}:
        return True
    return bool(_MEMORY_MESSAGE.search(str(error)))


def full_disk(error: BaseException) -> int | None:
    """The number of the operating system's error that made a file incomplete; `None` for all other errors.

    Libraries in C++ raise errors of their own, and h5py an `OSError` without a number. Their messages end with the
    message of the operating system.

    Example:

    >>> full_disk(RuntimeError("variables.data; No space left on device")) == errno.ENOSPC
    True
    """
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno if error.errno in ERRORS_OF_WRITING else None
    message = str(error).lower()
    return next((number for number in ERRORS_OF_WRITING if os.strerror(number).lower() in message), None)


def describe_out_of_memory(command: str) -> str:
    """Describes a lack of memory, and how a command needs less.

    Example:

    >>> describe_out_of_memory("shortlist")
    'Not enough memory: lower `--max_pairs`, or use a device with more memory'
    """
    ways = filter(None, [_LESS_MEMORY.get(command), "use a device with more memory"])
    return f"Not enough memory: {', or '.join(ways)}"
