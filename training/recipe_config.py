"""Options of the optimization. Their defaults are defined here only."""

import dataclasses
import math
import re
import sys
from typing import Literal

from keras_transformer.checks import at_least, fields, positive, require, within

#: Default epochs, and the maximum that small corpora get by default.
_EPOCHS, _MAX_EPOCHS = 10, 100
#: Small corpora get more epochs, up to this number of steps: from scratch, and in fine-tuning.
_MIN_STEPS, _MIN_FINE_TUNING_STEPS = 2000, 500


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecipeConfig:
    """Optimization of the model.

    The paper's recipe (§5) has 100,000 steps, or 300,000 for the big model, `warmup_steps=4000` and
    `weights="average"`; see `examples/wmt14-base.yaml`. The default warm-up is shorter if the run has fewer than 40,000
    steps.

    Args:
        epochs: passes over the training pairs. Default: 10. Small corpora get more, up to 100, to reach 2,000 steps
            (500 with `init_from`).
        max_steps: maximum number of steps. Default: set by `epochs` alone.
        max_time: maximum training time in minutes, including the time before a resumption. The run then finishes
            as at `max_steps`, but the learning rate does not adapt to this limit. Default: no limit.
        schedule: decay of the learning rate after linear warm-up: `inverse_sqrt` (of the step, as in the paper), or
            `cosine` to zero at the last step.
        warmup_steps: steps until the learning rate peaks. Default: a tenth of the run, at most 4,000 (the paper's).
        peak_learning_rate: learning rate at the end of the warm-up. Default: d_model^-0.5 · w^-0.5, as in the paper,
            where w is `warmup_steps` but at least 2,000; half of that with `init_from` (fine-tuning).
        label_smoothing: ε of label smoothing.
        r_drop: α of R-Drop: each pair is trained on twice with different dropout, and the difference of the two
            predictions is part of the loss. The paper uses 5 for translation. A step takes over twice the time. 0: no
            R-Drop.
        weight_decay: decoupled weight decay of matrices, as in AdamW: each update subtracts
            `weight_decay * learning rate * weight`. 0: none.
        clip_norm: maximum global norm of the gradient. Larger gradients are scaled down. Default: no clipping.
        precision: Keras dtype policy of the training.
        attention: `fused` keeps no attention scores in memory, and needs JAX; `plain` keeps them. `auto` is fused on a
            GPU with JAX, and plain otherwise.
        validate_every: steps between validations. Default: one epoch.
        checkpoint_every: steps between checkpoints. Every validation writes one too.
        keep_checkpoints: number of latest checkpoints to keep. The best one is also kept. Each takes three times the
            size of the model.
        patience: stop after this number of validations without improvement. Default: never.
        best_by: criterion of the best validation, for `patience` and `weights`: lower loss, or higher BLEU.
        bleu_sentences: number of validation pairs, from the first, for BLEU. Each validation translates them with
            greedy search and scores them with sacreBLEU. 0: no BLEU.
        weights: weights of the finished model: those of the best validation, the last ones, or the average of the kept
            checkpoints (the paper averages 5, for big models 20).
        moving_average: momentum, such as 0.999, of an exponential moving average of the weights. Validations and
            the finished model use the average. Default: none.
        seed: seed of weights, dropout and data order, in [0, 2**32).
        xla: compile with XLA. Default: true on one device, false on several TensorFlow devices.
        remat: recompute the activations of each encoder and decoder layer for the gradient, instead of keeping them.
            Saves memory of the device, and a step takes longer. Results differ only by rounding.
        steps_per_execution: Keras `steps_per_execution`: training steps run between host callbacks. `max_steps`,
            `validate_every`, `checkpoint_every` and the length of an epoch are rounded up to a multiple. Must be 1
            with several workers.
        callbacks: Keras callbacks of your own, as MODULE:FUNCTION. The function has no arguments and returns a list of
            them. The module is searched in the current folder too.

    Raises:
        ValueError: if an option is out of range.
    """

    epochs: int | None = None
    max_steps: int | None = None
    max_time: float | None = None
    schedule: Literal["inverse_sqrt", "cosine"] = "inverse_sqrt"
    warmup_steps: int | None = None
    peak_learning_rate: float | None = None
    label_smoothing: float = 0.1
    r_drop: float = 0.0
    weight_decay: float = 0.0
    clip_norm: float | None = None
    precision: Literal["float32", "mixed_float16", "mixed_bfloat16"] = "float32"
    attention: Literal["auto", "fused", "plain"] = "auto"
    validate_every: int | None = None
    checkpoint_every: int = 1000
    keep_checkpoints: int = 5
    patience: int | None = None
    best_by: Literal["loss", "bleu"] = "loss"
    bleu_sentences: int = 0
    weights: Literal["best", "last", "average"] = "best"
    moving_average: float | None = None
    seed: int = 1
    xla: bool | None = None
    remat: bool = False
    steps_per_execution: int = 1
    callbacks: str | None = None

    def round_to_execution(self, steps: int) -> int:
        """Rounds a number of steps up to a multiple of `steps_per_execution`.

        Args:
            steps: number of steps.
        """
        return -(-steps // self.steps_per_execution) * self.steps_per_execution

    def total_steps(self, epoch: int, is_fine_tuning: bool = False) -> int:
        """Number of steps of the run.

        Args:
            epoch: steps in one pass over the training pairs.
            is_fine_tuning: whether the run starts from a trained model.
        """
        least = _MIN_FINE_TUNING_STEPS if is_fine_tuning else _MIN_STEPS
        epochs = self.epochs or min(max(_EPOCHS, -(-least // epoch)), _MAX_EPOCHS)
        return self.round_to_execution(min(epochs * epoch, self.max_steps or sys.maxsize))

    @property
    def seconds(self) -> float:
        """`max_time` in seconds."""
        return math.inf if self.max_time is None else 60.0 * self.max_time

    def __post_init__(self):
        steps = ("max_steps", "warmup_steps", "validate_every", "checkpoint_every", "steps_per_execution")
        require(
            at_least(1, **fields(self, "epochs", *steps, "patience")),
            at_least(2, keep_checkpoints=self.keep_checkpoints),
            at_least(0, bleu_sentences=self.bleu_sentences),
            within("[0, inf)", r_drop=self.r_drop, weight_decay=self.weight_decay),
            positive(**fields(self, "max_time", "peak_learning_rate", "clip_norm")),
            within("[0, 1)", label_smoothing=self.label_smoothing),
            within("(0, 1)", moving_average=self.moving_average),
            within(f"[0, {2**32 - 1}]", seed=self.seed),
        )
        if self.callbacks is not None and not re.fullmatch(r"[\w.]+:\w+", self.callbacks):
            raise ValueError(
                f"`recipe.callbacks` must have the form MODULE:FUNCTION. Received: callbacks={self.callbacks!r}"
            )
        if self.best_by == "bleu" and not self.bleu_sentences:
            raise ValueError("`best_by` bleu requires `bleu_sentences`. Received: bleu_sentences=0")
        if self.moving_average is not None and self.weights == "average":
            raise ValueError(
                "`weights` must not be 'average' with `moving_average`. "
                f"Received: weights={self.weights!r}, moving_average={self.moving_average}"
            )
