"""The plan of a run: model, data and number of steps, determined before `fit`."""

from typing import NamedTuple

import keras

from keras_transformer.config import TransformerConfig
from keras_transformer.text.tokenization import Tokenizer
from keras_transformer.training.data.batches import Batches
from keras_transformer.training.flops import StepCost
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
