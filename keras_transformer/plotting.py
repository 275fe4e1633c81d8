"""Plots of attention weights. They need matplotlib: install the extra `plot`."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from keras_transformer.checks import needs

__all__ = ["plot_attention"]

#: Maximum number of heads per row of the plot.
_COLUMNS = 4
#: Size in inches of a token, and minimum and maximum size of the plot of a head.
_TOKEN_SIZE, _MIN_SIZE, _MAX_SIZE = 0.22, 2.0, 20.0


def check_picture(path: str | Path) -> None:
    """Checks that a plot can be written, before anything is computed.

    Args:
        path: the image file to write.

    Raises:
        ValueError: if matplotlib is not installed or does not support the suffix of `path`.
    """
    suffix = Path(path).suffix.removeprefix(".").lower()
    formats = sorted(_figure().canvas.get_supported_filetypes())
    if suffix not in formats:
        raise ValueError(f"`path` must end in one of {', '.join(formats)}. Received: path={path}")


def plot_attention(scores, source: Sequence[str], target: Sequence[str], path: str | Path) -> None:
    """Plots the cross-attention weights of one decoder layer, one heat map per head.

    Rows are target tokens, columns are source tokens. Darker cells have larger weights: white is 0, the darkest blue
    is 1. Each row sums to 1.

    Args:
        scores: float `(num_heads, target_length, source_length)`, the weights of one sentence in one layer, from
            `Transformer.attention_scores`.
        source: source tokens as strings.
        target: target tokens as strings.
        path: the image file to write. Its suffix selects the format, such as .png, .pdf or .svg.

    Raises:
        ValueError: if the shape of `scores` does not match the tokens, or matplotlib is not installed or does not
            support the format.

    Example:

        weights = model.attention_scores(source, target)[-1][0]
        plot_attention(weights, ["Hallo", "</s>"], ["hello", "</s>"], "picture.png")
    """
    check_picture(path)
    scores = np.asarray(scores)
    if scores.ndim != 3 or 0 in scores.shape or scores.shape[1:] != (len(target), len(source)):
        raise ValueError(
            f"`scores` must have shape (num_heads, {len(target)}, {len(source)}) without zeros. "
            f"Received: shape={scores.shape}"
        )
    columns = min(len(scores), _COLUMNS)
    rows = -(-len(scores) // columns)
    width, height = (min(max(_MIN_SIZE, _TOKEN_SIZE * len(tokens)), _MAX_SIZE) for tokens in (source, target))
    figure = _figure(figsize=(columns * width + 1, rows * (height + 0.9)), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
    images = []
    for head, (ax, weights) in enumerate(zip(axes, scores, strict=False), 1):
        images.append(ax.imshow(weights, cmap="Blues", vmin=0, vmax=1, aspect="auto"))
        if len(scores) > 1:
            ax.set_title(f"head {head}", fontsize=9)
        # Matplotlib would parse dollar signs in tokens as math.
        ax.set_xticks(range(len(source)), source, rotation=90, fontsize=8, parse_math=False)
        ax.set_yticks(range(len(target)), target, fontsize=8, parse_math=False)
    for ax in axes[len(scores) :]:
        ax.remove()
    figure.supxlabel("source", fontsize=9)
    figure.supylabel("target", fontsize=9)
    bar = figure.colorbar(images[0], ax=axes[: len(scores)].tolist(), label="weight", pad=0.01, aspect=30)
    bar.ax.tick_params(labelsize=8)
    figure.savefig(path, dpi=150)


def _figure(**options):
    with needs("plot"):
        from matplotlib.figure import Figure
    return Figure(**options)
