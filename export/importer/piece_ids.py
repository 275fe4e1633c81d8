"""Which piece has which id in the files of a model."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from keras_transformer.export.importer.family import Vocabulary

#: The first ids of fairseq. The first three pieces of SentencePiece are not part of its vocabulary.
_FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>")


class PieceIds(NamedTuple):
    """The vocabulary of the files."""

    ids: Mapping[str, int]
    file: str  # The file that assigns the ids.
    is_complete: bool  # Whether each row of the embedding must have a piece.
    added: frozenset[str]  # Pieces that the files of the tokenizer add, such as languages.


def assigns_ids(folder: Path, vocabulary: Vocabulary) -> str:
    """The way in which a model assigns ids: one of `vocabulary.ids`."""
    has_file = (folder / "vocab.json").is_file()
    return next(way for way in vocabulary.ids if way != "vocab.json" or has_file or len(vocabulary.ids) == 1)


def read_piece_ids(folder: Path, vocabulary: Vocabulary, model) -> PieceIds:
    """Reads the ids of all pieces.

    Args:
        folder: the folder of the model.
        vocabulary: the table of its family.
        model: a parsed SentencePiece model, which some ways need.

    Raises:
        ValueError: if a file is invalid.
    """
    way, file = assigns_ids(folder, vocabulary), vocabulary.sentencepiece[0]
    if way == "vocab.json":
        ids, file = read_json(folder / "vocab.json"), "vocab.json"
        if not all(type(i) is int for i in ids.values()):
            raise ValueError("not a JSON object of ids")
    elif way == "fairseq":
        ids = {piece: i for i, piece in enumerate((*_FAIRSEQ, *(piece.piece for piece in model.pieces[3:])))}
    else:
        ids = {piece.piece: i for i, piece in enumerate(model.pieces)}
    added = _added_pieces(folder, len(ids)) if vocabulary.has_added_pieces else {}
    is_complete = way == "vocab.json" and not vocabulary.has_added_pieces
    return PieceIds(added | ids, file, is_complete, frozenset(added.keys() - ids.keys()))


def tokenizer_files(vocabulary: Vocabulary) -> list[str]:
    """The names of the files that are read for a vocabulary and its languages, if they exist."""
    ids = [way for way in vocabulary.ids if way == "vocab.json"]
    added = _ADDED if vocabulary.has_added_pieces else ["tokenizer_config.json"]
    return [*vocabulary.sentencepiece, *ids, *added]


def read_json(path: Path) -> dict[str, Any]:
    """Reads a file with a JSON object. Raises `ValueError` for others."""
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise ValueError("not a JSON object")
    return content


def _added_pieces(folder, first) -> dict[str, int]:
    """The ids of the pieces that the files of the tokenizer add. A list without ids begins with the id `first`."""
    found: dict[str, int] = {}
    for name, read in _ADDED.items():
        if (folder / name).is_file():
            found |= read(read_json(folder / name), first)
    return found


def _of_decoder(content, first):
    """Those of tokenizer_config.json."""
    listed = content.get("additional_special_tokens") or content.get("extra_special_tokens") or []
    decoder = content.get("added_tokens_decoder", {})
    return {**_in_order(listed, first), **{token["content"]: int(i) for i, token in decoder.items()}}


def _in_order(pieces, first):
    names = [piece["content"] if isinstance(piece, dict) else piece for piece in pieces]
    return {name: i for i, name in enumerate(names, first)}


#: File -> its pieces. A later file counts more.
_ADDED: dict[str, Callable[[dict, int], dict[str, int]]] = {
    "special_tokens_map.json": lambda content, first: _in_order(content.get("additional_special_tokens", []), first),
    "tokenizer_config.json": _of_decoder,
    "added_tokens.json": lambda content, first: content,
    "tokenizer.json": lambda content, first: {x["content"]: x["id"] for x in content.get("added_tokens", [])},
}
