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
from keras_transformer.export.importer.vocabulary import parse

#: Way to assign ids -> the pieces at the start of the vocabulary, and those of the SentencePiece model in their place.
_STARTS = {"fairseq": (FAIRSEQ, ("<unk>", "<s>", "</s>"))}
_BYTE = re.compile("<0x[0-9A-F]{2}>")


def read_fast_tokenizer(path: Path, way: str):
    """Reads tokenizer.json as the parsed SentencePiece model of which it was made.

    Args:
        path: the file.
        way: which piece has which id: `"sentencepiece"` or `"fairseq"`; see `Vocabulary`.

    Returns:
        A `ModelProto`, without the special pieces at the end of the vocabulary, such as languages.

    Raises:
        ValueError: if the file was not made of a SentencePiece model.
    """
    from sentencepiece.sentencepiece_model_pb2 import ModelProto

    content = read_json(path)
    is_special = {token["content"]: token["special"] for token in content["added_tokens"]}
    proto = ModelProto()
    scores, unknown = _read_model(content["model"], proto.trainer_spec)
    pieces = [*scores]
    while pieces and is_special.get(pieces[-1]):
        pieces.pop()
    theirs, ours = _STARTS.get(way, ((), ()))
    if tuple(pieces[: len(theirs)]) != theirs:
        raise ValueError(f"the vocabulary must start with {', '.join(theirs)}. Received: {', '.join(pieces[:4])}")
    kind, has_bytes = ModelProto.SentencePiece, proto.trainer_spec.byte_fallback
    for piece in (*ours, *pieces[len(theirs) :]):
        if piece == unknown:
            its_kind = kind.UNKNOWN
        elif has_bytes and _BYTE.fullmatch(piece):
            its_kind = kind.BYTE
        elif piece in is_special:
            its_kind = kind.CONTROL if is_special[piece] else kind.USER_DEFINED
        else:
            its_kind = kind.UNUSED if scores[piece] is None else kind.NORMAL
        proto.pieces.add(piece=piece, score=scores[piece] or 0.0, type=its_kind)
    _read_normalization(content, proto.normalizer_spec)
    return parse(proto.SerializeToString())


def _read_model(model: Mapping[str, Any], spec) -> tuple[dict[str, float | None], str]:
    """Sets fields of a `TrainerSpec`.

    Returns:
        The score of each piece, by id, or `None` if text cannot contain the piece; and the unknown piece.
    """
    spec.byte_fallback = model.get("byte_fallback", False)
    if "merges" in model:
        spec.model_type = spec.BPE
        # Old files have a text with a space. SentencePiece merges any two pieces to the one with the largest score.
        merges = (merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"])
        scores = {piece: -float(i) for i, piece in enumerate(dict.fromkeys(map("".join, merges)))}
        by_id = sorted(model["vocab"], key=model["vocab"].__getitem__)
        of_character = -float(len(scores))
        unmerged = {piece: of_character if len(piece) == 1 else None for piece in by_id}
        return {piece: scores.get(piece, score) for piece, score in unmerged.items()}, model["unk_token"]
    if model.get("type", "Unigram") != "Unigram":
        raise ValueError(f"a model of type {model['type']} is not supported")
    spec.model_type = spec.UNIGRAM
    return dict(model["vocab"]), model["vocab"][model["unk_id"]][0]


def _read_normalization(content: Mapping[str, Any], spec) -> None:
    """Sets the fields of a `NormalizerSpec`."""
    spec.add_dummy_prefix = spec.remove_extra_whitespaces = spec.escape_whitespaces = False
    for step in (*_steps(content["normalizer"]), *_steps(content["pre_tokenizer"])):
        match step:
            case {"type": "Precompiled", "precompiled_charsmap": charsmap}:
                spec.precompiled_charsmap = base64.b64decode(charsmap, validate=True)
            case {"type": "Metaspace", "replacement": "\N{LOWER ONE EIGHTH BLOCK}"}:
                spec.escape_whitespaces = True
                old = step.get("add_prefix_space", True)
                spec.add_dummy_prefix = step.get("prepend_scheme", "always" if old else "never") != "never"
            case {"type": "Strip" | "WhitespaceSplit"} | {"type": "Replace", "pattern": {"Regex": " {2,}"}}:
                spec.remove_extra_whitespaces = True
            case _:
                raise ValueError(f"a step that SentencePiece does not have. Received: {step}")


def _steps(step: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    """The steps of a normalizer or a pre-tokenizer, which may be a sequence of others."""
    if step and step["type"] == "Sequence":
        for part in step.get("normalizers") or step["pretokenizers"]:
            yield from _steps(part)
    elif step:
        yield step
