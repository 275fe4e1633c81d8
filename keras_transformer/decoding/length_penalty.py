"""Length penalties. The score of a hypothesis with n tokens, including EOS, is log p / penalty(n)."""

from keras import ops


def length_penalty(length, alpha: float, kind: str = "gnmt"):
    """((5 + length) / 6)^α for `"gnmt"`, length^α for `"length"`; float32.

    Args:
        length: int tensor, number of tokens including EOS.
        alpha: exponent α, at least 0. 0 disables the penalty.
        kind: `"gnmt"` or `"length"`.

    Returns:
        Float32 tensor of the shape of `length`, non-decreasing in `length`.

    Example:

    >>> float(length_penalty(np.array(7), alpha=1.0))
    2.0

    Reference:
        Vaswani et al. 2017, §6.1.
    """
    length = ops.cast(length, "float32")
    return ((5.0 + length) / 6.0) ** alpha if kind == "gnmt" else length**alpha
