"""FLOPs of a training step, and model FLOPs utilization (MFU)."""

import re
from typing import NamedTuple

from keras_transformer.training.data.batches import Shape

#: Peak TFLOP/s of dense matrix products by GPU name, in float32 and in half precision, from the makers' data sheets.
#: For NVIDIA Ampere and later the float32 number is TensorFloat-32, which XLA uses for float32 products.
_PEAKS = {
    "H200": (495, 989),
    "H100 PCIe": (378, 756),
    "H100": (495, 989),
    "A100": (156, 312),
    "L40S": (183, 362),
    "L4": (60, 121),
    "A10G": (35, 70),
    "RTX 4090": (83, 165),
    "RTX 3090": (36, 71),
    "V100": (15.7, 125),
    "T4": (8.1, 65),
}


def flops_of_batch(config, shape: Shape) -> int:
    """FLOPs of the matrix products in a training step. The backward pass takes twice the FLOPs of the forward pass.

    Args:
        config: a `TransformerConfig`.
        shape: shape of the batch.

    Reference:
        Kaplan et al. 2020, "Scaling Laws for Neural Language Models", §2.1. In addition, this function counts
        attention over all positions of a row, and both stacks.
    """
    rows, source, target = shape
    heads, kv_heads = (number * sum(config.head_dims) for number in (config.num_heads, config.kv_heads))

    def attention(query, value):
        projections = (query * heads + value * kv_heads) * config.d_model
        return projections + query * value * heads  # Scores and sums.

    feed_forward = (3 if config.feed_forward == "gated" else 2) * config.d_model * config.d_ff
    encoder = attention(source, source) + source * feed_forward
    decoder = attention(target, target) + attention(target, source) + target * feed_forward
    layers = sum(depth * flops for depth, flops in zip(config.depths, (encoder, decoder), strict=True))
    return 6 * rows * (layers + target * config.d_model * config.vocab_size)


def peak_of(kind: str, precision: str) -> float | None:
    """Peak FLOP/s of a device by its name, such as `NVIDIA H200`; `None` if it is unknown."""
    known = [name for name in _PEAKS if re.search(rf"\b{name}\b", kind, re.IGNORECASE)]
    return 1e12 * _PEAKS[max(known, key=len)][precision != "float32"] if known else None


class StepCost(NamedTuple):
    """Averages over the training steps."""

    tokens: float  # target tokens without padding
    padding: float  # share of the target positions
    flops: float
    peak: float | None  # FLOP/s of all devices together; `None` if a device is unknown

    def __str__(self):
        """The tokens and FLOPs of a step, and the FLOPs per token."""
        each = self.flops / self.tokens
        return (
            f"{self.tokens:,.0f} target tokens, {self.flops / 1e9:,.1f} GFLOPs "
            f"({each / 1e6:,.1f} MFLOPs per target token)"
        )

    def rates(self, steps: int, seconds: float) -> dict[str, float]:
        """The values for TensorBoard, from a number of steps and their duration."""
        rates = {"tokens_per_second": steps * self.tokens / seconds, "padding": self.padding}
        return rates | ({"mfu": steps * self.flops / seconds / self.peak} if self.peak else {})


def step_cost(batches, config, recipe, devices) -> StepCost:
    """The average cost of a training step. R-Drop doubles the FLOPs."""
    each = zip(batches.steps_each, batches.shapes, strict=True)
    flops = sum(steps * flops_of_batch(config, shape) for steps, shape in each)
    peak = peak_of(devices.kind, recipe.precision)
    return StepCost(
        batches.tokens / batches.steps,
        batches.padding,
        (2 if recipe.r_drop else 1) * flops / batches.steps,
        peak and peak * devices.count,
    )
