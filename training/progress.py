"""The progress of a training."""

import collections
import math
import statistics
import sys
import time

import keras
from tqdm import tqdm

from keras_transformer.storage.progress import progress_bar

#: Seconds between the values that the progress bar shows.
_SHOW_EVERY = 1.0


class Progress(keras.callbacks.Callback):
    """Shows epoch, loss, speed and remaining time on standard error: a bar on a terminal, otherwise lines.

    A step is measured from the end of the one before, because `fit` only dispatches it.

    Args:
        total: steps of the training.
        start: steps done before this process.
        steps_per_epoch: batches in one pass over the data.
        tokens_per_step: average number of target tokens in a batch, without padding.
        limit: seconds left of `max_time`.
        steps_per_execution: steps between two calls of `on_train_batch_end`.
    """

    def __init__(
        self,
        total: int,
        start: int,
        steps_per_epoch: int,
        tokens_per_step: float,
        limit: float,
        steps_per_execution: int = 1,
    ):
        super().__init__()
        layout = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]"
        self.bar = progress_bar(total=total, initial=start, mininterval=_SHOW_EVERY, bar_format=layout)
        self.step = start
        self.steps_per_epoch = steps_per_epoch
        self.tokens_per_step = tokens_per_step
        self.limit = limit
        self.steps_per_execution = steps_per_execution
        self.shown = -math.inf
        #: Durations of recent training steps. The median ignores steps that write a checkpoint.
        self.seconds = collections.deque(maxlen=50)
        #: When the latest step ended, or the validation after it.
        self.ended = None

    @property
    def epoch(self) -> str:
        """The current epoch and the number of epochs."""
        epoch, epochs = (-(-step // self.steps_per_epoch) for step in (self.step, self.bar.total))
        return f"epoch {epoch}/{epochs}"

    @property
    def rate(self) -> float | None:
        """Recent steps per second; `None` before the second batch, because the first one compiles the training step."""
        return self.steps_per_execution / statistics.median(self.seconds) if self.seconds else None

    @property
    def left(self) -> str:
        """Time until the last step or the time limit, without validations."""
        if self.rate is None:
            return "?"
        until_limit = max(self.limit - self.bar.format_dict["elapsed"], 0.0)
        return tqdm.format_interval(min((self.bar.total - self.step) / self.rate, until_limit))

    def on_epoch_begin(self, epoch, logs=None):
        if self.ended is not None:
            self.ended = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        now = time.perf_counter()
        if self.ended is not None:  # The first step also compiles.
            self.seconds.append(now - self.ended)
        self.ended = now
        self.step += self.steps_per_execution
        self.bar.set_description(self.epoch, refresh=False)
        if now - self.shown >= _SHOW_EVERY or self.step >= self.bar.total:
            self._show(logs)
        self.bar.update(self.steps_per_execution)

    def _show(self, logs):
        self.shown = time.perf_counter()
        tokens = f"{self.rate * self.tokens_per_step:,.0f}" if self.rate else "?"
        self.bar.set_postfix({"left": self.left, "loss": f"{logs['loss']:.3f}", "tokens/s": tokens}, refresh=False)

    def on_epoch_end(self, epoch, logs=None):
        self._show(logs)
        bleu = f", BLEU {logs['val_bleu']:.2f}" if "val_bleu" in logs else ""
        self.bar.write(
            f"{self.epoch}, step {self.step}: loss {logs['loss']:.4f}, validation loss {logs['val_loss']:.4f}, "
            f"perplexity {logs['val_perplexity']:.3f}, token accuracy {logs['val_token_accuracy']:.4f}{bleu}; "
            f"{self.left} left",
            file=sys.stderr,
        )
