"""Checkpoints of a run. Each is one `.keras` file with everything needed to resume."""

import contextlib
import dataclasses
import json
import math
import re
import sys
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import keras

from keras_transformer.storage.atomic_files import atomic_write
from keras_transformer.storage.exhaustion import is_out_of_memory

#: File inside a checkpoint that holds the training state.
_STATE = "training_state.json"
_READ_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    OSError,
    RuntimeError,
    LookupError,
    TypeError,
    ValueError,
    EOFError,
)


@dataclasses.dataclass
class TrainingState:
    """State of a training in addition to weights and optimizer.

    Attributes:
        step: number of updates, which is also the number of batches consumed.
        seconds: training time, summed over all processes of the run.
        validations: one record per validation: `step`, `loss`, `training_loss` (mean since the previous validation or
            the resumption), `bleu` (if computed) and `time`.
        random: states of the model's seed generators, which Keras does not save.
        position: what `Batches.resume` needs to continue at this step.
        run: identifier of the run; `None` in checkpoints written by versions without identifiers.
    """

    step: int = 0
    seconds: float = 0.0
    validations: list[dict[str, float]] = dataclasses.field(default_factory=list)
    random: list[list[int]] = dataclasses.field(default_factory=list)
    position: list[int] = dataclasses.field(default_factory=list)
    run: str | None = None

    def best_steps(self, by: str = "loss") -> list[int]:
        """The steps of the validations, best first, NaN last. Equal validations keep their order."""
        return [v["step"] for v in sorted(self.validations, key=lambda v: _sort_key(v, by))]

    def best_step(self, by: str = "loss", until: float = math.inf) -> int | None:
        """The step of the best validation up to a step; `None` if there was no validation."""
        return next((step for step in self.best_steps(by) if step <= until), None)


def _sort_key(validation, by):
    value = validation[by] if by == "loss" else -validation[by]
    return math.inf if math.isnan(value) else value


class CheckpointFiles:
    """The checkpoints of one run; `step-00001000.keras` is the checkpoint of step 1,000.

    Checkpoints are written atomically. Regular checkpoints, at multiples of `every` and at validations, are kept
    while they are among the last `keep`. A checkpoint written because of a signal is deleted with the next write, so
    interruptions do not change which checkpoints are kept.

    Args:
        folder: folder of the checkpoints.
        every: steps between checkpoints. Validations write additional ones.
        keep: number of regular checkpoints to keep, at least 2 in case the newest file is damaged.
        best_by: criterion of the best checkpoint, which is also kept; see `TrainingState.best_step`.
        run: identifier of the run, from the directory's record. Every checkpoint contains it.
    """

    def __init__(self, folder: Path, every: int = 1, keep: int = 2, best_by: str = "loss", run: str | None = None):
        self.folder = folder
        self.run = run
        self.every = every
        self.keep = max(keep, 2)
        self.best_by = best_by

    def path(self, step: int) -> Path:
        """The file of a step's checkpoint."""
        return self.folder / f"step-{step:08d}.keras"

    def steps(self) -> list[int]:
        """Steps of the existing checkpoints, in ascending order."""
        found = (re.fullmatch(r"step-(\d+)\.keras", path.name) for path in self.folder.glob("step-*.keras"))
        return sorted(int(match[1]) for match in found if match)

    def write(self, model: keras.Model, state: TrainingState) -> None:
        """Writes a checkpoint, and deletes the checkpoints that are no longer kept."""
        state.random = [variable.numpy().tolist() for variable in seed_generators(model)]
        state.run = self.run
        with atomic_write(self.path(state.step)) as temporary:
            model.save(temporary)
            with zipfile.ZipFile(temporary, "a") as archive:
                archive.writestr(_STATE, json.dumps(dataclasses.asdict(state)))
        for step in set(self.steps()) - self._steps_to_keep(state):
            self.path(step).unlink(missing_ok=True)

    def require_own(self) -> None:
        """Checks that all checkpoints belong to this run. Unreadable files are skipped; `read` reports them."""
        for step in self.steps():
            if (run := self._run_of(step)) != self.run:
                raise ValueError(
                    f"{self.path(step)} belongs to another run; move it out of {self.folder}. "
                    f"Received: run={run!r}, expected {self.run!r}"
                )

    def _run_of(self, step):
        """The run identifier in a checkpoint; this run's identifier if the file is unreadable."""
        try:
            with zipfile.ZipFile(self.path(step)) as archive:
                return _state(archive).run
        except _READ_ERRORS:
            return self.run

    def latest_valid(self) -> TrainingState:
        """The state of the newest valid checkpoint; the initial state without checkpoints. Prints skipped files.

        Raises:
            ValueError: if no checkpoint is valid, or one belongs to another run.
        """
        self.require_own()
        problems = []
        for step in reversed(self.steps()):
            try:
                state = self.read(step)
            except ValueError as error:
                problems.append(error)
                continue
            for problem in problems:
                print(f"{problem}; resuming from the checkpoint of step {step}", file=sys.stderr)
            return state
        if problems:
            raise ValueError(f"{problems[0]}. No valid checkpoint found; use --overwrite to start over")
        return TrainingState()

    def valid(self, steps: Iterable[int]) -> Iterator[int]:
        """Yields the steps whose checkpoints are valid, and prints the others."""
        for step in steps:
            try:
                self.read(step)
            except ValueError as error:
                print(f"{error}; skipped", file=sys.stderr)
            else:
                yield step

    def read(self, step: int) -> TrainingState:
        """The state in a checkpoint, which must be valid. Verifies the checksums of the file."""
        try:
            with zipfile.ZipFile(self.path(step)) as archive:
                if (broken := archive.testzip()) is not None:
                    raise ValueError(f"{broken} is broken")
                return _state(archive)
        except _READ_ERRORS as error:
            raise ValueError(f"Invalid checkpoint: {self.path(step)} ({error})") from error

    @contextlib.contextmanager
    def noting_last(self) -> Iterator[None]:
        """Context manager that adds the last valid checkpoint as a note to an error of a full disk or of memory."""
        try:
            yield
        except Exception as error:
            if isinstance(error, OSError) or is_out_of_memory(error):
                error.add_note(self.describe_last())
            raise

    def describe_last(self) -> str:
        """A sentence that names the last valid checkpoint."""
        for step in reversed(self.steps()):
            with contextlib.suppress(ValueError):
                self.read(step)
                return f"The last valid checkpoint is {self.path(step)}"
        return "There is no valid checkpoint yet"

    def _steps_to_keep(self, state):
        validated = {validation["step"] for validation in state.validations}
        regular = [s for s in self.steps() if s <= state.step and (s % self.every == 0 or s in validated)]
        kept = {state.step, *regular[-self.keep :]}
        return kept | {state.best_step(self.best_by, until=step) for step in kept}


def _state(archive):
    return TrainingState(**json.loads(archive.read(_STATE)))


def seed_generators(model: keras.Model) -> list[Any]:
    """The variables of the model's seed generators. Each holds a seed and a counter."""
    return [variable for variable in model.variables if variable.name == "seed_generator_state"]


def restore_random(model: keras.Model, states: Iterable[Iterable[int]]) -> None:
    """Restores the states of the model's seed generators, in the order of `seed_generators`."""
    for variable, state in zip(seed_generators(model), states, strict=True):
        variable.assign(state)
