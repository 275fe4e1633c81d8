"""What the caller of `train` gives: callbacks, and a model, a loss and metrics in place of those of the options."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_transformer.checks import require
from keras_transformer.models import Transformer
from keras_transformer.storage.token_directory import TokenDirectory
from keras_transformer.storage.tokenizers import tokenizer_problems
from keras_transformer.training.config import ModelConfig, TrainConfig
from keras_transformer.training.recipe_config import RecipeConfig
from keras_transformer.user_modules import import_user_module

#: Reductions of a Keras loss with which the sample weights of a batch give the mean over its tokens.
_REDUCTIONS = ("sum_over_batch_size", "mean")


class Given(NamedTuple):
    """The objects that the caller of `train` gives.

    Attributes:
        model: a `Transformer`, or `None`.
        loss: a loss, as in `keras.Model.compile`, or `None`.
        metrics: metrics, as in `keras.Model.compile`.
        callbacks: Keras callbacks.
    """

    model: Transformer | None = None
    loss: Any = None
    metrics: Sequence[Any] = ()
    callbacks: Sequence[keras.callbacks.Callback] = ()

    def check(self, config: TrainConfig) -> None:
        """Checks the objects, before any work starts.

        Raises:
            ValueError: if one cannot be used. The message lists all problems.
        """
        require(
            _problems_of_callbacks("callbacks", self.callbacks),
            self._problems_of_loss(config.recipe),
            self._problems_of_metrics(),
            [] if self.model is None else self._problems_of_model(config),
        )

    def _problems_of_metrics(self) -> Iterator[str]:
        if not isinstance(self.metrics, (list, tuple)):
            yield f"`metrics` must be a list. Received: metrics={self.metrics!r}"
            return
        for metric in self.metrics:
            yield from _problems_of_saving("metrics", metric, _known_metric)

    def _problems_of_loss(self, recipe) -> Iterator[str]:
        if self.loss is None:
            return
        default = RecipeConfig()
        for name in ("label_smoothing", "r_drop"):
            if (value := getattr(recipe, name)) != getattr(default, name):
                yield f"`recipe.{name}` must not be given with `loss`. Received: {name}={value}"
        problems = [*_problems_of_saving("loss", self.loss, lambda loss: keras.losses.get(copied(loss)))]
        yield from problems
        if not problems:
            reduction = getattr(keras.losses.get(self.loss), "reduction", _REDUCTIONS[0])
            if reduction not in _REDUCTIONS:
                allowed = ", ".join(_REDUCTIONS)
                yield f"The reduction of `loss` must be one of {allowed}. Received: reduction={reduction!r}"

    def _problems_of_model(self, config) -> Iterator[str]:
        if not isinstance(self.model, Transformer):
            yield f"`model` must be a Transformer. Received: model={self.model!r}"
            return
        if config.init_from or config.model != ModelConfig():
            given = f"init_from={config.init_from!r}" if config.init_from else f"model={config.model}"
            yield f"`init_from` and options of `model` must not be given with a model. Received: {given}"
        if (policy := self.model.dtype_policy.name) != config.recipe.precision:
            precision = config.recipe.precision
            yield f"`recipe.precision` must be the dtype policy of `model`, {policy}. Received: precision={precision}"
        if (sizes := _known_vocabulary(config)) is None:
            yield "`tokenizer.vocab_size` must be given with `model`. Received: vocab_size=None"
        else:
            yield from vocabulary_problems(self.model, sizes)
        yield from _problems_of_saving("model", self.model, rebuilt)

    def check_loss_values(self, vocab_size: int) -> None:
        """Checks that the loss has one value per token.

        Raises:
            ValueError: if it does not.
        """
        if self.loss is not None:
            loss = keras.losses.get(self.loss)
            values = getattr(loss, "call", loss)(ops.zeros((2, 3)), ops.zeros((2, 3, vocab_size)))
            if (shape := tuple(values.shape)) != (2, 3):
                raise ValueError(
                    "`loss` must have one value per token: for labels (2, 3) and logits "
                    f"(2, 3, {vocab_size}), values of shape (2, 3). Received: values of shape {shape}"
                )

    def record(self) -> dict:
        """The entries of the record. Callbacks are not recorded."""
        entries = {}
        if self.model is not None:
            name = keras.saving.get_registered_name(type(self.model))
            entries["model"] = {"class_name": name, **self.model.get_config()}
        if self.loss is not None:
            entries["loss"] = keras.saving.serialize_keras_object(self.loss)
        if self.metrics:
            entries["metrics"] = [keras.saving.serialize_keras_object(metric) for metric in self.metrics]
        return json.loads(json.dumps(entries))  # YAML has no tuples.


def vocabulary_problems(model, vocab_sizes: Sequence[int]) -> Iterator[str]:
    """The problems of a given model with its tokenizers.

    Args:
        model: the model, or its `TransformerConfig`.
        vocab_sizes: sizes of the tokenizers, `(shared,)` or `(source, target)`.
    """
    yield from tokenizer_problems(model, vocab_sizes)
    if len(vocab_sizes) > 1 and getattr(model, "config", model).share_embeddings:
        yield "`share_embeddings` of `model` must be False with two tokenizers. Received: share_embeddings=True"


def load_callbacks(name: str | None) -> list[keras.callbacks.Callback]:
    """Makes the callbacks of the option `recipe.callbacks`.

    Args:
        name: `module:function`, of a function without arguments that returns a list of callbacks; or `None`.

    Raises:
        ValueError: if the module cannot be imported, or has no such function, or it returns something else.
    """
    if name is None:
        return []
    module, _, function = name.partition(":")
    make = getattr(import_user_module(module, "recipe.callbacks"), function, None)
    if not callable(make):
        raise ValueError(f"`recipe.callbacks` must name a function of {module}. Received: callbacks={name!r}")
    callbacks = make()
    require(_problems_of_callbacks(name, callbacks))
    return list(callbacks)


def rebuilt(model: keras.Model, **changes) -> keras.Model:
    """A model with the same configuration, except for changes, and new weights."""
    return type(model).from_config({**model.get_config(), **changes})


def copied(value):
    """A copy of a loss or a metric, with variables of its own."""
    return keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(value))


def _known_vocabulary(config) -> Sequence[int] | None:
    """The sizes of the tokenizers that the run will have; `None` if the text determines them."""
    if config.prepared:
        return TokenDirectory(config.prepared).record()["vocab_sizes"]
    tokenizer = config.tokenizer
    return tokenizer.vocab_size and [tokenizer.vocab_size] * (1 if tokenizer.shared else 2)


def _problems_of_callbacks(name, callbacks) -> Iterator[str]:
    is_list = isinstance(callbacks, (list, tuple))
    if not is_list or not all(isinstance(callback, keras.callbacks.Callback) for callback in callbacks):
        yield f"`{name}` must be a list of Keras callbacks. Received: {callbacks!r}"


def _known_metric(metric):
    # Keras resolves these names by the shapes of a batch.
    return metric if metric in ("accuracy", "acc", "crossentropy", "ce") else keras.metrics.get(copied(metric))


def _problems_of_saving(name, value, copy: Callable) -> Iterator[str]:
    """The problem of an object that a checkpoint could not hold."""
    try:
        copy(value)
    except Exception as error:  # A class of the user may raise anything.
        yield (
            f"`{name}` must be an object that Keras can save and load: its classes and functions need "
            f"`keras.saving.register_keras_serializable`. Received: {value!r} ({type(error).__name__}: {error})"
        )
