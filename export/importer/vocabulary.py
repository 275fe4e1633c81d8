"""The vocabulary of an imported model in this package's order, inside its SentencePiece models.

Files beside the SentencePiece models assign the ids, which differ from those of SentencePiece. This module rewrites the
SentencePiece models: each lists the whole vocabulary, so that its ids are the ids of the imported model in every
program that runs SentencePiece. The special pieces come first, as everywhere in this package.
"""

import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from keras_transformer.config import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from keras_transformer.export.importer.family import Vocabulary
from keras_transformer.export.importer.piece_ids import PieceIds
from keras_transformer.text.tokenization import SPECIAL_PIECES

#: Maximum share of a SentencePiece model's pieces that vocab.json may lack.
_MOST_LACKING = 0.02
#: Pieces of languages in Marian. They are words at the start of a line.
_LANGUAGE_CODE = re.compile(r"^>>.+<<$")
#: SentencePiece's mark at the start of a word.
WORD = "\N{LOWER ONE EIGHTH BLOCK}"


class Layout(NamedTuple):
    """The ids of the imported model, and the corresponding ids in the vocabulary of the files."""

    pieces: list[str]  # By id of the imported model.
    rows: np.ndarray  # int (vocab_size,): the id in the files, which is the row of the embedding.
    is_copy: np.ndarray  # boolean (vocab_size,): whether the piece duplicates another one, which the model outputs.
    languages: Mapping[str, str]  # Piece -> code of the language that it stands for.
    symbols: frozenset[str]  # Pieces that are no text. Languages are among them.


def parse(model: bytes):
    """Parses a SentencePiece model to a `ModelProto`. Raises `ValueError` if it is not one."""
    import sentencepiece
    from google.protobuf.message import DecodeError
    from sentencepiece.sentencepiece_model_pb2 import ModelProto

    try:
        sentencepiece.SentencePieceProcessor(model_proto=model)
        return ModelProto.FromString(model)
    except (RuntimeError, DecodeError) as error:
        raise ValueError("not a SentencePiece model") from error


def parse_file(path: Path):
    """Parses the file of a SentencePiece model; see `parse`."""
    return parse(path.read_bytes())


def split(model, line: str) -> list[str]:
    """Divides a line with a parsed SentencePiece model. Unknown characters become the unknown piece."""
    import sentencepiece

    ids = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString()).encode(line)
    return [model.pieces[i].piece for i in ids]


def vocabulary_problems(
    vocabulary: PieceIds, config: Mapping, models: Mapping[str, object], table: Vocabulary
) -> list[str]:
    """Lists the problems of a vocabulary. Fields that the configuration lacks are not compared.

    Args:
        vocabulary: the vocabulary of the files.
        config: the contents of config.json.
        models: name of a file -> the parsed SentencePiece model.
        table: the table of the family.
    """
    ids, file, is_complete = vocabulary.ids, vocabulary.file, vocabulary.is_complete
    problems = []
    # SentencePiece would not find added pieces in text as transformers does.
    languages = {*filter(table.language.fullmatch, ids)} if table.language else set()
    if own := sorted(piece for piece in vocabulary.added - languages if not table.of_training.fullmatch(piece)):
        first = ", ".join(map(repr, own[:5]))
        problems.append(f"Added pieces are not supported. The tokenizer has {len(own)}: {first}")
    size = config.get("vocab_size")
    size = size if type(size) is int else len(ids)
    odd = set(range(len(ids))) ^ {*ids.values()} if is_complete else {i for i in ids.values() if not 0 <= i < size}
    if odd or (is_complete and len(ids) != size) or len({*ids.values()}) < len(ids):
        problems.append(
            f"{file} must assign each id in [0, {size}) to one piece, for `vocab_size` {size}. "
            f"Received: {len(ids)} pieces; missing or invalid ids: {sorted(odd)[:5]}"
        )
    for piece, name in (("<unk>", None), ("<pad>", "pad_token_id"), ("</s>", "eos_token_id")):
        if piece not in ids:
            problems += [f"{file} must contain {piece}"] if piece != "<pad>" or is_complete else []
        elif ids[piece] != config.get(name, ids[piece]):
            problems.append(f"`{name}` must be the id of {piece} in {file}, {ids[piece]}. Received: {config[name]}")
    for name, model in models.items():
        if len(_lacking(ids, model)) > _MOST_LACKING * len(_made_pieces(model)):
            problems.append(f"{file} does not match {name}: it {_of_lacking(ids, model)}")
    return problems


def warn_of_lacking(vocab: Mapping[str, int], models: Mapping[str, object]) -> None:
    """Warns about pieces that a SentencePiece model produces and the vocabulary lacks. Marian maps them to `<unk>`."""
    for name, model in models.items():
        if _lacking(vocab, model):
            warnings.warn(f"Pieces of {name} become <unk>: vocab.json {_of_lacking(vocab, model)}", stacklevel=3)


def _lacking(vocab, model):
    return [piece for piece in _made_pieces(model) if _foreign_name(piece) not in vocab]


