"""Which piece has which id in the files of a model."""

from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from keras_transformer.export.importer.family import Vocabulary
from keras_transformer.export.importer.json_files import read_fields, read_json

#: The file with the fields of the tokenizer.
SETTINGS = "tokenizer_config.json"
#: The file of the library tokenizers. transformers 5 saves it in place of the SentencePiece model of most families.
FAST_TOKENIZER = "tokenizer.json"
#: The file with the options of generation, among them the target language of a model that has only one.
GENERATION = "generation_config.json"
#: The first ids of fairseq. The first three pieces of SentencePiece are not part of its vocabulary.
FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>")


class PieceIds(NamedTuple):
    """The vocabulary of the files."""

    ids: Mapping[str, int]
    file: str  # The file that assigns the ids.
    is_complete: bool  # Whether each row of the embedding must have a piece.
    added: frozenset[str]  # Pieces that the files of the tokenizer add, such as languages. Not all have a row.
    listed: frozenset[str]  # All pieces in these files. transformers divides a line at them before SentencePiece does.


def assigns_ids(folder: Path, vocabulary: Vocabulary) -> str:
    """The way in which a model assigns ids: one of `vocabulary.ids`."""
    has_file = (folder / "vocab.json").is_file()
    return next(way for way in vocabulary.ids if way != "vocab.json" or has_file or len(vocabulary.ids) == 1)


def read_piece_ids(
    folder: Path, vocabulary: Vocabulary, models: Mapping[str, Any], read: Callable[[str, Callable[[Path], Any]], Any]
) -> PieceIds | None:
    """Reads the ids of all pieces. `None` if the file that assigns them is invalid.

    Args:
        folder: the folder of the model.
        vocabulary: the table of its family.
        models: name of a file -> the parsed SentencePiece model, or `None` if the file is invalid.
        read: called as `read(name, function)`: applies a function to the path of a file and returns the result. If the
            file is invalid, it records the problem and returns `None`.
    """
    way = assigns_ids(folder, vocabulary)
    file, model = next(iter(models.items()))
    if way == "vocab.json":
        file = "vocab.json"
        ids = read(file, lambda path: _checked_ids(read_json(path)))
    elif model is None:
        ids = None
    elif way == "fairseq":
        ids = {piece: i for i, piece in enumerate((*FAIRSEQ, *(piece.piece for piece in model.pieces[3:])))}
    else:
        ids = {piece.piece: i for i, piece in enumerate(model.pieces)}
    if ids is None:
        return None
    added: dict[str, int] = {}
    for name in ADDED:
        if (folder / name).is_file():
            added |= read(name, lambda path: _added_ids(path, ids)) or {}
    new, listed = frozenset(added.keys() - ids.keys()), frozenset(added)
    if vocabulary.has_added_pieces:
        return PieceIds(added | ids, file, False, new, listed)
    return PieceIds(ids, file, way == "vocab.json", new, listed)


def sentencepiece_files(vocabulary: Vocabulary, files: Container[str]) -> tuple[str, ...]:
    """The names of the files with the SentencePiece models.

    Args:
        vocabulary: the table of the family.
        files: the names of all files of the model. If they contain `FAST_TOKENIZER` in place of the only SentencePiece
            model, it is read.
    """
    first, *others = vocabulary.sentencepiece
    is_fast = not others and first not in files and FAST_TOKENIZER in files
    return (FAST_TOKENIZER,) if is_fast else vocabulary.sentencepiece


def tokenizer_files(vocabulary: Vocabulary, files: Container[str]) -> set[str]:
    """The names of the files that are read for a vocabulary and its languages, if they exist.

    Args:
        vocabulary: the table of the family.
        files: the names of all files of the model.
    """
    ids = [way for way in vocabulary.ids if way == "vocab.json"]
    return {*sentencepiece_files(vocabulary, files), *ids, *ADDED, GENERATION}


def _checked_ids(ids: dict[Any, Any]) -> dict[str, int]:
    if not all(type(piece) is str for piece in ids):
        raise ValueError("a piece is not text")
    if not all(type(i) is int for i in ids.values()):
        raise ValueError("an id is not an integer")
    return ids


def _added_ids(path: Path, ids: Mapping[str, int]) -> dict[str, int]:
    """The ids of the pieces that a file adds. Pieces without ids follow the vocabulary."""
    listed, with_ids = ADDED[path.name](path)
    for piece, i in _checked_ids(with_ids).items():
        if ids.get(piece, i) != i:
            raise ValueError(f"the id of {piece!r} must be {ids[piece]}, as in the vocabulary. Received: {i}")
    new = dict.fromkeys(piece for piece in listed if piece not in ids)
    return _checked_ids({piece: i for i, piece in enumerate(new, len(ids))} | with_ids)


def _in_special_tokens(path):
    return _names(read_fields(path).get("additional_special_tokens", [])), {}


def _in_settings(path):
    content = read_fields(path)
    listed = content.get("additional_special_tokens") or content.get("extra_special_tokens") or []
    decoder = content.get("added_tokens_decoder", {})
    # A dictionary gives names to the pieces.
    names = _names(listed.values() if isinstance(listed, dict) else listed)
    return names, {token["content"]: int(i) for i, token in decoder.items()}


def _in_tokenizer(path):
    return [], {token["content"]: token["id"] for token in read_fields(path).get("added_tokens", [])}


def _names(pieces):
    if isinstance(pieces, str):
        raise ValueError(f"a list of pieces is expected. Received: {pieces!r}")
    return [piece["content"] if isinstance(piece, dict) else piece for piece in pieces]


#: File that adds pieces -> a function of its path. It returns a list of pieces without ids, in their order, and the ids
#: of others. Later files override earlier ones.
ADDED: dict[str, Callable[[Path], tuple[list[Any], dict[Any, Any]]]] = {
    "special_tokens_map.json": _in_special_tokens,
    SETTINGS: _in_settings,
    "added_tokens.json": lambda path: ([], read_json(path)),
    FAST_TOKENIZER: _in_tokenizer,
}
