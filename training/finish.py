"""The end of a run: writes the finished model from the checkpoints."""

import dataclasses
import importlib.util
import itertools
import sys

from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.storage.token_directory import TokenDirectory
from keras_transformer.training.averaging import write_model
from keras_transformer.training.checkpoints import CheckpointFiles, TrainingState
from keras_transformer.training.curve import write_curve
from keras_transformer.training.plan import TrainingPlan


def finish(config, directory: ModelDirectory, plan: TrainingPlan, state: TrainingState) -> None:
    """Writes the finished model, marks the run as finished, and plots the training curve if matplotlib is installed.

    The tokens in the model directory are deleted. Tokens of `prepared` are kept.
    """
    recipe, files = config.recipe, CheckpointFiles(directory.checkpoints)
    kept = files.steps()
    if recipe.weights == "average":
        steps = list(files.valid(kept[-recipe.keep_checkpoints :]))
    else:
        ranked = state.best_steps(recipe.best_by) if recipe.weights == "best" else []
        steps = list(itertools.islice(files.valid(step for step in ranked if step in kept), 1))
    steps = steps or [state.step]
    tokenizers, checkpoints = tuple(one.model for one in plan.tokenizers), [files.path(step) for step in steps]
    write_model(directory, tokenizers, checkpoints, moving=recipe.moving_average is not None)
    record = {
        **directory.record(),
        **config.record(),
        "model_config": dataclasses.asdict(plan.model_config),
        "tokenizers_sha256": [plan.tokenizers[0].sha256, plan.tokenizers[-1].sha256],
        "weights_of_steps": steps,
    }
    directory.write_record(record, finished=True)
    print(f"Wrote the model to {directory.path}", file=sys.stderr)
    if importlib.util.find_spec("matplotlib"):
        write_curve(state.validations, directory.curve_file)
        print(f"Wrote the training curve to {directory.curve_file}", file=sys.stderr)
    else:
        print(
            "No training curve: matplotlib is not installed (pip install 'keras-transformer-kit[plot]')",
            file=sys.stderr,
        )
    if not config.prepared:
        TokenDirectory(directory.tokens).delete()
