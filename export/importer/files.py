"""Reads and checks the files of a model."""

import functools
import re
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import keras_transformer as kt
from keras_transformer.checks import require
from keras_transformer.config import TransformerConfig
from keras_transformer.export.importer.config import find_family, read_config, tokenizer_problems
from keras_transformer.export.importer.family import Family
from keras_transformer.export.importer.fast_tokenizer import read_fast_tokenizer
from keras_transformer.export.importer.json_files import read_fields, reading
from keras_transformer.export.importer.piece_ids import (
    ADDED,
    FAST_TOKENIZER,
    GENERATION,
    SETTINGS,
    PieceIds,
    assigns_ids,
    read_piece_ids,
    sentencepiece_files,
)
from keras_transformer.export.importer.vocabulary import parse_file, vocabulary_problems
from keras_transformer.export.importer.weights import read_weights, weights_file
from keras_transformer.export.interop.stored import Tensor, changed
from keras_transformer.export.interop.weight_map import foreign_weights, listed, unused_names, weight_problems

#: Names of the matrix of the logits, if the file has a separate one, and of their bias.
OUTPUT, BIAS = "lm_head.weight", "final_logits_bias"
#: Field of generation_config.json, of config.json in older models.
_FORCED = "forced_bos_token_id"
#: Paths of the layers whose weights have one row for each piece.
_ROWS = ("target_embedding", "source_embedding", "logits.embedding", "logits.bias")


class Files(NamedTuple):
    """What the files contain."""

    config: Mapping[str, Any]
    tokenizer: Mapping[str, Any]  # Of tokenizer_config.json, which need not exist.
    forced_id: int | None  # The id with which each translation starts.
    family: Family
    fields: Mapping[str, Any]
    models: Mapping[str, Any]  # SentencePiece models by the names of their files.
    vocabulary: PieceIds
    tensors: Mapping[str, Tensor]


def read_files(folder: Path) -> Files:
    """Reads the files of a model. Raises `ValueError` with all problems."""
    problems: list[str] = []
    read = functools.partial(_read, folder, problems)
    file = weights_file(folder)
    config, tensors = read("config.json", read_fields), read(file, read_weights)
    family, found = (None, _marian_problems(folder)) if config is None else find_family(config)
    problems += found
    if family is None:
        require(problems, of=f"{folder} cannot be imported")
    all_files = {path.name for path in folder.iterdir()}
    tokenizer = (read(SETTINGS, read_fields) if SETTINGS in all_files else None) or {}
    generation = (read(GENERATION, read_fields) if GENERATION in all_files else None) or {}
    problems += tokenizer_problems({**config, **tokenizer}, family, all_files)
    table = family.vocabulary
    options = {"way": assigns_ids(folder, table), "of_training": table.of_training}
    parsers = {FAST_TOKENIZER: functools.partial(read_fast_tokenizer, **options)}
    models = {name: read(name, parsers.get(name, parse_file)) for name in sentencepiece_files(table, all_files)}
    vocabulary: Any = read_piece_ids(folder, table, models, read)
    if vocabulary is not None:
        parsed = {name: model for name, model in models.items() if model is not None}
        problems += vocabulary_problems(vocabulary, config, parsed, table)
        if family.forces_language and not any(map(table.language.fullmatch, vocabulary.ids)):
            problems.append(f"The pieces of languages must be listed in one of {', '.join(ADDED)}")
    fields, found = read_config(config, family)
    problems += found
    if fields is not None and tensors is not None and (layers := _too_many_layers(fields, tensors)):
        problems.append(f"{file} must contain the weights of {layers} layers. It contains {len(tensors)} tensors")
    elif fields is not None and tensors is not None:
        names = names_with_rows(family, fields)
        fields = {**fields, "tie_output": not family.may_untie_output or _has_tied_output(tensors, names, fields)}
        tensors = _completed(tensors, config, family, names)
        problems += _tensor_problems(tensors, fields, family, config, names, file)
    # A file that is read twice has the same problem twice.
    require(dict.fromkeys(problems), of=f"{folder} cannot be imported as a {family.title} model")
    # As in transformers, which reads the field of config.json only if the other file does not exist.
    forced_id = (generation if GENERATION in all_files else config).get(_FORCED)
    return Files(
        config, tokenizer, forced_id if type(forced_id) is int else None, family, fields, models, vocabulary, tensors
    )


