"""Argument and input checks that several layers share. Input checks use static shapes only."""


def check_sizes(**sizes):
    """Checks that sizes are at least 1 or `None`.

    Args:
        **sizes: argument name -> value.

    Raises:
        ValueError: if a size is below 1. The message names the argument.
    """
    for name, size in sizes.items():
        if size is not None and size < 1:
            raise ValueError(f"`{name}` must be at least 1. Received: {name}={size}")


def check_rates(**rates):
    """Checks that dropout rates are in [0, 1].

    Args:
        **rates: argument name -> value.

    Raises:
        ValueError: if a rate is outside [0, 1]. The message names the argument.
    """
    for name, rate in rates.items():
        if not 0 <= rate <= 1:
            raise ValueError(f"`{name}` must be in [0, 1]. Received: {name}={rate}")


def check_rank(name, shape, one_position=False):
    """Checks that an input has shape `(batch, length, width)`.

    Args:
        name: argument name in error messages.
        shape: shape of the input.
        one_position: whether to also allow `(batch, width)`, one position per row.

    Raises:
        ValueError: if the rank is wrong. The message names the argument and its shape.
    """
    if len(shape) != 3 and not (one_position and len(shape) == 2):
        also = " or (batch, width)" if one_position else ""
        raise ValueError(f"`{name}` must have shape (batch, length, width){also}. Received: shape={tuple(shape)}")


def check_width(name, shape, d_model):
    """Checks that the last axis of an input has width `d_model`.

    Args:
        name: argument name in error messages.
        shape: shape of the input.
        d_model: expected width.

    Raises:
        ValueError: if the width differs. The message names the argument, `d_model` and the width.
    """
    if shape[-1] != d_model:
        raise ValueError(
            f"The last axis of `{name}` must have width `d_model`={d_model}. "
            f"Received: width={shape[-1]}, shape={tuple(shape)}"
        )
