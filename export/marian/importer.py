"""Marian models, such as OPUS-MT's, from the files of Hugging Face's `MarianMTModel`; nothing is unpickled."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

import keras_transformer as kt
from keras_transformer.atomic_files import atomic_write
from keras_transformer.config import TransformerConfig
from keras_transformer.export.interop.weight_map import (
    ForeignWeight,
    Naming,
    assign_weights,
    read_tensors,
    stack_weights,
    weight_problems,
)
from keras_transformer.export.marian.config import read_config
from keras_transformer.export.marian.vocabulary import lay_out, parse, rewritten, vocabulary_faults, warn_of_lacking
from keras_transformer.model_directory import ModelDirectory
from keras_transformer.text.tokenization import PAD_ID, load_tokenizers

FILES = ("config.json", "model.safetensors", "source.spm", "target.spm", "vocab.json")
EMBEDDING, LOGITS_BIAS = "model.shared.weight", "final_logits_bias"
NAMING = Naming(
    prefix="model.",
    attentions=("self_attn", "encoder_attn"),
    feed_forward=("fc1", "fc2"),
    encoder_norms=("self_attn_layer_norm", "final_layer_norm"),
    decoder_norms=("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
)

#: Other names of the shared embedding, and tables that are computed.
_COPIES = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")
_COMPUTED = {f"model.{stack}.embed_positions.weight" for stack in ("encoder", "decoder")}
#: The bias of padding and of pieces that are copies of others: low enough for a probability of 0 whatever else.
_NEVER = -100.0


def import_marian(directory: str | Path, output: str | Path, overwrite: bool = False) -> ModelDirectory:
    """Makes a finished model directory of a Hugging Face `MarianMTModel`, of which OPUS-MT has more than a thousand.

    The ids are this package's: the special pieces first, then Marian's in their order. The start token, for which
    Marian takes padding, is a piece of its own.

    Args:
        directory: with config.json, model.safetensors, source.spm, target.spm and vocab.json.
        output: the model directory to make.
        overwrite: replace the model or the run that lies there.

    Returns:
        The model directory.

    Raises:
        ValueError: naming everything that is wrong with the files; nothing is written.

    Example:

        import_marian("opus-mt-en-de", "runs/opus-en-de")
    """
    result = ModelDirectory(output)
    record = {"imported_from": "marian"}
    result.check_resumable(record, overwrite)
    model, tokenizers = read_marian(directory)
    with result.locked():
        result.check_resumable(record, overwrite)
        result.clear()
        result.delete_tokens()
        result.write_record(record, finished=False)
        result.write_tokenizers(tokenizers)
        with atomic_write(result.model_file) as temporary:
            model.save(temporary)
        record["model_config"] = dataclasses.asdict(model.config)
        record["tokenizers_sha256"] = [tokenizer.sha256 for tokenizer in load_tokenizers(result)]
        result.write_record(record, finished=True)
    return result


def read_marian(directory: str | Path) -> "tuple[kt.Transformer, tuple[bytes, bytes]]":
    """The model in a Hugging Face `MarianMTModel` directory, and its SentencePiece models.

    Args:
        directory: see `import_marian`.

    Returns:
        The `Transformer`, and the serialised models of source and target, whose ids are the model's. A warning
        counts the pieces of a SentencePiece model that vocab.json lacks.

    Raises:
        ValueError: naming everything that is wrong with the files.
    """
    reader = _Reader(Path(directory))
    config = reader.read("config.json", _read_json)
    tensors = reader.read("model.safetensors", read_tensors)
    models = {name: reader.read(name, lambda path: parse(path.read_bytes())) for name in ("source.spm", "target.spm")}
    vocab = reader.read("vocab.json", _read_vocab)
    fields = None if config is None else reader.gather(*read_config(config))
    parsed = {name: model for name, model in models.items() if model is not None}
    if vocab is not None:
        reader.problems += vocabulary_faults(vocab, config or {}, parsed)
    if fields is not None and tensors is not None:
        tensors = _completed(tensors, config["vocab_size"])
        reader.problems += _tensor_faults(tensors, fields, config["vocab_size"])
    reader.raise_problems()
    warn_of_lacking(vocab, models)
    layout = lay_out(vocab, config, [*models.values()])
    model = kt.Transformer(TransformerConfig(**{**fields, "vocab_size": len(layout.pieces)}))
    assign_weights(model, weights_of(model), _in_our_order(tensors, layout))
    return model, tuple(rewritten(spm, layout.pieces) for spm in models.values())


def weights_of(model: "kt.Transformer") -> list[ForeignWeight]:
    """All weights, by Marian's names.

    Args:
        model: a `Transformer` with shared embeddings and biases.
    """
    embedding = ForeignWeight(EMBEDDING, model.target_embedding.embeddings, False, 1)
    bias = [ForeignWeight(LOGITS_BIAS, model.logits.bias, False, None)] if model.config.logits_bias else []
    return [embedding, *bias, *stack_weights(model, NAMING)]


class _Reader:
    """Reads files and gathers what is wrong with them."""

    def __init__(self, folder):
        self.folder, self.problems = folder, []

    def read(self, name, function):
        path = self.folder / name
        if not path.is_file():
            self.problems.append(self._missing(name))
            return None
        try:
            return function(path)
        except (ValueError, OSError) as error:
            self.problems.append(f"{name} cannot be read: {error}")
            return None

    def _missing(self, name):
        pickled = self.folder / "pytorch_model.bin"
        if name != "model.safetensors" or not pickled.is_file():
            return f"{name} is missing"
        return (
            "model.safetensors is missing, and pytorch_model.bin is a pickle, which could run any program and is never "
            "read. Convert it where you trust it, with transformers: "
            f"MarianMTModel.from_pretrained('{self.folder}').save_pretrained('{self.folder}', safe_serialization=True)"
        )

    def gather(self, result, problems):
        self.problems += problems
        return result

    def raise_problems(self):
        if self.problems:
            lines = "\n".join(f"- {problem}" for problem in self.problems)
            raise ValueError(f"{self.folder} cannot be imported as a MarianMTModel:\n{lines}")


def _read_json(path):
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise ValueError("not a JSON object")
    return content


def _read_vocab(path):
    vocab = _read_json(path)
    if not all(type(i) is int for i in vocab.values()):
        raise ValueError("not a JSON object of ids")
    return vocab


def _completed(tensors: Mapping, vocab_size: int) -> dict:
    """With the shared embedding by its own name, and with biases where there are none."""
    embedding = next((tensors[name] for name in (EMBEDDING, *_COPIES) if name in tensors), None)
    if embedding is None:
        return {**tensors}
    # config.json's number may be any: it is not taken before the file has as many rows.
    biases = {LOGITS_BIAS: np.zeros((1, vocab_size), "float32")} if len(embedding) == vocab_size else {}
    return {**biases, EMBEDDING: embedding, **tensors}


def _tensor_faults(tensors: Mapping, fields: Mapping, vocab_size: int) -> list[str]:
    file = "model.safetensors"
    problems = [
        f"{name} must equal {EMBEDDING}: embeddings that are not shared are not supported"
        for name in _COPIES
        if name in tensors and not np.array_equal(tensors[name], tensors[EMBEDDING])
    ]
    expected = {EMBEDDING: (vocab_size, fields["d_model"]), LOGITS_BIAS: (1, vocab_size)}
    for name, shape in expected.items():
        if name in tensors and tensors[name].shape != shape:
            problems.append(f"{name} must have shape {shape}. Received: {tensors[name].shape} in {file}")
    weights = weights_of(kt.Transformer(TransformerConfig(**{**fields, "vocab_size": 4})))
    others = [weight for weight in weights if weight.name not in expected]
    if EMBEDDING not in tensors:
        problems.append(f"{file} lacks {EMBEDDING}")
    problems += weight_problems(others, tensors, file)
    unknown = sorted(set(tensors) - {weight.name for weight in weights} - {*_COPIES, *_COMPUTED})
    if unknown:
        problems.append(f"{file} holds what such a model lacks: {', '.join(unknown)}")
    return problems


def _in_our_order(tensors, layout):
    bias = tensors[LOGITS_BIAS][0, layout.rows].astype("float32")
    bias = np.where(layout.is_copy, np.float32(_NEVER), bias)
    embedding = tensors[EMBEDDING][layout.rows]
    # Marian has no padding: OPUS-MT's was appended as zeros, with a logit of 0 that transformers bars in its search.
    if bias[PAD_ID] == 0 and not embedding[PAD_ID].any():
        bias[PAD_ID] = _NEVER
    return {**tensors, EMBEDDING: embedding, LOGITS_BIAS: bias}
