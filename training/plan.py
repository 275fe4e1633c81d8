"""The plan of a run: model, data and number of steps, determined before `fit`."""

import sys
import warnings
from typing import NamedTuple

import keras

from keras_transformer.checks import require
from keras_transformer.config import TransformerConfig
from keras_transformer.counting import counted
from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.storage.token_directory import TokenDirectory
from keras_transformer.text.tokenization import Tokenizer
from keras_transformer.training.backends.devices import Devices
from keras_transformer.training.config import TrainConfig
from keras_transformer.training.data.batches import Batches, make_batches
from keras_transformer.training.data.stream import make_stream
from keras_transformer.training.flops import StepCost, step_cost
from keras_transformer.training.given import Given, vocabulary_problems
from keras_transformer.training.learning_rate import describe, learning_rate
from keras_transformer.training.validation_bleu import ValidationBleu


class TrainingPlan(NamedTuple):
    """Everything that `fit` needs in addition to the options.

    Attributes:
        model_config: configuration of the model.
        tokenizers: `(shared,)` or `(source, target)`.
        batches: the training data.
        validation: the validation data.
        cost: average cost of a step.
        total: steps of the training.
        learning_rate: the learning rate schedule.
        bleu: computes BLEU in validations, or `None`.
        accumulation_steps: micro-batches per step, with gradient accumulation.
        tokens_sha256: hash of the token files.
    """

    model_config: TransformerConfig
    tokenizers: tuple[Tokenizer, ...]
    batches: Batches
    validation: Batches
    cost: StepCost
    total: int
    learning_rate: keras.optimizers.schedules.LearningRateSchedule
    bleu: ValidationBleu | None
    accumulation_steps: int
    tokens_sha256: str

    @property
    def data_fingerprint(self) -> dict:
        """The part of the record that does not come from the options: a resumed run must have the same data."""
        return {"tokens_sha256": self.tokens_sha256, "batches": [shape._asdict() for shape in self.batches.shapes]}


def make_plan(
    config: TrainConfig, tokens: TokenDirectory, directory: ModelDirectory, devices: Devices, given: Given
) -> TrainingPlan:
    """Makes the plan of a run. Checks that the options, the tokens and the given model and loss fit together."""
    record, recipe = tokens.record(), config.recipe
    tokenizers = tuple(map(Tokenizer, tokens.tokenizer_models()))
    model_config = _model_config(config, tokenizers, record["data"]["max_length"], given.model)
    given.check_loss_values(model_config.vocab_size)
    accumulation_steps = config.accumulation_steps(devices.count)
    multiple = devices.count * accumulation_steps
    if config.augmentation.is_used or tokens.train_splits != ["train"]:
        path = config.prepared or directory.tokens
        batches = make_stream(tokens, config, multiple, path, model_config.max_length)
    else:
        batches = make_batches(*tokens.sides("train"), config, multiple)
    is_fine_tuning = bool(config.init_from)
    total = recipe.total_steps(batches.steps, is_fine_tuning)
    sentences = recipe.bleu_sentences
    return TrainingPlan(
        model_config,
        tokenizers,
        batches,
        make_batches(*tokens.sides("validation"), config, multiple=devices.count),
        step_cost(batches, model_config, recipe, devices),
        total,
        learning_rate(recipe, model_config.d_model, total, is_fine_tuning),
        ValidationBleu.from_prepared(tokens.path, sentences) if sentences else None,
        accumulation_steps,
        record["sha256"],
    )


def _model_config(config, tokenizers, max_length, model) -> TransformerConfig:
    sizes = [tokenizer.vocab_size for tokenizer in tokenizers]
    if model is not None:
        model_config = model.config
        require(vocabulary_problems(model_config, sizes))
    elif config.init_from:
        directory = ModelDirectory(config.init_from)
        if tuple(tokenizer.model for tokenizer in tokenizers) != directory.tokenizer_models():
            raise ValueError(
                "The tokenizer of the prepared tokens must be that of `init_from`. "
                f"Received: init_from={config.init_from!r}"
            )
        model_config = TransformerConfig(**directory.record()["model_config"])
    else:
        separate = {"source_vocab_size": sizes[0]} if len(sizes) == 2 else {}
        model_config = config.model.transformer(vocab_size=sizes[-1], share_embeddings=not separate, **separate)
    if model_config.max_length is not None and model_config.max_length < max_length:
        raise ValueError(
            f"`model.max_length` must be at least `max_length`, the maximum length of a pair. "
            f"Received: model.max_length={model_config.max_length}, max_length={max_length}"
        )
    return model_config


def print_plan(plan: TrainingPlan, tokens: TokenDirectory, devices: Devices, recipe) -> None:
    """Prints the data, the devices and the schedule. Warns if the training ends before one of its stages."""

    def size(batches, shape):
        filled = batches.filled(shape).rows
        more = f" (padded to {counted(filled, 'row')})" if filled > shape.rows else ""
        return f"{counted(shape.rows, 'row')} of {shape.source} source and {shape.target} target tokens{more}"

    def sizes(batches):
        return ", ".join(size(batches, shape) for shape in batches.shapes)

    steps = plan.accumulation_steps
    accumulation = f"; gradients accumulated over {steps} micro-batches" if steps > 1 else ""
    is_short = recipe.max_steps is not None and plan.total < recipe.round_to_execution(recipe.max_steps)
    why = f", the end of `recipe.epochs`, before `recipe.max_steps`={recipe.max_steps:,}" if is_short else ""
    stages = list(enumerate(plan.batches.stage_starts, 1))
    for split in tokens.train_splits:
        name = split.partition(".")[2]
        print(f"training pairs{name and f' of {name}'}: {tokens.statistics(split)}", file=sys.stderr)
    print(
        f"validation pairs: {tokens.statistics('validation')}",
        f"training batches: {sizes(plan.batches)}; {plan.batches.padding:.0%} padding{accumulation}",
        f"validation batches: {sizes(plan.validation)}",
        f"average training step: {plan.cost}",
        f"devices: {devices.count} x {devices.kind}",
        f"learning rate: {describe(plan.learning_rate)}",
        f"training steps: {plan.total:,}{why}",
        *(f"stage {number} starts after about {counted(start, 'step')}" for number, start in stages[1:]),
        sep="\n",
        file=sys.stderr,
    )
    unreached = [str(number) for number, start in stages if start >= plan.total]
    if unreached:
        warnings.warn(
            f"The training ends after {counted(plan.total, 'step')}, before stage {', '.join(unreached)} of `stages` "
            "starts. Give the stages before it fewer `epochs`, or train for more steps",
            stacklevel=2,
        )