def _read(folder, problems, name, function) -> Any:
    """Reads a file. If that is not possible, adds the reason to the problems."""
    path = folder / name
    if not path.is_file():
        problems.append(f"{name} is missing")
        return None
    try:
        return reading(function, path)
    except (ValueError, OSError) as error:
        problems.append(f"{name} cannot be read: {error}")
        return None


def _marian_problems(folder: Path) -> list[str]:
    """Problems of a folder with a model of Marian itself, which transformers converts."""
    problems = []
    for file in sorted(folder.glob("*.npz")):
        try:
            with np.load(file, allow_pickle=False) as arrays:
                options = bytes(arrays["special:model.yml"]).rstrip(b"\0").decode(errors="replace")
        except (ValueError, KeyError, TypeError, EOFError, OSError, RuntimeError, zlib.error, zipfile.BadZipFile):
            continue  # Another file.
        kind = re.search(r"^transformer-decoder-autoreg: *(\S+)", options, re.MULTILINE)
        if kind and kind[1] != "self-attention":
            cell = re.search(r"^dec-cell: *(\S+)", options, re.MULTILINE)
            of_cell = f" with the cell {cell[1]}" if kind[1] == "rnn" and cell else ""
            problems.append(f"a decoder of kind {kind[1]}{of_cell} is not supported. Received: {file.name}")
        else:
            problems.append(f"{file.name} is a model of Marian: first convert it to the files of transformers")
    return problems


def names_with_rows(family, fields) -> list[str]:
    """Names of the weights with one row for each piece; that of the shared embedding first."""
    modules = family.modules(fields)
    return [name if name == BIAS else f"{name}.weight" for name, path in modules.items() if path in _ROWS]


def _has_tied_output(tensors, names, fields):
    """Whether the logits have the matrix of the embedding. T5 scales such logits."""
    if OUTPUT not in tensors:
        return True
    embeddings = [tensors[name] for name in names if name in tensors and name not in (OUTPUT, BIAS)]
    return np.array_equal(tensors[OUTPUT], embeddings[0]) if embeddings else "logits_scale" in fields


def _too_many_layers(fields, tensors) -> int:
    """The number of layers if it exceeds that of the tensors, else 0. Building such a model could take hours."""
    layers = fields["num_encoder_layers"] + fields["num_decoder_layers"]
    return layers if layers > len(tensors) else 0


def _completed(tensors: Mapping, config: Mapping, family: Family, names) -> dict:
    """The tensors of the model: with those that may be missing, and in the shapes and units of this package."""
    found = {name: function(config) for name, function in family.computed.items()} | {**tensors}
    rows = next((rows for name in names if name in tensors for rows in tensors[name].shape[:1]), 0)
    found[BIAS] = np.reshape(np.asarray(tensors.get(BIAS, np.zeros(rows, "float32"))), -1)
    for end, factor in family.factors.items():
        found |= {name: _times(x, np.float32(factor(config))) for name, x in found.items() if name.endswith(end)}
    found |= {name: _from_row(first, found[name]) for name, first in family.first_rows.items() if name in found}
    return {name: x for name, x in found.items() if not family.ignored.fullmatch(name)}


def _times(tensor, factor):
    return changed(tensor, lambda x: x * factor)


def _from_row(first, tensor):
    return changed(tensor, lambda x: x[first:], rows=max(tensor.shape[0] - first, 0))


def _tensor_problems(tensors, fields, family, config, names, file) -> list[str]:
    import keras  # Imported here, so that errors in other files are found in less than a second.

    size = config["vocab_size"]
    # The vocabulary is not known. Only the shapes of the weights with its rows depend on it.
    with keras.StatelessScope(initialize_variables=False):  # Only the shapes of the variables are needed.
        model = kt.Transformer(TransformerConfig(**{**fields, "vocab_size": 4}))
    weights = [
        weight._replace(variable=keras.KerasTensor((size, *weight.variable.shape[1:])))
        if {*weight.names} & {*names}
        else weight
        for weight in foreign_weights(model, family.modules(fields).items())
    ]
    unknown = unused_names(weights, tensors)
    return [
        *weight_problems(weights, tensors, file),
        *([f"{file} contains weights that the model does not have: {listed(unknown)}"] if unknown else []),
    ]
