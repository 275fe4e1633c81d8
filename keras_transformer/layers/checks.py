"""Checks of inputs that several layers share, by their static shapes."""


def check_rank(name, shape, one_position=False):
    """Checks that an input has shape `(batch, length, width)`, or `(batch, width)` if `one_position`."""
    if len(shape) != 3 and not (one_position and len(shape) == 2):
        also = " or (batch, width)" if one_position else ""
        raise ValueError(f"`{name}` must have shape (batch, length, width){also}. Received: shape={tuple(shape)}")


def check_width(name, shape, d_model):
    """Checks that the last axis of an input has width `d_model`."""
    if shape[-1] != d_model:
        raise ValueError(
            f"The last axis of `{name}` must have width `d_model`={d_model}. "
            f"Received: width={shape[-1]}, shape={tuple(shape)}"
        )
