"""Comparison of an imported model with its original in transformers: token ids, logits and searches."""

import dataclasses
import itertools
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np

from keras_transformer.config import BOS_ID, EOS_ID, PAD_ID
from keras_transformer.counting import counted
from keras_transformer.decoding import BeamSearch, GreedySearch, TextConstraints
from keras_transformer.export.importer.original import LINES, Original
from keras_transformer.export.verify.equality import MOST_TIES, TIE, VerificationError, without_padding
from keras_transformer.export.verify.keras_search import KerasSearch
from keras_transformer.storage.languages import Direction, Languages
from keras_transformer.text.tokenization import Tokenizer
from keras_transformer.translate.batching import pad

#: Number of sentences whose hypotheses are compared, of those whose logits are, and of lines with other ids to print.
SENTENCES, OF_LOGITS, SHOWN = 32, 8, 3
#: Maximum length of a source, and how much longer a hypothesis may be.
SOURCE_LENGTH, EXTRA_LENGTH = 24, 8
#: Maximum length of the targets whose logits are compared, and of the pieces of lines that are made.
TARGET_LENGTH, MADE_LENGTH = 9, 20
#: Maximum difference of logits, as a fraction of the largest one.
MOST_DIFFERENCE = 1e-4
#: Number of directions of a model of several languages.
DIRECTIONS = 4


@dataclasses.dataclass(frozen=True)
class Comparison:
    """How an imported model compares with its original.

    Attributes:
        transformers: version of transformers.
        lines: number of lines whose token ids are compared.
        lines_with_other_ids: lines with other ids than those of transformers.
        logits_difference: largest difference of the logits, as a fraction of the largest logit.
        sentences: number of sentences whose hypotheses are compared.
        hypotheses: number of compared hypotheses: of greedy search and of beam search for each sentence.
        different_hypotheses: number of hypotheses of transformers that differ from one another.
        equal: hypotheses with equal tokens.
        ties: hypotheses with other tokens, between which rounding decides: their teacher-forced scores differ by less
            than `TIE`, or a search of this sentence alone, outside of the batch, gives equal ones.
        at_limit: hypotheses of transformers that end at the length limit.
    """

    transformers: str
    lines: int
    lines_with_other_ids: int
    logits_difference: float
    sentences: int
    hypotheses: int
    different_hypotheses: int
    equal: int
    ties: int
    at_limit: int

    def __str__(self):
        return (
            f"logits differ by at most {self.logits_difference:.1e} of the largest one; {self.equal} of "
            f"{self.hypotheses} hypotheses of {counted(self.sentences, 'sentence')} equal, "
            f"{counted(self.ties, 'tie')} (different hypotheses: {self.different_hypotheses}, at the length limit: "
            f"{self.at_limit})"
        )

    @property
    def passed(self) -> bool:
        """Whether the import is accepted. One tie always is, because the number of sentences is small."""
        all_explained = self.equal + self.ties == self.hypotheses
        few_ties = self.ties <= max(1, MOST_TIES * self.hypotheses)
        return all_explained and few_ties and self.logits_difference <= MOST_DIFFERENCE


def compare_with_original(folder: Path, checkpoint, lines: Sequence[str] | None = None) -> Comparison:
    """Compares an imported model with its original, and prints the result on standard error.

    Args:
        folder: the folder of the original.
        checkpoint: the `Checkpoint` that was read from it.
        lines: the text to compare. Default: random pieces of the vocabulary.

    Raises:
        VerificationError: if the pieces, the logits or the hypotheses differ.
        ValueError: if transformers cannot load the model.
    """
    model, tokenizers, languages, _ = checkpoint
    original = Original(folder, tokenizers)
    if unknown := original.unknown_ids:
        pairs = itertools.islice(unknown.items(), 3)
        sample = ", ".join(f"id {i} has {repr(piece) if piece else 'no piece'}" for i, piece in pairs)
        raise _error(f"the pieces of {counted(len(unknown), 'id')} differ. In transformers, {sample}")
    lines = _made_lines(tokenizers[0]) if lines is None else lines
    turns = [*itertools.islice(itertools.cycle(_directions(languages)), len(lines))]
    rows = [turn.source_ids(ids) for turn, ids in zip(turns, tokenizers[0].encode(lines), strict=True)]
    other_ids = _compare_ids(original, tokenizers[0].pieces, lines, turns, rows)
    chosen = [i for i, line in enumerate(lines) if line.strip()][:SENTENCES]
    source = pad([_cut(rows[i], model.max_length) for i in chosen])
    prefix = pad([turns[i].target_prefix for i in chosen])
    original.load()
    difference = _logits_difference(model, original, source[:OF_LOGITS], prefix[:OF_LOGITS])
    if not difference <= MOST_DIFFERENCE:  # True for NaN.
        raise _error(f"the logits differ by {difference:.1e} of the largest one, more than {MOST_DIFFERENCE:.0e}")
    found = _compare_searches(model, tokenizers[1].text_constraints.forbidden, original, source, prefix)
    comparison = Comparison(original.version, len(lines), other_ids, difference, len(chosen), **found)
    if not comparison.passed:
        raise _error(str(comparison))
    print(f"The imported model agrees with that of transformers {original.version}: {comparison}", file=sys.stderr)
    return comparison


def _error(difference):
    return VerificationError(f"The imported model does not agree with that of transformers: {difference}")


