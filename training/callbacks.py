"""What happens during `fit` besides the steps: progress, checkpoints, validation history, stopping."""

import json
import math
import time
import zipfile

import keras
from tqdm import tqdm

from keras_transformer.model_directory import ModelDirectory, replacing

#: The file within a checkpoint that says where the training stood.
_STATE = "training_state.json"


class Progress(keras.callbacks.Callback):
    """A progress bar on standard error with loss and rate.

    Args:
        total: steps of the whole training.
        start: steps done before.
        tokens_per_step: real target tokens of a batch on average.
    """

    def __init__(self, total: int, start: int, tokens_per_step: float):
        super().__init__()
        self.bar = tqdm(total=total, initial=start, unit="step", dynamic_ncols=True, mininterval=1.0)
        self.tokens_per_step = tokens_per_step
        self.validation = {}

    def on_train_batch_end(self, batch, logs=None):
        self.bar.update()
        rate = self.bar.format_dict["rate"] or (self.bar.n - self.bar.initial) / self.bar.format_dict["elapsed"]
        shown = {"loss": f"{logs['loss']:.3f}", "tokens/s": f"{rate * self.tokens_per_step:,.0f}"}
        self.bar.set_postfix(shown | self.validation, refresh=False)

    def on_epoch_end(self, epoch, logs=None):
        self.validation = {"val_loss": f"{logs['val_loss']:.3f}"}
        self.bar.write(
            f"step {self.bar.n}: loss {logs['loss']:.4f}, validation loss {logs['val_loss']:.4f}, "
            f"perplexity {logs['val_perplexity']:.3f}, token accuracy {logs['val_token_accuracy']:.4f}",
            file=self.bar.fp,
        )


class Checkpoints(keras.callbacks.Callback):
    """Keeps the last whole state and the best weights, and the record of validations that decides them.

    The number of batches seen lies in the checkpoint file itself (the optimizer's count leaves out
    updates that overflowed); validations after it are forgotten on resuming, so no second file has to
    agree with it.

    Args:
        directory: the model directory.
        every: steps between checkpoints, besides one at each validation.
        patience: validations without a better loss before stopping; `None` for never.
    """

    def __init__(self, directory: ModelDirectory, every: int, patience: int | None):
        super().__init__()
        self.last = directory.checkpoints / "last.keras"
        self.best = directory.checkpoints / "best.weights.h5"
        self.history_file = directory.checkpoints / "validations.json"
        self.every = every
        self.patience = patience
        self.history: list[dict[str, float]] = []
        self.step = 0
        self.saved_step = 0

    def resume(self) -> int:
        """Takes up the record where the checkpoint stands.

        Returns:
            Batches seen; 0 without a checkpoint.

        Raises:
            ValueError: if the checkpoint is not whole.
        """
        if self.last.exists():
            try:
                with zipfile.ZipFile(self.last) as archive:
                    self.step = self.saved_step = json.loads(archive.read(_STATE))["step"]
            except (zipfile.BadZipFile, KeyError, ValueError) as error:
                raise ValueError(f"Not a whole checkpoint: {self.last} ({error})") from error
        if self.history_file.exists():
            validations = json.loads(self.history_file.read_text())
            self.history = [entry for entry in validations if entry["step"] <= self.step]
        return self.step

    @property
    def should_stop(self) -> bool:
        """Whether patience has run out."""
        losses = self._losses()
        if self.patience is None or not losses:
            return False
        return len(losses) - losses.index(min(losses)) > self.patience

    def on_train_batch_end(self, batch, logs=None):
        self.step += 1
        if self.step % self.every == 0:
            self._save_last()

    def on_epoch_end(self, epoch, logs=None):
        self.history.append({"step": self.step, "loss": float(logs["val_loss"]), "time": time.time()})
        *before, loss = self._losses()
        if not before or loss < min(before):
            with replacing(self.best) as temporary:
                self.model.save_weights(temporary)
        with replacing(self.history_file) as temporary:
            temporary.write_text(json.dumps(self.history, indent=1))
        self._save_last()
        self.model.stop_training = self.model.stop_training or self.should_stop

    def _losses(self):
        """Of all validations; what is no number counts as infinite."""
        return [math.inf if math.isnan(entry["loss"]) else entry["loss"] for entry in self.history]

    def _save_last(self):
        if self.step == self.saved_step:
            return
        with replacing(self.last) as temporary:
            self.model.save(temporary)
            with zipfile.ZipFile(temporary, "a") as archive:
                archive.writestr(_STATE, json.dumps({"step": self.step}))
        self.saved_step = self.step
