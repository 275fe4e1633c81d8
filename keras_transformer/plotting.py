"""Pictures of attention. Needs matplotlib, which the extra `plot` brings."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from keras_transformer.atomic_files import atomic_write

__all__ = ["plot_attention"]

#: Heads beside each other, at most.
_COLUMNS = 4
#: Inches that a token takes, and the least and the most that a head does, whose tokens then take less.
_TOKEN, _LEAST, _MOST = 0.22, 2.0, 20.0


def check_picture(path: str | Path) -> None:
    """Refuses a picture that cannot be drawn, before anything is computed for it.

    Args:
        path: the file to write.

    Raises:
        ValueError: if matplotlib is not installed, or has no format of this suffix.
    """
    suffix = Path(path).suffix.removeprefix(".").lower()
    formats = sorted(_figure().canvas.get_supported_filetypes())
    if suffix not in formats:
        raise ValueError(f"A picture's name must end in one of {', '.join(formats)}. Received: {path}")


def plot_attention(scores, source: Sequence[str], target: Sequence[str], path: str | Path) -> None:
    """Draws the heads of one layer: for each token that was made, where it looked in the source.

    A row is a token of the target, a column one of the source, and the darker a cell the greater the weight:
    white is 0, the darkest 1. A row sums to 1.

    Args:
        scores: float `(num_heads, target_length, source_length)`: one sentence in one layer of
            `Transformer.attention_scores`.
        source: the source's tokens, as text.
        target: the target's tokens, as text.
        path: the picture; its suffix says the format, such as .png, .pdf or .svg.

    Raises:
        ValueError: if the scores are not of these tokens, matplotlib is not installed, or it does not know the
            format.

    Example:

        weights = model.attention_scores(source, target)[-1][0]
        plot_attention(weights, ["Hallo", "</s>"], ["hello", "</s>"], "picture.png")
    """
    scores = np.asarray(scores)
    if scores.ndim != 3 or 0 in scores.shape or scores.shape[1:] != (len(target), len(source)):
        raise ValueError(
            f"`scores` must have shape (num_heads, {len(target)}, {len(source)}), none of them 0. "
            f"Received: {scores.shape}"
        )
    check_picture(path)
    columns = min(len(scores), _COLUMNS)
    rows = -(-len(scores) // columns)
    width, height = (min(max(_LEAST, _TOKEN * len(tokens)), _MOST) for tokens in (source, target))
    figure = _figure(figsize=(columns * width + 1, rows * (height + 0.9)), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
    for head, (ax, weights) in enumerate(zip(axes, scores, strict=False), 1):
        image = ax.imshow(weights, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        ax.set_title(f"head {head}", fontsize=9)
        # Tokens are text as it stands, dollar signs too.
        ax.set_xticks(range(len(source)), source, rotation=90, fontsize=8, parse_math=False)
        ax.set_yticks(range(len(target)), target, fontsize=8, parse_math=False)
    for ax in axes[len(scores) :]:
        ax.remove()
    figure.supxlabel("source", fontsize=9)
    figure.supylabel("target", fontsize=9)
    bar = figure.colorbar(image, ax=axes[: len(scores)].tolist(), label="weight", pad=0.01, aspect=30)
    bar.ax.tick_params(labelsize=8)
    with atomic_write(Path(path)) as temporary:
        figure.savefig(temporary, dpi=150)


def _figure(**options):
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ValueError("matplotlib is not installed: pip install 'keras-transformer-kit[plot]'") from error
    return Figure(**options)
