"""What a run trains, on what and for how long: decided before `fit`."""

from typing import NamedTuple

import keras

from keras_transformer.config import TransformerConfig
from keras_transformer.text.tokenization import Tokenizer
from keras_transformer.training.data.batches import Batches
from keras_transformer.training.flops import StepCost
from keras_transformer.training.validation_bleu import ValidationBleu


class TrainingPlan(NamedTuple):
    """Everything that `fit` needs besides the options.

    Attributes:
        model_config: configuration of the model.
        tokenizers: the shared one, or those of the source and of the target.
        batches: the training data.
        validation: the validation data.
        work: what an average step costs.
        total: steps of the whole training.
        learning_rate: schedule of the learning rate.
        bleu: computes BLEU in validations, or `None`.
        accumulation_steps: passes of a device over its share of a batch.
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
