"""The picture of a training."""

from collections.abc import Sequence
from pathlib import Path

from keras_transformer.atomic_files import atomic_write


def write_curve(validations: Sequence[dict[str, float]], path: Path) -> None:
    """Draws loss and, where it was decoded, BLEU over updates. Needs matplotlib.

    Args:
        validations: those of `TrainingState`.
        path: the picture, a .png file.
    """
    from matplotlib.figure import Figure  # Here, since it is an extra.

    steps = [validation["step"] for validation in validations]
    has_bleu = "bleu" in validations[0]
    figure = Figure(figsize=(7, 6 if has_bleu else 4), layout="constrained")
    losses, *others = figure.subplots(1 + has_bleu, sharex=True, squeeze=False)[:, 0]
    for name, label in (("training_loss", "training, since the validation before"), ("loss", "validation")):
        losses.plot(steps, [validation[name] for validation in validations], ".-", label=label)
    losses.set_ylabel("loss (nats a token)")
    losses.legend()
    for scores in others:
        scores.plot(steps, [validation["bleu"] for validation in validations], ".-")
        scores.set_ylabel("validation BLEU")
    figure.axes[-1].set_xlabel("updates")
    with atomic_write(path) as temporary:
        figure.savefig(temporary, dpi=120)
