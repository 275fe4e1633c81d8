"""Import of Marian models, such as OPUS-MT, from the files of Hugging Face's `MarianMTModel`. Reads no pickle."""

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import keras_transformer as kt
from keras_transformer.checks import require
from keras_transformer.config import PAD_ID, TransformerConfig
from keras_transformer.export.interop.weight_map import (
    ForeignWeight,
    Naming,
    assign_weights,
    read_tensors,
    stack_weights,
    weight_problems,
)
from keras_transformer.export.marian.config import read_config
from keras_transformer.export.marian.vocabulary import lay_out, parse, rewritten, vocabulary_problems, warn_of_lacking
from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.text.languages import checked_language, is_language, normal_code
from keras_transformer.text.tokenization import Tokenizer

FILES = ("config.json", "model.safetensors", "source.spm", "target.spm", "vocab.json")
EMBEDDING, LOGITS_BIAS = "model.shared.weight", "final_logits_bias"
NAMING = Naming(
    prefix="model.",
    attentions=("self_attn", "encoder_attn"),
    feed_forward=("fc1", "fc2"),
    encoder_norms=("self_attn_layer_norm", "final_layer_norm"),
    decoder_norms=("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
)

#: Names of copies of the shared embedding, and of position tables, which this package computes.
_COPIES = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")
_COMPUTED = {f"model.{stack}.embed_positions.weight" for stack in ("encoder", "decoder")}
#: Logit bias of padding and of duplicate pieces. It makes their probability 0.
_EXCLUDED_LOGIT = -100.0


def import_marian(
    directory: str | Path,
    output: str | Path,
    overwrite: bool = False,
    source_language: str | None = None,
    target_language: str | None = None,
) -> ModelDirectory:
    """Imports a Hugging Face `MarianMTModel`, such as an OPUS-MT model, as a finished model directory.

    Token ids become those of this package: the special pieces first, then Marian's pieces in their order. Marian uses
    padding as the start token; the imported model has a separate start token.

    Args:
        directory: folder with config.json, model.safetensors, source.spm, target.spm and vocab.json.
        output: the model directory to write.
        overwrite: replace an existing model or run in `output`.
        source_language: code of the source language, such as `en`, for `serve` and the splitting of sentences. Default:
            that of tokenizer_config.json, if the file exists.
        target_language: code of the target language, such as `de`. Default: that of tokenizer_config.json.

    Returns:
        The model directory.

    Raises:
        ValueError: if the files are invalid. The message lists all problems, and nothing is written.

    Example:

        import_marian("opus-mt-en-de", "runs/opus-en-de")
    """
    ModelDirectory(output).require_free(overwrite)
    languages = _languages(Path(directory), source_language, target_language)
    model, models = read_marian(directory)
    tokenizers = [Tokenizer(spm) for spm in models]
    return ModelDirectory.create(output, model, tokenizers, languages, overwrite, imported_from="marian")


def read_marian(directory: str | Path) -> "tuple[kt.Transformer, tuple[bytes, ...]]":
    """Reads a Hugging Face `MarianMTModel` directory.

    Returns:
        The `Transformer`, and the serialized SentencePiece models of source and target, with the ids of the model.

    Raises:
        ValueError: if the files are invalid. The message lists all problems.

    Warns:
        UserWarning: if vocab.json lacks pieces of a SentencePiece model.
    """
    folder, problems = Path(directory), []
    read = functools.partial(_read, folder, problems)
    config = read("config.json", _read_json)
    tensors = read("model.safetensors", read_tensors)
    models = {name: read(name, lambda path: parse(path.read_bytes())) for name in ("source.spm", "target.spm")}
    vocab = read("vocab.json", _read_vocab)
    fields, found = (None, []) if config is None else read_config(config)
    problems += found
    if vocab is not None:
        parsed = {name: model for name, model in models.items() if model is not None}
        problems += vocabulary_problems(vocab, config or {}, parsed)
    if config is not None and fields is not None and tensors is not None:
        tensors = _completed(tensors, config["vocab_size"])
        problems += _tensor_problems(tensors, fields, config["vocab_size"])
    require(problems, of=f"{folder} cannot be imported as a MarianMTModel")
    return _build(config, fields, vocab, models, tensors)


def _build(config, fields, vocab, models, tensors):
    """The model and its SentencePiece models, of files without problems."""
    warn_of_lacking(vocab, models)
    layout = lay_out(vocab, config, [*models.values()])
    model = kt.Transformer(TransformerConfig(**{**fields, "vocab_size": len(layout.pieces)}))
    assign_weights(model, weights_of(model), _in_our_order(tensors, layout))
    return model, tuple(rewritten(spm, layout.pieces) for spm in models.values())


def weights_of(model: "kt.Transformer") -> list[ForeignWeight]:
    """All weights of a `Transformer` with shared embeddings, with Marian's names."""
    embedding = ForeignWeight(EMBEDDING, model.target_embedding.embeddings, False, 1)
    bias = [ForeignWeight(LOGITS_BIAS, model.logits.bias, False, None)] if model.config.logits_bias else []
    return [embedding, *bias, *stack_weights(model, NAMING)]


def _read(folder, problems, name, function) -> Any:
    """Reads a file. If that is not possible, adds the reason to the problems."""
    path = folder / name
    if not path.is_file():
        problems.append(_missing(folder, name))
        return None
    try:
        return function(path)
    except (ValueError, OSError) as error:
        problems.append(f"{name} cannot be read: {error}")
        return None


def _missing(folder, name):
    if name != "model.safetensors" or not (folder / "pytorch_model.bin").is_file():
        return f"{name} is missing"
    return (
        "model.safetensors is missing. pytorch_model.bin is not read, because a pickle can run arbitrary code. If "
        "you trust it, convert it with transformers: "
        f"MarianMTModel.from_pretrained('{folder}').save_pretrained('{folder}', safe_serialization=True)"
    )


def _languages(directory, *given) -> list[str | None]:
    """The given languages, or those of tokenizer_config.json."""
    names = ("source_language", "target_language")
    mine = [checked_language(name, language) for name, language in zip(names, given, strict=True)]
    try:
        recorded = _read_json(directory / "tokenizer_config.json")
    except (OSError, ValueError):
        recorded = {}
    found = [recorded.get(name) for name in ("source_lang", "target_lang")]
    theirs = [normal_code(code) if isinstance(code, str) and is_language(code) else None for code in found]
    return [one or other for one, other in zip(mine, theirs, strict=True)]


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
    """Adds the shared embedding if only a copy has been saved, and a zero bias if there is none."""
    embedding = next((tensors[name] for name in (EMBEDDING, *_COPIES) if name in tensors), None)
    if embedding is None:
        return {**tensors}
    # `vocab_size` of config.json may be wrong. The bias is created only if the embedding has as many rows.
    biases = {LOGITS_BIAS: np.zeros((1, vocab_size), "float32")} if len(embedding) == vocab_size else {}
    return {**biases, EMBEDDING: embedding, **tensors}


def _tensor_problems(tensors: Mapping, fields: Mapping, vocab_size: int) -> list[str]:
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
        problems.append(f"{file} contains weights that the model does not have: {', '.join(unknown)}")
    return problems


def _in_our_order(tensors, layout):
    bias = tensors[LOGITS_BIAS][0, layout.rows].astype("float32")
    bias = np.where(layout.is_copy, np.float32(_EXCLUDED_LOGIT), bias)
    embedding = tensors[EMBEDDING][layout.rows]
    # Marian has no padding. OPUS-MT models were converted with a row of zeros for it; its logit is 0, and the search of
    # transformers excludes it.
    if bias[PAD_ID] == 0 and not embedding[PAD_ID].any():
        bias[PAD_ID] = _EXCLUDED_LOGIT
    return {**tensors, EMBEDDING: embedding, LOGITS_BIAS: bias}