def _of_lacking(vocab, model):
    lacking, all_pieces = _lacking(vocab, model), _made_pieces(model)
    return f"lacks {len(lacking)} of {len(all_pieces)} pieces, such as {', '.join(map(repr, lacking[:3]))}"


def lay_out(vocabulary: PieceIds, config: Mapping, models: Sequence, language: re.Pattern | None) -> Layout:
    """Assigns the ids of the imported model to a vocabulary without problems.

    The start token gets its own id. It is a copy if the start token of the files is padding or another piece that is
    also needed. Pieces of the SentencePiece models that the vocabulary lacks are copies of the unknown piece, as Marian
    maps them to it.

    Args:
        vocabulary: the vocabulary of the files.
        config: the contents of config.json.
        models: the parsed SentencePiece models.
        language: the pattern `language` of `Vocabulary`.
    """
    vocab, rows_without = vocabulary.ids, {*range(config["vocab_size"])} - {*vocabulary.ids.values()}
    # These rows are part of the softmax of the original.
    vocab = {**vocab, **{f"<row_{i}>": i for i in rows_without}}
    pad, unk, start, eos = config["pad_token_id"], vocab["<unk>"], config["decoder_start_token_id"], vocab["</s>"]
    of_id = {i: piece for piece, i in vocab.items()}
    made = dict.fromkeys(piece for model in models for piece in _made_pieces(model))
    start_is_copy = start in (pad, unk, eos) or of_id[start] in made
    others = sorted({*of_id} - {pad, unk, eos} - (set() if start_is_copy else {start}))
    pieces, languages, symbols = list(SPECIAL_PIECES), {}, set()
    for i in others:
        name = of_id[i]
        while name in SPECIAL_PIECES:
            name += "_"
        pieces.append(name)
        match = language.fullmatch(of_id[i]) if language else None
        if match and match.lastindex:
            languages[name] = match[match.lastindex]
        if match or i in rows_without or of_id[i] in vocabulary.added or of_id[i] in SPECIAL_PIECES:
            symbols.add(name)
    known = {_foreign_name(piece) for piece in pieces}
    unknown = [piece for piece in made if _foreign_name(piece) not in known]
    rows = np.array([pad, unk, start, eos, *others, *[unk] * len(unknown)])
    is_copy = [False, False, start_is_copy, False] + [False] * len(others) + [True] * len(unknown)
    return Layout(pieces + unknown, rows, np.array(is_copy), languages, frozenset(symbols))


def foreign_vocabulary(pieces: Sequence[str]) -> dict[str, int]:
    """The contents of `vocab.json`, from pieces by id.

    Language codes have no word mark, because Marian's tokenizer removes them from a line before SentencePiece. Model
    directories of older versions have one.
    """
    return {_foreign_name(piece): i for i, piece in enumerate(pieces)}


def is_language_code(piece: str) -> bool:
    """Whether Marian takes a piece for that of a language."""
    return bool(_LANGUAGE_CODE.match(piece))


def _foreign_name(piece):
    without_mark = piece.removeprefix(WORD)
    return without_mark if is_language_code(without_mark) else piece


def _made_pieces(model):
    """The pieces that the model can split text into."""
    kinds = (model.SentencePiece.NORMAL, model.SentencePiece.USER_DEFINED, model.SentencePiece.BYTE)
    return [piece.piece for piece in model.pieces if piece.type in kinds]


def rewritten(model, layout: Layout) -> bytes:
    """Rewrites a parsed SentencePiece model, so that its ids are indices of a vocabulary. It splits text as before.

    Pieces that the model does not have are added as unused pieces, which can be decoded but do not occur in split text.
    A run of unknown characters therefore stays one unknown piece. Marian looks up the run in its vocabulary, and finds
    it if it is a piece of the other side. The vocabulary starts with the special pieces.

    Args:
        model: the parsed model.
        layout: the vocabulary. Text cannot produce its symbols.
    """
    kind = model.SentencePiece
    own = {piece.piece: (piece.score, piece.type) for piece in model.pieces}
    model = type(model).FromString(model.SerializeToString())
    special = dict(zip(SPECIAL_PIECES, (kind.CONTROL, kind.UNKNOWN, kind.CONTROL, kind.CONTROL), strict=True))
    unlikely = min(piece.score for piece in model.pieces) - 10  # SentencePiece's score of unknown characters.
    del model.pieces[:]
    for piece in layout.pieces:
        score, its_kind = own.get(piece, (unlikely, kind.UNUSED))
        if piece in layout.symbols:
            its_kind = kind.CONTROL
        if piece in special:
            score, its_kind = 0.0, special[piece]
        model.pieces.add(piece=piece, score=score, type=its_kind)
    spec = model.trainer_spec
    spec.pad_id, spec.unk_id, spec.bos_id, spec.eos_id = PAD_ID, UNK_ID, BOS_ID, EOS_ID
    spec.pad_piece, spec.unk_piece, spec.bos_piece, spec.eos_piece = SPECIAL_PIECES
    spec.vocab_size = len(layout.pieces)
    return model.SerializeToString()