def _made_lines(tokenizer: Tokenizer) -> list[str]:
    """Lines of random pieces, which the tokenizer may divide otherwise."""
    draw = random.Random(0)
    rows = (draw.choices(tokenizer.text_ids, k=draw.randint(1, MADE_LENGTH)) for _ in range(LINES))
    return [line.strip() for line in tokenizer.decode(rows)]


def _directions(languages: Languages) -> list[Direction]:
    """The default direction, if there is one, and random ones of a model of several languages."""
    found = [languages.direction()] if languages.has_default else []
    sources, targets = [*languages.source_tokens] or [languages.source], [*languages.target_tokens]
    draw = random.Random(0)
    while targets and len(found) < DIRECTIONS:
        found.append(languages.direction(draw.choice(sources), draw.choice(targets)))
    return found


def _compare_ids(original, pieces, lines, turns, rows) -> int:
    """The number of lines with other ids than those of transformers. Prints some of them."""
    theirs = [original.encode(line, turn) for line, turn in zip(lines, turns, strict=True)]
    unlike = [i for i in range(len(lines)) if rows[i] != theirs[i]]
    print(f"Token ids: {len(lines) - len(unlike)} of {counted(len(lines), 'line')} equal", file=sys.stderr)
    for i in unlike[:SHOWN]:
        ours, others = (" ".join(pieces[j] if j >= 0 else "?" for j in ids) for ids in (rows[i], theirs[i]))
        print(f"{lines[i]!r} becomes {ours}; in transformers {others}", file=sys.stderr)
    return len(unlike)


def _cut(ids: list[int], max_length: int | None) -> list[int]:
    """A source of which a hypothesis may have `EXTRA_LENGTH` more tokens."""
    longest = min(SOURCE_LENGTH, max(2, (max_length or SOURCE_LENGTH + EXTRA_LENGTH) - EXTRA_LENGTH))
    return ids if len(ids) <= longest else [*ids[: longest - 1], EOS_ID]


def _logits_difference(model, original, source, prefix) -> float:
    """The largest difference of the logits, as a fraction of the largest one. The targets have the ids of sources."""
    start = np.full((len(source), 1), BOS_ID, "int32")
    target = np.concatenate([start, prefix, np.flip(source, axis=0)], axis=1)[:, :TARGET_LENGTH]
    expected = original.logits(source, target)
    found = keras.ops.convert_to_numpy(model({"source": source, "target": target}, training=False))
    is_token = target != PAD_ID
    expected, found = expected[is_token], found[..., original.live_ids][is_token]
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def _compare_searches(model, forbidden, original, source, prefix) -> dict[str, int]:
    """The fields of `Comparison` about greedy search and beam search, among the tokens that the import may generate."""
    constraints = TextConstraints(model.vocab_size, forbidden)
    equal = ties = at_limit = 0
    different = set()
    for strategy in (GreedySearch(extra_length=EXTRA_LENGTH), BeamSearch(extra_length=EXTRA_LENGTH, length_penalty=0)):
        both = _Searches(KerasSearch(model, strategy, text_constraints=constraints), original)
        ours, theirs, limits = both.search(source, prefix)
        unlike = [i for i in range(len(source)) if ours[i] != theirs[i]]
        equal += len(source) - len(unlike)
        ties += sum(both.is_tie(source[i : i + 1], prefix[i : i + 1], ours[i], theirs[i]) for i in unlike)
        different |= {tuple(row[prefix.shape[1] :]) for row in theirs}
        at_limit += sum(len(row) >= limit for row, limit in zip(theirs, limits, strict=True))
    counts = {"different_hypotheses": len(different), "equal": equal, "ties": ties, "at_limit": at_limit}
    return {"hypotheses": 2 * len(source), **counts}


class _Searches(NamedTuple):
    """A search by the import, and the same one by transformers."""

    ours: KerasSearch
    original: Original

    def search(self, source, prefix):
        """The best hypotheses of the import and of transformers, and their length limits."""
        options = {"text_constraints": self.ours.text_constraints, **({"prefix": prefix} if prefix.size else {})}
        found = self.ours.model.generate(source, self.ours.strategy, **options).tokens[:, 0]
        ours = [without_padding(row, PAD_ID).tolist() for row in found]
        limits = (source != PAD_ID).sum(axis=1) + EXTRA_LENGTH
        return ours, self.original.search(source, prefix, limits, self.ours.strategy.beam_size), limits.tolist()

    def is_tie(self, source, prefix, ours, theirs) -> bool:
        """Whether rounding decides between two hypotheses of a source."""
        both = pad([ours, theirs])
        log_probs = self.ours.log_probs(np.repeat(source, 2, axis=0), both)
        if self.ours.strategy.beam_size == 1:  # After a tie of two tokens, greedy hypotheses are unlike.
            one, other = log_probs[:, (both[0] != both[1]).argmax()]
        else:
            one, other = log_probs.sum(axis=1)
        return bool(abs(one - other) < TIE) or self._is_equal_alone(source, prefix)

    def _is_equal_alone(self, source, prefix) -> bool:
        """Whether the hypotheses are equal outside of the batch, where only rounding differs.

        If two candidates at the end of a beam are nearly equal, rounding decides which one stays.
        """
        ours, theirs, _ = self.search(source[:, source[0] != PAD_ID], prefix)
        return ours == theirs
