"""Export of models without a tokenizer, from and to token ids: a verified SavedModel and ONNX file."""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import tensorflow as tf

from keras_transformer.config import BOS_ID, EOS_ID, PAD_ID
from keras_transformer.decoding import BeamSearch, GreedySearch
from keras_transformer.export.backend import require_tensorflow
from keras_transformer.export.onnx.export import convert, copy_with_dtype, search_program
from keras_transformer.export.onnx.loops import sink_constants
from keras_transformer.export.verify.equality import (
    Agreement,
    VerificationError,
    compare,
    compare_classes,
    random_source_batches,
)
from keras_transformer.models import LanguageModel, SentenceClassifier
from keras_transformer.storage.atomic_files import atomic_write
from keras_transformer.text.lines import max_tokens


def export_model(model, path: str | Path, strategy=None) -> dict[str, Agreement]:
    """Writes `PATH/saved_model`, `PATH/onnx/model.onnx` and `PATH/verification.json`.

    The programs of a `SentenceClassifier` map `source` int32 `[batch, source_length]` to `logits` float32
    `[batch, num_classes]`. Those of a `LanguageModel` map `prompt` int32 `[batch, prompt_length]` to `tokens` int32
    `[batch, n_best, length]` and `scores` float32 `[batch, n_best]`, as `generate` does. Every axis must have at least
    one element. The SavedModel's signature is `serving_default`. Models of other dtypes are exported in float32. The
    metadata of `model.onnx` contain the model's configuration and the search.

    Args:
        model: `SentenceClassifier` or `LanguageModel` with this package's special ids.
        path: the folder to create.
        strategy: search of a `LanguageModel`: `BeamSearch` or `GreedySearch`. Default: `GreedySearch()`.

    Returns:
        The `Agreement` of the programs `"saved_model"` and `"onnx"` with the model, as in verification.json.

    Raises:
        ValueError: if the folder exists, the model or the strategy is not supported, or the Keras backend is not
            TensorFlow.
        VerificationError: if a program does not agree with the model; see `export`. No files are left behind.

    Example:

        export_model(classifier, "runs/classifier/export")
    """
    require_tensorflow()
    path = Path(path)
    if path.exists():
        raise ValueError(f"`path` must not exist. Received: path={path}")
    make, verify = _kind(model)
    ids = (model.config.pad_id, model.config.bos_id, model.config.eos_id)
    if ids != (PAD_ID, BOS_ID, EOS_ID):
        raise ValueError(
            "The ids of padding, start and end must be 0, 2 and 3. Received: pad_id={}, bos_id={}, eos_id={}".format(
                *ids
            )
        )
    strategy = _checked_strategy(model, strategy)
    if model.dtype_policy.name != "float32":
        model = copy_with_dtype(model, "float32")
    program = make(model, strategy)
    search = {} if strategy is None else {"search": dataclasses.asdict(strategy)}
    metadata = {name: json.dumps(value) for name, value in {**_described(model), **search}.items()}
    with atomic_write(path) as temporary:
        (temporary / "onnx").mkdir(parents=True)
        runs = {
            "saved_model": _saved_model(model, *program, temporary / "saved_model"),
            "onnx": _onnx(program, model.weights, metadata, temporary / "onnx" / "model.onnx"),
        }
        found = {name: verify(model, run, strategy) for name, run in runs.items()}
        for name, agreement in found.items():
            if not agreement.passed:
                raise VerificationError(f"The {name} export does not agree with the Keras model: {agreement}")
        entries = {name: {**search, **dataclasses.asdict(agreement)} for name, agreement in found.items()}
        (temporary / "verification.json").write_text(json.dumps(entries, indent=2) + "\n")
    return found


def _kind(model):
    """The functions that build and verify a model's program."""
    if isinstance(model, SentenceClassifier):
        return _classification, _verify_classes
    if isinstance(model, LanguageModel):
        return _continuation, _verify_continuations
    raise ValueError(f"`model` must be a SentenceClassifier or a LanguageModel. Received: {type(model).__name__}")


def _checked_strategy(model, strategy):
    if isinstance(model, SentenceClassifier):
        if strategy is not None:
            raise ValueError(f"`strategy` requires a LanguageModel. Received: strategy={strategy}")
        return None
    strategy = GreedySearch() if strategy is None else strategy
    if not isinstance(strategy, (BeamSearch, GreedySearch)):
        raise ValueError(f"`strategy` must be a BeamSearch or a GreedySearch. Received: strategy={strategy}")
    return strategy


def _described(model):
    """The model's configuration, for the metadata."""
    config = model.get_config()
    return {name: config[name] for name in ("config", "num_classes", "pooling") if name in config}


def _classification(model, strategy):
    def classify(source):
        return (model.classify(source),)

    signature = [tf.TensorSpec([None, None], tf.int32, name="source")]
    return classify, signature, {"source": ("batch", "source_length")}, {"logits": ("batch", model.num_classes)}


def _continuation(model, strategy):
    return search_program(model, strategy, "prompt")


def _verify_classes(model, run, strategy):
    return compare_classes(model, lambda source: run(source)[0], _batches(model, model.config.source_vocabulary))


def _verify_continuations(model, run, strategy):
    prompts = [np.where(batch == EOS_ID, PAD_ID, batch) for batch in _batches(model, model.config.vocab_size)]
    scored = SimpleNamespace(
        shortlist=None,
        generate=model.generate,
        token_log_probs=lambda prompt, tokens, candidates: model.token_log_probs(tokens),
    )
    return compare(scored, strategy, SimpleNamespace(search=lambda prompt: run(prompt)[:2]), prompts)


def _batches(model, vocab_size):
    return random_source_batches(vocab_size, min(30, max_tokens(model.config.max_length) - 1))


def _saved_model(model, function, signature, inputs, outputs, path):
    module = tf.Module()
    # Tracked, so that the SavedModel contains them. The type stubs of TensorFlow reject attributes of modules.
    module.weights = [variable.value for variable in model.variables]  # pyright: ignore[reportAttributeAccessIssue]
    named = tf.function(lambda *args: dict(zip(outputs, function(*args), strict=True)), input_signature=signature)
    tf.saved_model.save(module, str(path), signatures=named)
    serve = tf.saved_model.load(str(path)).signatures["serving_default"]
    (name,) = inputs

    def run(ids):
        found = serve(**{name: tf.constant(ids)})
        return [found[output].numpy() for output in outputs]

    return run


def _onnx(program, variables, metadata, path):
    import onnxruntime

    proto = convert(*program, variables=variables)
    sink_constants(proto.graph)
    onnx.helper.set_model_props(proto, metadata)
    onnx.save(proto, path)
    onnx.checker.check_model(path, full_check=True)
    session = onnxruntime.InferenceSession(path)
    (name,) = (value.name for value in session.get_inputs())
    return lambda ids: session.run([*program[3]], {name: ids})
