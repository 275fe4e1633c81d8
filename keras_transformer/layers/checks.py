"""Checks of the arguments and of the inputs that several layers share. Only static shapes are looked at."""


def check_sizes(**sizes):
    """Refuses a size below 1; `None` passes.

    Args:
        **sizes: by the names of the arguments.

    Raises:
        ValueError: naming the argument.
    """
    for name, size in sizes.items():
        if size is not None and size < 1:
            raise ValueError(f"`{name}` must be at least 1. Received: {name}={size}")


def check_rates(**rates):
    """Refuses a dropout rate outside [0, 1].

    Args:
        **rates: by the names of the arguments.

    Raises:
        ValueError: naming the argument.
    """
    for name, rate in rates.items():
        if not 0 <= rate <= 1:
            raise ValueError(f"`{name}` must be in [0, 1]. Received: {name}={rate}")


def check_rank(name, shape, one_position=False):
    """Refuses what is not a batch of sequences of vectors.

    Args:
        name: of the argument, for messages.
        shape: of the input.
        one_position: whether `(batch, width)`, one position of each row, is allowed too.

    Raises:
        ValueError: naming the argument and its shape.
    """
    if len(shape) != 3 and not (one_position and len(shape) == 2):
        also = " or (batch, width)" if one_position else ""
        raise ValueError(f"`{name}` must have shape (batch, length, width){also}. Received: shape={tuple(shape)}")


def check_width(name, shape, d_model):
    """Refuses vectors of another width than the model's.

    Args:
        name: of the argument, for messages.
        shape: of the input.
        d_model: width that the last axis must have.

    Raises:
        ValueError: naming the argument, `d_model` and the width received.
    """
    if shape[-1] != d_model:
        raise ValueError(
            f"The last axis of `{name}` must be `d_model`={d_model} wide. "
            f"Received: width={shape[-1]}, shape={tuple(shape)}"
        )
