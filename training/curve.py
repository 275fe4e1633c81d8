"""Plot of the training curve."""

from collections.abc import Sequence
from pathlib import Path

from keras_transformer.storage.atomic_files import atomic_write


def write_curve(validations: Sequence[dict[str, float]], path: Path) -> None:
    """Plots the loss and, if it was computed, BLEU against updates. Requires matplotlib."""
    from matplotlib.figure import Figure  # An optional dependency.

    steps = [validation["step"] for validation in validations]
    has_bleu = "bleu" in validations[0]
    figure = Figure(figsize=(7, 6 if has_bleu else 4), layout="constrained")
    losses, *others = figure.subplots(1 + has_bleu, sharex=True, squeeze=False)[:, 0]
    for name, label in (("training_loss", "training (mean since the last validation)"), ("loss", "validation")):
        losses.plot(steps, [validation[name] for validation in validations], ".-", label=label)
    losses.set_ylabel("loss (nats per token)")
    losses.legend()
    for scores in others:
        scores.plot(steps, [validation["bleu"] for validation in validations], ".-")
        scores.set_ylabel("validation BLEU")
    figure.axes[-1].set_xlabel("updates")
    with atomic_write(path) as temporary:
        figure.savefig(temporary, dpi=120)
