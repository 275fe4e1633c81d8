"""Programs of models without a tokenizer, from and to token ids: a SavedModel and an ONNX file."""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import tensorflow as tf

from keras_transformer.config import BOS_ID, EOS_ID, PAD_ID
from keras_transformer.decoding import BeamSearch, GreedySearch
from keras_transformer.export.onnx.export import convert, copy_with_dtype, search_program
from keras_transformer.export.onnx.loops import sink_constants
from keras_transformer.export.verify.equality import compare, compare_logits, random_source_batches
from keras_transformer.export.verify.keras_search import KerasSearch
from keras_transformer.models import LanguageModel, MaskedLanguageModel, SentenceClassifier
from keras_transformer.text.lines import max_tokens


@dataclasses.dataclass(frozen=True)
class IdModel:
    """What `export_model` exports.

    Attributes:
        model: a `SentenceClassifier`, a `MaskedLanguageModel` or a `LanguageModel`, in float32.
        strategy: the search of a `LanguageModel`; `None` for other models.
    """

    model: Any
    strategy: BeamSearch | GreedySearch | None

    @classmethod
    def of(cls, model, strategy=None) -> "IdModel":
        """Checks the arguments of `export_model`."""
        if not isinstance(model, (SentenceClassifier, MaskedLanguageModel, LanguageModel)):
            raise ValueError(
                "`model` must be a SentenceClassifier, a MaskedLanguageModel or a LanguageModel. "
                f"Received: {type(model).__name__}"
            )
        ids = {name: getattr(model.config, name) for name in ("pad_id", "bos_id", "eos_id")}
        if [*ids.values()] != [PAD_ID, BOS_ID, EOS_ID]:
            received = ", ".join(f"{name}={i}" for name, i in ids.items())
            raise ValueError(f"The ids of padding, start and end must be 0, 2 and 3. Received: {received}")
        if isinstance(model, LanguageModel):
            strategy = GreedySearch() if strategy is None else strategy
            if not isinstance(strategy, (BeamSearch, GreedySearch)):
                raise ValueError(f"`strategy` must be a BeamSearch or a GreedySearch. Received: strategy={strategy}")
        elif strategy is not None:
            raise ValueError(f"`strategy` requires a LanguageModel. Received: strategy={strategy}")
        return cls(model if model.dtype_policy.name == "float32" else copy_with_dtype(model, "float32"), strategy)

    @property
    def search(self) -> dict:
        """The search, for the records of the export."""
        return {} if self.strategy is None else {"search": self.strategy.options}

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of `model.onnx`."""
        config = self.model.get_config()
        described = {name: config[name] for name in ("config", "num_classes", "pooling") if name in config}
        return {name: json.dumps(value) for name, value in {**described, **self.search}.items()}

    @property
    def program(self) -> tuple:
        """The arguments of `convert`: a function, its signature, and the shapes of inputs and outputs."""
        if self.strategy is not None:
            return search_program(SimpleNamespace(search=self.model.search, strategy=self.strategy), "prompt")
        name, axes, logits_axes, run = self._logits
        signature = [tf.TensorSpec([None, None], tf.int32, name=name)]
        return (lambda ids: (run(ids),)), signature, {name: axes}, {"logits": logits_axes}

    @property
    def _logits(self) -> tuple:
        """For a model without a search: name of the input, its axes, those of the logits, and the function."""
        model = self.model
        if isinstance(model, SentenceClassifier):
            return "source", ("batch", "source_length"), ("batch", model.num_classes), model.classify
        shape = ("batch", "length")
        return "tokens", shape, (*shape, model.config.source_vocabulary), lambda ids: model.logits(model.encode(ids))

    def verify(self, run):
        """Compares a function of ids, which returns the outputs of the exported program, with the model."""
        longest = min(30, max_tokens(self.model.config.max_length) - 1)
        if self.strategy is None:
            batches = random_source_batches(self.model.config.source_vocabulary, longest)
            return compare_logits(self.model, lambda ids: run(ids)[0], batches)
        batches = random_source_batches(self.model.config.vocab_size, longest)
        prompts = [np.where(batch == EOS_ID, PAD_ID, batch) for batch in batches]
        program = SimpleNamespace(search=lambda prompt: run(prompt)[:2])
        return compare(_TextSearch(self.model, self.strategy), program, prompts)


class _TextSearch(KerasSearch):
    """The search of a `LanguageModel`. The source is the prompt, with which the tokens begin."""

    def search(self, source, n_best=None):
        return self.model.generate(source, self.strategy)[:2]

    def _token_log_probs(self, source, tokens, candidates):
        return self.model.token_log_probs(tokens)

    def _teacher_forced(self, source, target):
        return self.model(target, training=False)


def write_saved_model(exported: IdModel, path: Path):
    """Writes a SavedModel, and returns a function of ids that runs it, for `IdModel.verify`."""
    function, signature, (name,), outputs = exported.program
    module = tf.Module()
    # Tracked, so that the SavedModel contains them. The type stubs of TensorFlow reject attributes of modules.
    module.weights = [variable.value for variable in exported.model.variables]  # pyright: ignore[reportAttributeAccessIssue]
    named = tf.function(lambda *args: dict(zip(outputs, function(*args), strict=True)), input_signature=signature)
    tf.saved_model.save(module, str(path), signatures=named)
    serve = tf.saved_model.load(str(path)).signatures["serving_default"]

    def run(ids):
        found = serve(**{name: tf.constant(ids)})
        return [found[output].numpy() for output in outputs]

    return run


def write_onnx(exported: IdModel, path: Path):
    """Writes an ONNX file, and returns a function of ids that runs it, for `IdModel.verify`."""
    import onnxruntime

    function, signature, inputs, outputs = exported.program
    proto = convert(function, signature, inputs, outputs, exported.model.weights)
    sink_constants(proto.graph)
    onnx.helper.set_model_props(proto, exported.metadata)
    onnx.save(proto, path)
    onnx.checker.check_model(path, full_check=True)
    session, (name,) = onnxruntime.InferenceSession(path), inputs
    return lambda ids: session.run([*outputs], {name: ids})
