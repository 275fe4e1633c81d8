"""Floating-point operations of training, and what share of a GPU's they are."""

import re
from typing import NamedTuple

from keras_transformer.training.data.batches import Shape

#: Tera-operations a second of dense products, by a part of a GPU's name, in float32 (of those of Nvidia's Ampere and
#: later as TensorFloat-32, which XLA uses there) and in half precision. Makers' data sheets.
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
    """Multiplications and additions of the products of a training step: forward, and twice as many backward.

    Args:
        config: a `TransformerConfig`.
        shape: of the batch.

    Reference:
        Kaplan et al. 2020, "Scaling Laws for Neural Language Models", §2.1; here attention to all places of a row and
        both stacks are counted.
    """
    rows, source, target = shape
    d_k, d_v = config.head_dims
    heads = config.num_heads * (d_k + d_v)

    def attention(query, value):
        return (query + value) * config.d_model * heads + query * value * heads  # Four projections; scores and sums.

    feed_forward = 2 * config.d_model * config.d_ff
    encoder = attention(source, source) + source * feed_forward
    decoder = attention(target, target) + attention(target, source) + target * feed_forward
    return 6 * rows * (config.num_layers * (encoder + decoder) + target * config.d_model * config.vocab_size)


def peak_of(kind: str, precision: str) -> float | None:
    """Operations a second that a device can do at most.

    Args:
        kind: its name, such as `NVIDIA H200`.
        precision: dtype policy of the training.

    Returns:
        A number, or `None` of a device that is not known.
    """
    known = [name for name in _PEAKS if re.search(rf"\b{name}\b", kind, re.IGNORECASE)]
    return 1e12 * _PEAKS[max(known, key=len)][precision != "float32"] if known else None


class StepCost(NamedTuple):
    """What a step is on average."""

    tokens: float  # real ones of the target
    padding: float  # share of the target's places
    flops: float  # of floating-point numbers
    peak: float | None  # operations a second of all devices, where they are known

    def __str__(self):
        """In words, with the operations a token."""
        each = self.flops / self.tokens
        return (
            f"{self.tokens:,.0f} target tokens, {self.flops / 1e9:,.1f} billion operations, "
            f"{each / 1e6:,.1f} million a token"
        )

    def rates(self, steps: int, seconds: float) -> dict[str, float]:
        """What is told of so many steps in so many seconds."""
        rates = {"tokens_per_second": steps * self.tokens / seconds, "padding": self.padding}
        return rates | ({"mfu": steps * self.flops / seconds / self.peak} if self.peak else {})


def step_cost(batches, config, precision: str, devices) -> StepCost:
    """The work of a training.

    Args:
        batches: `Batches`.
        config: a `TransformerConfig`.
        precision: dtype policy of the training.
        devices: `Devices`.
    """
    each = zip(batches.steps_each, batches.shapes, strict=True)
    flops = sum(steps * flops_of_batch(config, shape) for steps, shape in each)
    peak = peak_of(devices.kind, precision)
    return StepCost(
        batches.tokens / batches.steps,
        batches.padding,
        flops / batches.steps,
        peak and peak * devices.count,
    )
