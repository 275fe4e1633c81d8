"""SentencePiece models from tokenizer.json.

transformers 5 saves most tokenizers only as this file of the library tokenizers. The file contains what the
SentencePiece model contained: the pieces with their scores, or in the order of their merges, and the normalization.
"""

import base64
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from keras_transformer.export.importer.json_files import read_json
from keras_transformer.export.importer.piece_ids import FAIRSEQ
from keras_transformer.export.importer.vocabulary import WORD, parse

#: Way to assign ids -> the pieces at the start of the vocabulary, and those of the SentencePiece model in their place.
_STARTS = {"fairseq": (FAIRSEQ, ("<unk>", "<s>", "</s>"))}
_BYTES = {f"<0x{byte:02X}>" for byte in range(256)}
#: Fields of a BPE model that SentencePiece does not have.
_NOT_SUPPORTED = ("continuing_subword_prefix", "end_of_word_suffix", "ignore_merges")


def read_fast_tokenizer(path: Path, way: str, of_training: re.Pattern):
    """Reads tokenizer.json as the parsed SentencePiece model of which it was made.

    A vocabulary with all bytes has byte fallback, as in the training of the model. The field `byte_fallback` is not
    read, because transformers 5 writes `false` for mT5.

    Args:
        path: the file.
        way: which piece has which id: `"sentencepiece"` or `"fairseq"`; see `Vocabulary`.
        of_training: pattern of pieces that occur in the training only.

    Returns:
        A `ModelProto`, without the pieces at the end of the vocabulary that are special, such as languages, or of the
        training.

    Raises:
        ValueError: if the file was not made of a SentencePiece model.
    """
    from sentencepiece.sentencepiece_model_pb2 import ModelProto

    content = read_json(path)
    is_special = {token["content"]: token["special"] for token in content["added_tokens"]}
    is_bpe = "merges" in content["model"]
    scores = (_of_bpe if is_bpe else _of_unigram)(content["model"])
    pieces = [*scores]
    while pieces and (is_special.get(pieces[-1]) or of_training.fullmatch(pieces[-1])):
        pieces.pop()
    start, start_of_sentencepiece = _STARTS.get(way, ((), ()))
    if tuple(pieces[: len(start)]) != start:
        raise ValueError(f"the vocabulary must start with {', '.join(start)}. Received: {', '.join(pieces[:4])}")
    if "<unk>" not in pieces:
        raise ValueError("the vocabulary must contain <unk>")
    proto, kind = ModelProto(), ModelProto.SentencePiece
    spec = proto.trainer_spec
    spec.model_type, spec.byte_fallback = spec.BPE if is_bpe else spec.UNIGRAM, {*pieces} >= _BYTES
    unlikely = min(score for score in scores.values() if score is not None) - 10
    for piece in (*start_of_sentencepiece, *pieces[len(start) :]):
        score = scores[piece]
        if piece == "<unk>":
            its_kind = kind.UNKNOWN
        elif spec.byte_fallback and piece in _BYTES:
            its_kind = kind.BYTE
        elif piece in is_special:
            its_kind = kind.CONTROL if is_special[piece] else kind.USER_DEFINED
        else:
            its_kind = kind.UNUSED if score is None else kind.NORMAL
        proto.pieces.add(piece=piece, score=unlikely if score is None else score, type=its_kind)
    _read_normalization(content, proto.normalizer_spec)
    return parse(proto.SerializeToString())


def _of_unigram(model: Mapping[str, Any]) -> dict[str, float | None]:
    """The score of each piece, by id."""
    if model.get("type", "Unigram") != "Unigram":
        raise ValueError(f"a model of type {model['type']} is not supported")
    scores = dict(model["vocab"])
    if len(scores) != len(model["vocab"]):
        raise ValueError("a piece is in the vocabulary twice")
    return scores


def _of_bpe(model: Mapping[str, Any]) -> dict[str, float | None]:
    """The score of each piece, by id; `None` if text cannot contain the piece.

    SentencePiece first merges the two pieces that make the piece with the largest score.
    """
    if others := [name for name in _NOT_SUPPORTED if model.get(name)]:
        raise ValueError(f"{', '.join(others)} of a BPE model is not supported")
    by_id = sorted(model["vocab"], key=model["vocab"].__getitem__)
    if [model["vocab"][piece] for piece in by_id] != [*range(len(by_id))]:
        raise ValueError("the vocabulary must have all ids from 0 on")
    # Old files have a text with a space for a pair of pieces.
    merges = (merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"])
    scores = {piece: -float(i) for i, piece in enumerate(dict.fromkeys(map("".join, merges)))}
    of_character = -float(len(scores))
    return {piece: scores.get(piece, of_character if len(piece) == 1 else None) for piece in by_id}


def _read_normalization(content: Mapping[str, Any], spec) -> None:
    """Sets the fields of a `NormalizerSpec`."""
    spec.add_dummy_prefix = spec.remove_extra_whitespaces = spec.escape_whitespaces = False
    for step in (*_steps(content["normalizer"]), *_steps(content["pre_tokenizer"])):
        match step:
            case {"type": "Precompiled", "precompiled_charsmap": charsmap}:
                spec.precompiled_charsmap = base64.b64decode(charsmap, validate=True)
            case {"type": "Metaspace", "replacement": replacement} if replacement == WORD:
                spec.escape_whitespaces = True
                old = step.get("add_prefix_space", True)
                spec.add_dummy_prefix = step.get("prepend_scheme", "always" if old else "never") != "never"
            case {"type": "Strip" | "WhitespaceSplit"} | {"type": "Replace", "pattern": {"Regex": " {2,}"}}:
                spec.remove_extra_whitespaces = True
            case _:
                raise ValueError(f"a step of the normalization is not supported. Received: {step}")


def _steps(step: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    """The steps of a normalizer or a pre-tokenizer, which may be a sequence of others."""
    if step and step["type"] == "Sequence":
        for part in step["normalizers" if "normalizers" in step else "pretokenizers"]:
            yield from _steps(part)
    elif step:
        yield step
