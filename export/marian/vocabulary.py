"""The vocabulary of a Marian model in this package's order, inside its SentencePiece models.

Marian's `vocab.json` assigns the ids. Both sides share them, and they differ from the ids in the two SentencePiece
models. This module rewrites the SentencePiece models: each lists the whole vocabulary, so that its ids are the ids of
the imported model in every program that runs SentencePiece. The special pieces come first, as everywhere in this
package.
"""

import re
import warnings
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from keras_transformer.config import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from keras_transformer.text.tokenization import SPECIAL_PIECES

#: Maximum share of a SentencePiece model's pieces that vocab.json may lack.
_MOST_LACKING = 0.02
_LANGUAGE_CODE = re.compile(r"^>>.+<<$")
_WORD = "\N{LOWER ONE EIGHTH BLOCK}"  # SentencePiece's mark at the start of a word.


class Layout(NamedTuple):
    """The ids of the imported model, and the corresponding ids in Marian's vocabulary."""

    pieces: list[str]  # By id of the imported model.
    rows: np.ndarray  # int (vocab_size,): Marian's id, which is the row of the embedding.
    is_copy: np.ndarray  # boolean (vocab_size,): whether the piece duplicates another one, which the model outputs.


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


def vocabulary_problems(vocab: Mapping[str, int], config: Mapping, models: Mapping[str, object]) -> list[str]:
    """Lists the problems of a vocabulary. Fields that the configuration lacks are not compared."""
    problems, size = [], config.get("vocab_size")
    size = size if type(size) is int else len(vocab)
    odd = sorted(set(range(len(vocab))) ^ set(vocab.values()))
    if odd or len(vocab) != size:
        problems.append(
            f"vocab.json must assign each id in [0, {size}) to one piece, for `vocab_size` {size}. "
            f"Received: {len(vocab)} pieces; missing or invalid ids: {odd[:5]}"
        )
    for piece, name in (("<unk>", None), ("<pad>", "pad_token_id"), ("</s>", "eos_token_id")):
        if piece not in vocab:
            problems.append(f"vocab.json must contain {piece}")
        elif vocab[piece] != config.get(name, vocab[piece]):
            problems.append(
                f"`{name}` must be the id of {piece} in vocab.json, {vocab[piece]}. Received: {config[name]}"
            )
    for name, model in models.items():
        if len(_lacking(vocab, model)) > _MOST_LACKING * len(_made_pieces(model)):
            problems.append(f"vocab.json does not match {name}: it {_of_lacking(vocab, model)}")
    return problems


def warn_of_lacking(vocab: Mapping[str, int], models: Mapping[str, object]) -> None:
    """Warns about pieces that a SentencePiece model produces and the vocabulary lacks. Marian maps them to `<unk>`."""
    for name, model in models.items():
        if _lacking(vocab, model):
            warnings.warn(f"Pieces of {name} become <unk>: vocab.json {_of_lacking(vocab, model)}", stacklevel=4)


def _lacking(vocab, model):
    return [piece for piece in _made_pieces(model) if _foreign_name(piece) not in vocab]


def _of_lacking(vocab, model):
    lacking, all_pieces = _lacking(vocab, model), _made_pieces(model)
    return f"lacks {len(lacking)} of {len(all_pieces)} pieces, such as {', '.join(map(repr, lacking[:3]))}"


def lay_out(vocab: Mapping[str, int], config: Mapping, models: Sequence) -> Layout:
    """Assigns the ids of the imported model to a vocabulary without problems.

    The start token gets its own id. It is a copy if Marian's start token is padding or another piece that is also
    needed. Pieces of the SentencePiece models that the vocabulary lacks are copies of the unknown piece, as Marian maps
    them to it.
    """
    pad, unk, start, eos = config["pad_token_id"], vocab["<unk>"], config["decoder_start_token_id"], vocab["</s>"]
    of_id = {i: piece for piece, i in vocab.items()}
    made = dict.fromkeys(piece for model in models for piece in _made_pieces(model))
    start_is_copy = start in (pad, unk, eos) or of_id[start] in made
    others = sorted({*of_id} - {pad, unk, eos} - (set() if start_is_copy else {start}))
    pieces = list(SPECIAL_PIECES)
    for i in others:
        # A language code is a separate word at the start of a line, so SentencePiece puts its mark before it.
        name = _WORD + of_id[i] if _LANGUAGE_CODE.match(of_id[i]) else of_id[i]
        while name in SPECIAL_PIECES:
            name += "_"
        pieces.append(name)
    known = {_foreign_name(piece) for piece in pieces}
    unknown = [piece for piece in made if _foreign_name(piece) not in known]
    rows = np.array([pad, unk, start, eos, *others, *[unk] * len(unknown)])
    is_copy = [False, False, start_is_copy, False] + [False] * len(others) + [True] * len(unknown)
    return Layout(pieces + unknown, rows, np.array(is_copy))


def foreign_vocabulary(pieces: Sequence[str]) -> dict[str, int]:
    """The contents of `vocab.json`, from pieces by id.

    Language codes have no word mark, because Marian's tokenizer removes them from a line before SentencePiece.
    """
    return {_foreign_name(piece): i for i, piece in enumerate(pieces)}


def _foreign_name(piece):
    without_mark = piece.removeprefix(_WORD)
    return without_mark if _LANGUAGE_CODE.match(without_mark) else piece


def _made_pieces(model):
    """The pieces that the model can split text into."""
    kinds = (model.SentencePiece.NORMAL, model.SentencePiece.USER_DEFINED, model.SentencePiece.BYTE)
    return [piece.piece for piece in model.pieces if piece.type in kinds]


def rewritten(model, pieces: Sequence[str]) -> bytes:
    """Rewrites a parsed SentencePiece model, so that its ids are indices of a vocabulary. It splits text as before.

    Pieces that the model does not have are added. Language codes are added as user-defined pieces, which are recognized
    anywhere in a line. All others are added as unused pieces, which can be decoded but do not occur in split text. A
    run of unknown characters therefore stays one unknown piece. Marian looks up the run in its vocabulary, and finds
    it if it is a piece of the other side. The vocabulary starts with the special pieces.
    """
    kind = model.SentencePiece
    own = {piece.piece: (piece.score, piece.type) for piece in model.pieces}
    special = dict(zip(SPECIAL_PIECES, (kind.CONTROL, kind.UNKNOWN, kind.CONTROL, kind.CONTROL), strict=True))
    unlikely = min(piece.score for piece in model.pieces) - 10  # SentencePiece's score of unknown characters.
    del model.pieces[:]
    for piece in pieces:
        score, its_kind = own.get(piece, (unlikely, kind.UNUSED))
        if _foreign_name(piece) != piece:
            its_kind = kind.USER_DEFINED
        if piece in special:
            score, its_kind = 0.0, special[piece]
        model.pieces.add(piece=piece, score=score, type=its_kind)
    spec = model.trainer_spec
    spec.pad_id, spec.unk_id, spec.bos_id, spec.eos_id = PAD_ID, UNK_ID, BOS_ID, EOS_ID
    spec.pad_piece, spec.unk_piece, spec.bos_piece, spec.eos_piece = SPECIAL_PIECES
    spec.vocab_size = len(pieces)
    return model.SerializeToString()
