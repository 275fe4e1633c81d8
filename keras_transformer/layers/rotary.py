"""Rotary positions of self-attention."""

import keras
import numpy as np
from keras import ops

from keras_transformer.checks import at_least, one_of, positive, require, within
from keras_transformer.layers.position_schemes import PositionScheme


def _interleave(first, second):
    pairs = ops.stack([first, second], axis=-1)  # (…, width / 2, 2)
    return ops.reshape(pairs, (*ops.shape(first)[:-1], 2 * first.shape[-1]))  # (…, width)


#: Layout -> how entries are split into the first and the second of each pair, and joined again.
_LAYOUTS = {
    "halves": (lambda x: ops.split(x, 2, axis=-1), lambda first, second: ops.concatenate([first, second], axis=-1)),
    "interleaved": (lambda x: (x[..., 0::2], x[..., 1::2]), _interleave),
}


@keras.saving.register_keras_serializable(package="keras_transformer")
class RotaryPositions(PositionScheme):
    """Rotary position embedding (RoPE): rotates pairs of entries of queries and keys by angles pos · base^(-2i/width).

    The score of a query and a key depends on their distance only. Angles and rotation are computed in float32 under
    every dtype policy.

    Names here -> elsewhere: `base` -> `max_wavelength` in `PositionalEncoding` and keras-hub, `rope_theta` in
    transformers; `fraction` -> `partial_rotary_factor`; `scaling` -> `rope_type`; `scaling_factor` -> `factor`.

    Args:
        base: the constant 10000 in the formula.
        fraction: share of the entries of a head that is rotated: the first `width` = int(d_k · fraction). The other
            entries carry no position.
        layout: which entries are a pair. `"halves"`: entries i and i + width/2, as in Llama, Qwen and most models on
            the Hugging Face Hub. `"interleaved"`: entries 2i and 2i + 1, as in the paper and in GPT-J.
        scaling: how to run a model on texts longer than those of its training. `"linear"` divides the positions by
            `scaling_factor`. `"ntk"` multiplies the base by scaling_factor^(width / (width - 2)), which hardly changes
            the high frequencies. Default: `None`, no scaling.
        scaling_factor: new length divided by the length in training.

    Raises:
        ValueError: if an argument is outside of its range, or `scaling_factor` is given without `scaling`. In `build`:
            if the rotated width is not even and positive.

    Example:

    >>> from keras_transformer.layers import MultiHeadAttention
    >>> attention = MultiHeadAttention(d_model=12, num_heads=3, positions=RotaryPositions())
    >>> attention(np.zeros((2, 5, 12), "float32"), use_causal_mask=True).shape
    TensorShape([2, 5, 12])

    Reference:
        Su et al. 2021, "RoFormer", §3.2.2. Linear scaling: Chen et al. 2023, "Extending Context Window of Large
        Language Models via Positional Interpolation", §2.3. NTK: Peng et al. 2023, "YaRN", §3.1.
    """

    def __init__(self, base=10000.0, fraction=1.0, layout="halves", scaling=None, scaling_factor=1.0, **kwargs):
        super().__init__(**kwargs)
        require(
            positive(base=base),
            within("(0, 1]", fraction=fraction),
            one_of(tuple(_LAYOUTS), layout=layout),
            one_of((None, "linear", "ntk"), scaling=scaling),
            at_least(1, scaling_factor=scaling_factor),
        )
        if scaling is None and scaling_factor != 1:
            raise ValueError(f"`scaling_factor` requires `scaling`. Received: scaling_factor={scaling_factor}")
        self.base = base
        self.fraction = fraction
        self.layout = layout
        self.scaling = scaling
        self.scaling_factor = scaling_factor

    def build(self, heads_shape):
        width = self._width(heads_shape)
        if width < 2 or width % 2:
            raise ValueError(
                "The rotated width int(d_k * fraction) must be even and positive. "
                f"Received: width={width}, d_k={heads_shape[-1]}, fraction={self.fraction}"
            )

    def process_heads(self, query, key, positions):
        # (length, 1) · (width / 2,) -> (length, width / 2)
        angles = ops.multiply(
            ops.expand_dims(ops.cast(positions, "float32"), 1), self._frequencies(self._width(query.shape))
        )
        cos, sin = ops.cos(angles), ops.sin(angles)
        return self._rotate(query, cos, sin), self._rotate(key, cos, sin)

    def _width(self, heads_shape):
        return int(heads_shape[-1] * self.fraction)

    def _frequencies(self, width):
        """Float32 `(width / 2,)`."""
        base = self.base
        if self.scaling == "ntk":
            base = base * self.scaling_factor ** (width / max(width - 2, 1))
        frequencies = base ** (-np.arange(0, width, 2) / width)
        return (frequencies / self.scaling_factor if self.scaling == "linear" else frequencies).astype("float32")

    def _rotate(self, heads, cos, sin):
        """Rotates the first entries of `heads`, `(batch, heads, length, d_k)`."""
        width = self._width(heads.shape)
        split, join = _LAYOUTS[self.layout]
        first, second = split(ops.cast(heads[..., :width], "float32"))  # Each (batch, heads, length, width / 2).
        rotated = ops.cast(join(first * cos - second * sin, second * cos + first * sin), heads.dtype)
        is_whole = width == heads.shape[-1]
        return rotated if is_whole else ops.concatenate([rotated, heads[..., width:]], axis=-1)
