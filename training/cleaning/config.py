"""Options of the cleaning, with the defaults of `prepare`; those of `distill` are in its own configuration."""

import dataclasses
import math
from typing import Literal

from keras_transformer.checks import at_least, require, within

#: How similar two texts must be to count as duplicates: equal, or equal in their letters and numbers, ignoring case.
Similarity = Literal["none", "exact", "near"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class CleaningConfig:
    """Options of the filters of `prepare` and `distill`, in the order in which the filters run.

    Args:
        repair: repair wrong encodings, such as `schÃ¶n` for `schön`, and HTML entities, with ftfy. Nothing is removed.
        max_characters: maximum number of characters of each side. Pairs with a longer side are removed. 0: no limit.
        max_length_ratio: maximum ratio between the number of characters of the target and the expected number, in
            either direction. The expected number is that of the source times the median of target length / source
            length over the first 10,000 pairs of the corpus. Pairs with a larger ratio are removed if the two numbers
            also differ by more than 20. 0: no limit.
        min_letters: minimum fraction of letters among the characters of each side, without spaces and usual
            punctuation. A number counts as one character. Pairs with a smaller fraction on a side are removed. 0: no
            limit.
        markup: remove pairs with HTML tags, comments, or braces of code.
        copies: remove pairs whose sides have the same letters and numbers, ignoring case.
        numbers: remove pairs whose numbers differ, in any order and notation: 10 May 2020 equals 2020-05-10, and 7 p.m.
            equals 19:00. One side may lack the months of dates and up to 2 numbers, which it may spell in words.
        urls: remove pairs with a web address or mail address that the other side lacks, apart from http:// and www.
        scripts: remove pairs with a side of which more than 30% of the letters, without those of addresses, are of
            another script, such as Cyrillic, than the letters of most sentences on that side.
        languages: remove pairs with a side that is in another language, found with lingua. The codes of both languages
            must be known: `source_language` and `target_language` of `prepare`, or those that the teacher of `distill`
            records. Each sentence is classified as one of these two languages or of ten languages that are frequent on
            the web. Each worker process needs about 0.2 GiB of memory.
        duplicates: remove pairs that equal an earlier pair: `exact`, `near` (equal in their letters and numbers,
            ignoring case), or `none` (nothing is removed).
        duplicate_sources: remove pairs whose source equals an earlier source; values as in `duplicates`.
        duplicate_targets: remove pairs whose target equals an earlier target; values as in `duplicates`.
        model: model directory for a filter by score. The score of a pair is log P(target | source) - log P(target |
            another source of the corpus), in nats per token: how much the source says about the target. It is about 0
            for sentences that do not belong together.
        reverse_model: model directory of the opposite direction. The score of a pair is then the smaller one of both
            directions.
        min_score: remove pairs with a lower score. Default: the 2nd percentile of the scores of the first 5,000
            validation pairs, which must not be a part of the training text. `distill` has no default.
        rejected: file for the removed pairs, with tab-separated columns: filter, corpus, source, target.

    Raises:
        ValueError: if an option is invalid. The message lists all problems.

    Reference:
        Church & Hanks 1990, "Word Association Norms, Mutual Information, and Lexicography".
    """

    repair: bool = True
    max_characters: int = 5000
    max_length_ratio: float = 2.0
    min_letters: float = 0.5
    markup: bool = True
    copies: bool = True
    numbers: bool = True
    urls: bool = True
    scripts: bool = True
    languages: bool = False
    duplicates: Similarity = "near"
    duplicate_sources: Similarity = "none"
    duplicate_targets: Similarity = "none"
    model: str | None = None
    reverse_model: str | None = None
    min_score: float | None = None
    rejected: str | None = None

    def __post_init__(self):
        ratio, received = self.max_length_ratio, f"Received: max_length_ratio={self.max_length_ratio}"
        require(
            at_least(0, max_characters=self.max_characters),
            [] if ratio == 0 or 1 <= ratio < math.inf else [f"`max_length_ratio` must be 0 or at least 1. {received}"],
            within("[0, 1]", min_letters=self.min_letters),
            within("(-inf, inf)", min_score=self.min_score),
            [
                f"`{name}` requires `model`"
                for name in ("reverse_model", "min_score")
                if getattr(self, name) is not None and not self.model
            ],
            of="Options of `cleaning`",
        )
