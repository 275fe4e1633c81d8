"""The vocabulary of a Marian model in this package's order, inside its SentencePiece models.

Marian's `vocab.json` gives each piece an id of its own, shared by both sides, whatever the ids in the two
SentencePiece models. Here the models themselves are rewritten: each lists the whole vocabulary, so that its ids
are the model's, and every program that runs a SentencePiece model runs these. The special pieces come first, as
everywhere in this package.
"""

import re
import warnings
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from keras_transformer.text.tokenization import SPECIAL_PIECES

#: The largest share of a SentencePiece model's pieces that a vocabulary it belongs to may lack.
_MOST_LACKING = 0.02
_LANGUAGE_CODE = re.compile(r"^>>.+<<$")
_WORD = "\N{LOWER ONE EIGHTH BLOCK}"  # SentencePiece's mark before a word.


class Layout(NamedTuple):
    """Our ids and what they are in Marian's vocabulary."""

    pieces: list[str]  # By our id.
    rows: np.ndarray  # int (vocab_size,): the foreign id whose row of the embedding it takes.
    is_copy: np.ndarray  # boolean (vocab_size,): of another piece, which the model makes instead.


def parse(model: bytes):
    """A SentencePiece model as a message.

    Args:
        model: serialised.

    Raises:
        ValueError: if it is none.
    """
    import sentencepiece
    from google.protobuf.message import DecodeError
    from sentencepiece.sentencepiece_model_pb2 import ModelProto

    try:
        sentencepiece.SentencePieceProcessor(model_proto=model)
        return ModelProto.FromString(model)
    except (RuntimeError, DecodeError) as error:
        raise ValueError("not a SentencePiece model") from error


def vocabulary_faults(vocab: Mapping[str, int], config: Mapping, models: Mapping[str, object]) -> list[str]:
    """What is wrong with a vocabulary.

    Args:
        vocab: piece -> id.
        config: Marian's; what it lacks is not compared.
        models: parsed SentencePiece models, by the names of their files.

    Returns:
        One sentence a fault.
    """
    problems, size = [], config.get("vocab_size")
    size = size if type(size) is int else len(vocab)
    odd = sorted(set(range(len(vocab))) ^ set(vocab.values()))
    if odd or len(vocab) != size:
        problems.append(
            f"vocab.json must give each id in [0, {size}) to one piece, `vocab_size` being {size}. "
            f"Received: {len(vocab)} pieces; of their numbers missing or outside: {odd[:5]}"
        )
    for piece, name in (("<unk>", None), ("<pad>", "pad_token_id"), ("</s>", "eos_token_id")):
        if piece not in vocab:
            problems.append(f"vocab.json must hold {piece}")
        elif vocab[piece] != config.get(name, vocab[piece]):
            problems.append(
                f"`{name}` must be the id of {piece} in vocab.json, {vocab[piece]}. Received: {config[name]}"
            )
    for name, model in models.items():
        if len(_lacking(vocab, model)) > _MOST_LACKING * len(_made_pieces(model)):
            problems.append(f"vocab.json does not match {name}: it {_of_lacking(vocab, model)}")
    return problems


def warn_of_lacking(vocab: Mapping[str, int], models: Mapping[str, object]) -> None:
    """Warns of pieces that text is cut into and that a vocabulary lacks, which Marian takes for unknown.

    Args:
        vocab: piece -> id, in which `vocabulary_faults` has found none.
        models: parsed SentencePiece models, by the names of their files.
    """
    for name, model in models.items():
        if _lacking(vocab, model):
            warnings.warn(f"Pieces of {name} become <unk>: vocab.json {_of_lacking(vocab, model)}", stacklevel=4)


def _lacking(vocab, model):
    return [piece for piece in _made_pieces(model) if _foreign_name(piece) not in vocab]


def _of_lacking(vocab, model):
    lacking, all_pieces = _lacking(vocab, model), _made_pieces(model)
    return f"lacks {len(lacking)} of {len(all_pieces)} pieces, such as {', '.join(map(repr, lacking[:3]))}"


def lay_out(vocab: Mapping[str, int], config: Mapping, models: Sequence) -> Layout:
    """Our ids of a vocabulary in which `vocabulary_faults` has found none.

    The start token, for which Marian takes padding, becomes a piece of its own; where it is padding or a piece that
    text is cut into, it is a copy of that. Pieces of the SentencePiece models that the vocabulary lacks, which Marian
    takes for unknown, are copies of the unknown piece.

    Args:
        vocab: piece -> id.
        config: Marian's.
        models: parsed SentencePiece models.

    Returns:
        `Layout`.
    """
    pad, unk, start, eos = config["pad_token_id"], vocab["<unk>"], config["decoder_start_token_id"], vocab["</s>"]
    of_id = {i: piece for piece, i in vocab.items()}
    made = dict.fromkeys(piece for model in models for piece in _made_pieces(model))
    start_is_copy = start in (pad, unk, eos) or of_id[start] in made
    others = sorted({*of_id} - {pad, unk, eos} - (set() if start_is_copy else {start}))
    pieces = list(SPECIAL_PIECES)
    for i in others:
        # A code of a language stands alone at the beginning, where SentencePiece puts its mark.
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
    """`vocab.json` of our pieces: Marian's tokenizer takes codes of languages off before SentencePiece sees a line.

    Args:
        pieces: by id.
    """
    return {_foreign_name(piece): i for i, piece in enumerate(pieces)}


def _foreign_name(piece):
    without_mark = piece.removeprefix(_WORD)
    return without_mark if _LANGUAGE_CODE.match(without_mark) else piece


def _made_pieces(model):
    """The pieces that the model cuts text into."""
    kinds = (model.SentencePiece.NORMAL, model.SentencePiece.USER_DEFINED, model.SentencePiece.BYTE)
    return [piece.piece for piece in model.pieces if piece.type in kinds]


def rewritten(model, pieces: Sequence[str]) -> bytes:
    """A SentencePiece model that cuts text as before, and whose ids are the places in a vocabulary.

    Of pieces that are not its own it makes codes of languages, which it recognises anywhere in a line; the others it
    joins, but never makes. So a run of characters that it does not know stays one unknown piece, where Marian looks
    for the run in its vocabulary and finds it there if it is a piece of the other side.

    Args:
        model: parsed; changed in place.
        pieces: the vocabulary, which begins with the special pieces and holds the model's own.

    Returns:
        The serialised model.
    """
    kind = model.SentencePiece
    own = {piece.piece: (piece.score, piece.type) for piece in model.pieces}
    special = dict(zip(SPECIAL_PIECES, (kind.CONTROL, kind.UNKNOWN, kind.CONTROL, kind.CONTROL), strict=True))
    unlikely = min(piece.score for piece in model.pieces) - 10  # What SentencePiece gives the unknown.
    del model.pieces[:]
    for piece in pieces:
        score, its_kind = own.get(piece, (unlikely, kind.UNUSED))
        if _foreign_name(piece) != piece:
            its_kind = kind.USER_DEFINED
        if piece in special:
            score, its_kind = 0.0, special[piece]
        model.pieces.add(piece=piece, score=score, type=its_kind)
    spec = model.trainer_spec
    spec.pad_id, spec.unk_id, spec.bos_id, spec.eos_id = range(4)
    spec.pad_piece, spec.unk_piece, spec.bos_piece, spec.eos_piece = SPECIAL_PIECES
    spec.vocab_size = len(pieces)
    return model.SerializeToString()
