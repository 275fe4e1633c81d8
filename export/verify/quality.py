"""Quality of quantized exports, whose translations may differ from the Keras model's but must be as good."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from keras_transformer.checks import require, same_number
from keras_transformer.counting import counted
from keras_transformer.export.verify.equality import without_padding
from keras_transformer.export.verify.keras_search import KerasSearch
from keras_transformer.translate.batching import pad
from keras_transformer.translate.translation import Translation

#: Maximum average loss of log probability, in nats per token.
MOST_LOSS = 0.1
#: Maximum average error of the scores, relative to their size.
MOST_SCORE_ERROR = 0.2
#: Maximum loss of BLEU.
MOST_BLEU_LOSS = 0.3


@dataclasses.dataclass(frozen=True)
class LikelihoodReport:
    """Log probabilities that the Keras model gives to an exported program's translations.

    Attributes:
        sentences: number of compared sentences.
        equal: sentences with the same tokens as the Keras model's translation.
        loss: average difference between the log probabilities of the Keras model's translation and of the program's,
            in nats per token. A sentence with a more probable translation counts as 0.
        score_error: average difference between the program's score and the Keras model's score of the same tokens,
            relative to the scores. A score near zero, of a confident model, counts as `MOST_LOSS` per token.
    """

    sentences: int
    equal: int
    loss: float
    score_error: float

    def __str__(self):
        return (
            f"approximate: {self.equal} of {counted(self.sentences, 'sentence')} equal, "
            f"average loss {self.loss:.4f} nats per token, average score error {self.score_error:.1%}"
        )

    @property
    def passed(self) -> bool:
        """Whether the export is accepted."""
        return self.loss < MOST_LOSS and self.score_error < MOST_SCORE_ERROR


@dataclasses.dataclass(frozen=True)
class BleuLoss:
    """BLEU of an exported program and of the Keras model, with the same reference.

    Attributes:
        sentences: number of translated sentences.
        bleu: BLEU of the program, 0 to 100.
        keras_bleu: BLEU of the Keras model.
    """

    sentences: int
    bleu: float
    keras_bleu: float

    def __str__(self):
        sentences = counted(self.sentences, "sentence")
        return f"approximate: BLEU {self.bleu:.2f} on {sentences}, Keras {self.keras_bleu:.2f}"

    @property
    def passed(self) -> bool:
        """Whether the export is accepted."""
        return self.bleu >= self.keras_bleu - MOST_BLEU_LOSS


def compare_likelihood(expected: KerasSearch, program, batches: list[np.ndarray]) -> LikelihoodReport:
    """Compares translations of `program.search` by the log probabilities that the Keras model gives to them."""
    losses, errors, sizes, equal = [], [], [], 0
    for source, (our_tokens, _) in zip(batches, [expected.search(source) for source in batches], strict=True):
        their_tokens, found_scores = program.search(source)
        ours, theirs = (
            [without_padding(row, expected.pad_id) for row in tokens[:, 0]] for tokens in (our_tokens, their_tokens)
        )
        equal += sum(np.array_equal(*pair) for pair in zip(ours, theirs, strict=True))
        candidates = expected.candidates(source)
        own, other = (
            expected.log_probs(source, pad(rows, expected.pad_id), candidates).sum(axis=1) / [*map(len, rows)]
            for rows in (ours, theirs)
        )
        losses += [*np.maximum(own - other, 0)]
        scores = expected.forced_scores(source, pad(theirs, expected.pad_id), candidates)
        errors += [*np.abs(scores - found_scores[:, 0])]
        sizes += [*np.maximum(np.abs(scores), MOST_LOSS * np.array([*map(len, theirs)]))]
    return LikelihoodReport(len(losses), equal, float(np.mean(losses)), float(np.sum(errors) / np.sum(sizes)))


def compare_bleu(expected: Sequence[Translation], found: Sequence[Translation], reference: Sequence[str]) -> BleuLoss:
    """Compares the BLEU of translations of the Keras model and of the exported program."""
    import sacrebleu

    require(same_number("lines", smallest=1, source=expected, reference=reference))
    # Lines without 4-grams, such as single words, are compared by shorter n-grams. Otherwise their BLEU would be 0.
    scores = [
        sacrebleu.corpus_bleu([one.text for one in translations], [reference], use_effective_order=True).score
        for translations in (found, expected)
    ]
    return BleuLoss(len(expected), *scores)
