"""Quality of exports that compute with fewer bits: they need not find the same tokens, only as good ones."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from keras_transformer.decoding import BeamSearch
from keras_transformer.export.verify.equality import teacher_forced_scores
from keras_transformer.text.batching import pad
from keras_transformer.text.translator import Translation

#: Nats a token that translations may be less likely than the Keras model's own, by its own judgement, on average.
MOST_LOSS = 0.1
#: Share of its size by which a score may be wrong, on average.
MOST_SCORE_ERROR = 0.2
#: BLEU that may be lost.
MOST_BLEU_LOSS = 0.3


@dataclasses.dataclass(frozen=True)
class LikelihoodReport:
    """What the Keras model thinks of an exported program's translations.

    Attributes:
        sentences: compared.
        equal: of the tokens that the Keras model finds.
        loss: nats a token that the others are less likely than its own, on average over all sentences, of
            which those that are likelier count 0.
        score_error: by how much the program's scores differ from the Keras model's of the same tokens, as
            a share of them, on average.
        passed: whether the export may appear.
    """

    sentences: int
    equal: int
    loss: float
    score_error: float

    def __str__(self):
        return (
            f"approximate: {self.equal} of {self.sentences} sentences equal, {self.loss:.4f} nats a token less likely "
            f"to the Keras model, scores {self.score_error:.1%} off"
        )

    @property
    def passed(self) -> bool:
        """Whether the rule holds."""
        return self.loss < MOST_LOSS and self.score_error < MOST_SCORE_ERROR


@dataclasses.dataclass(frozen=True)
class BleuLoss:
    """What an exported program's translations score against a reference.

    Attributes:
        sentences: translated.
        bleu: of the program, 0 to 100.
        keras_bleu: of the Keras model.
        passed: whether the export may appear.
    """

    sentences: int
    bleu: float
    keras_bleu: float

    def __str__(self):
        return f"approximate: BLEU {self.bleu:.2f} on {self.sentences} sentences, Keras {self.keras_bleu:.2f}"

    @property
    def passed(self) -> bool:
        """Whether the rule holds."""
        return self.bleu >= self.keras_bleu - MOST_BLEU_LOSS


def compare_likelihood(model, strategy: BeamSearch, program, batches: list[np.ndarray]) -> LikelihoodReport:
    """Lets the Keras model judge translations.

    Args:
        model: the Keras `Transformer`.
        strategy: the search that was exported.
        program: the exported program's client, with `search` as in `Translator.search`.
        batches: int32 matrices of source ids.

    Returns:
        `LikelihoodReport`.
    """
    plain = dataclasses.replace(strategy, length_penalty=1.0, length_penalty_kind="length")  # A token's share.
    losses, errors, sizes, equal = [], [], [], 0
    for source in batches:
        expected = [np.trim_zeros(row, "b") for row in model.generate(source, strategy).tokens[:, 0]]
        tokens, found_scores = program.search(source)
        found = [np.trim_zeros(row, "b") for row in tokens[:, 0]]
        equal += sum(np.array_equal(*pair) for pair in zip(expected, found, strict=True))
        own, other = (teacher_forced_scores(model, source, pad(tokens), plain) for tokens in (expected, found))
        losses += [*np.maximum(own - other, 0)]
        scores = teacher_forced_scores(model, source, pad(found), strategy)
        errors += [*np.abs(scores - found_scores[:, 0])]
        sizes += [*np.abs(scores)]
    return LikelihoodReport(len(losses), equal, float(np.mean(losses)), float(np.sum(errors) / np.sum(sizes)))


def compare_bleu(expected: Sequence[Translation], found: Sequence[Translation], reference: Sequence[str]) -> BleuLoss:
    """Compares translations by a reference.

    Args:
        expected: the Keras model's.
        found: the exported program's.
        reference: of as many lines.

    Returns:
        `BleuLoss`.

    Raises:
        ValueError: if there are not as many lines of each, or none.
    """
    import sacrebleu

    if len(expected) != len(reference) or not expected:
        raise ValueError(
            f"As many lines of `source` as of `reference` are needed. Received: {len(expected)} and {len(reference)}"
        )
    scores = [
        sacrebleu.corpus_bleu([translation.text for translation in translations], [reference]).score
        for translations in (found, expected)
    ]
    return BleuLoss(len(expected), *scores)
