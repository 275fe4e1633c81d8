"""The checkpoints of a run: each is one file that holds all that resuming needs."""

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

from keras_transformer.atomic_files import atomic_write

#: The file within a checkpoint that says where the training stood.
_STATE = "training_state.json"
_ERRORS_OF_READING = (
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
    """Where a training stands, besides weights and optimizer.

    Attributes:
        step: updates made, and so batches seen.
        seconds: spent in training, earlier processes' time counted.
        validations: one record each: `step`, `loss`, `training_loss` (the mean since the one before, or since a
            resumption), `bleu` (where it is decoded) and `time`.
        random: states of the model's seed generators, which Keras does not save.
        run: identifier of the run; `None` in those that were written before runs had one.
    """

    step: int = 0
    seconds: float = 0.0
    validations: list[dict[str, float]] = dataclasses.field(default_factory=list)
    random: list[list[int]] = dataclasses.field(default_factory=list)
    run: str | None = None

    def best_steps(self, by: str = "loss") -> list[int]:
        """The steps of the validations, the best first, and of equals the first.

        Args:
            by: `"loss"`, the least, or `"bleu"`, the greatest. What is no number is the worst.
        """
        return [v["step"] for v in sorted(self.validations, key=lambda v: _badness(v, by))]

    def best_step(self, by: str = "loss", until: float = math.inf) -> int | None:
        """The step of the best validation; `None` without validations.

        Args:
            by: see `best_steps`.
            until: the last step to look at.
        """
        return next((step for step in self.best_steps(by) if step <= until), None)


def _badness(validation, by):
    value = validation[by] if by == "loss" else -validation[by]
    return math.inf if math.isnan(value) else value


class CheckpointFiles:
    """The checkpoints of one run, `step-00001000.keras` for that of step 1,000.

    A checkpoint takes its place when it is whole. Those that are regular, at every so many steps and at
    validations, are kept as long as they are among the last; one that was written because the run was
    told to stop goes with the next. So what is kept does not depend on interruptions.

    Args:
        folder: where they lie.
        every: steps between checkpoints, besides those at validations.
        keep: how many regular ones are kept, at least 2: the newest may turn out broken.
        best_by: of which validations the best is kept besides; of `TrainingState.best_step`.
        run: identifier of the run, in the directory's record; every checkpoint holds it.
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
        """Steps of the checkpoints that lie there, in order."""
        found = (re.fullmatch(r"step-(\d+)\.keras", path.name) for path in self.folder.glob("step-*.keras"))
        return sorted(int(match[1]) for match in found if match)

    def write(self, model: keras.Model, state: TrainingState) -> None:
        """Writes a checkpoint, and deletes those that are needed no longer.

        Args:
            model: the compiled model.
            state: where the training stands; the random state is taken from the model.

        Raises:
            OSError: if it cannot be written; those before it are as they were.
        """
        state.random = [variable.numpy().tolist() for variable in seed_generators(model)]
        state.run = self.run
        with atomic_write(self.path(state.step)) as temporary:
            model.save(temporary)
            with zipfile.ZipFile(temporary, "a") as archive:
                archive.writestr(_STATE, json.dumps(dataclasses.asdict(state)))
        for step in set(self.steps()) - self._needed(state):
            self.path(step).unlink(missing_ok=True)

    def require_own(self) -> None:
        """Checks that no checkpoint is another run's; those that cannot be read are left to `read`.

        Raises:
            ValueError: naming the first that is.
        """
        for step in self.steps():
            if (run := self._run_of(step)) != self.run:
                raise ValueError(
                    f"{self.path(step)} is a checkpoint of another run; move it away. "
                    f"Received: run={run!r}, expected {self.run!r}"
                )

    def _run_of(self, step):
        """The identifier in a checkpoint; this run's if it cannot be read."""
        try:
            with zipfile.ZipFile(self.path(step)) as archive:
                return _state(archive).run
        except _ERRORS_OF_READING:
            return self.run

    def latest_valid(self) -> TrainingState:
        """The state of the newest checkpoint that is whole, the start's without any; says so when it passes one by.

        Raises:
            ValueError: if there are checkpoints and none is whole, or one is another run's.
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
            raise ValueError(f"{problems[0]}, and there is no other; --overwrite begins anew")
        return TrainingState()

    def valid(self, steps: Iterable[int]) -> Iterator[int]:
        """Those of the steps whose checkpoints are whole; says so of each that is passed by.

        Args:
            steps: of checkpoints that lie there.
        """
        for step in steps:
            try:
                self.read(step)
            except ValueError as error:
                print(f"{error}; going on without it", file=sys.stderr)
            else:
                yield step

    def read(self, step: int) -> TrainingState:
        """The state that a checkpoint holds; the whole file is checked.

        Raises:
            ValueError: if it is not whole.
        """
        try:
            with zipfile.ZipFile(self.path(step)) as archive:
                if (broken := archive.testzip()) is not None:
                    raise ValueError(f"{broken} is broken")
                return _state(archive)
        except _ERRORS_OF_READING as error:
            raise ValueError(f"Not a whole checkpoint: {self.path(step)} ({error})") from error

    @contextlib.contextmanager
    def naming_last(self) -> Iterator[None]:
        """Notes at the block's errors of the system, such as that of a full disk, what there is to go back to."""
        try:
            yield
        except OSError as error:
            error.add_note(self.describe_last())
            raise

    def describe_last(self) -> str:
        """Which checkpoint there is to go back to, in words."""
        for step in reversed(self.steps()):
            with contextlib.suppress(ValueError):
                self.read(step)
                return f"The last good checkpoint is {self.path(step)}"
        return "There is no good checkpoint yet"

    def _needed(self, state):
        validated = {validation["step"] for validation in state.validations}
        regular = [s for s in self.steps() if s <= state.step and (s % self.every == 0 or s in validated)]
        kept = {state.step, *regular[-self.keep :]}
        return kept | {state.best_step(self.best_by, until=step) for step in kept}


def _state(archive):
    return TrainingState(**json.loads(archive.read(_STATE)))


def seed_generators(model: keras.Model) -> list[Any]:
    """The variables that hold the states of the model's random draws, each a seed and a count."""
    return [variable for variable in model.variables if variable.name == "seed_generator_state"]


def restore_random(model: keras.Model, states: Iterable[Iterable[int]]) -> None:
    """Puts the model's random draws where they were.

    Args:
        model: the model.
        states: as many as it has seed generators, in their order.
    """
    for variable, state in zip(seed_generators(model), states, strict=True):
        variable.assign(state)
