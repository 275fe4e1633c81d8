"""Options of the cleaning. Their defaults are defined here only."""

import dataclasses
import math
from typing import Literal

#: How similar two texts must be to count as duplicates: equal, or equal in their letters and digits, ignoring case.
Similarity = Literal["off", "exact", "near"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class CleaningConfig:
    """Filters for the training pairs of `prepare`, in the order in which they run.

    Args:
        repair: repair wrong encodings, such as `schÃ¶n` for `schön`, and HTML entities, with ftfy. Nothing is removed.
        max_characters: remove pairs with a longer side. 0: off.
        max_length_ratio: maximum ratio between the number of characters of the target and the expected number, in
            either direction. Expected is the number of the source, times the median of target length / source length
            over the first 10,000 pairs of the corpus. Pairs with a larger ratio are removed if the two numbers also
            differ by more than 20. 0: off.
        min_letters: remove pairs with a side that has a smaller fraction of letters among its characters, without
            spaces. 0: off.
        markup: remove pairs with HTML tags or braces of code.
        copies: remove pairs whose sides have the same letters and digits, ignoring case.
        numbers: remove pairs whose numbers differ. Up to 2 numbers may be missing on one side, which may spell them in
            words.
        urls: remove pairs whose web addresses or mail addresses differ.
        scripts: remove pairs with a side whose letters are mostly of another script, such as Cyrillic, than those of
            most sentences.
        languages: remove pairs with a side that is in another language, found with lingua. Requires
            `source_language` and `target_language`. Each sentence is classified as one of these two languages or of
            ten languages that are frequent on the web. Each worker process needs about 0.2 GiB of memory.
        duplicates: remove pairs that equal an earlier pair: `exact`, or `near` (in their letters and digits, ignoring
            case).
        duplicate_sources: remove pairs whose source equals an earlier source; values as in `duplicates`.
        duplicate_targets: remove pairs whose target equals an earlier target; values as in `duplicates`.
        model: model directory for a filter by score. The score of a pair is log P(target | source) - log P(target |
            another source of the corpus), in nats per token: how much the source says about the target. It is about 0
            for sentences that do not belong together.
        reverse_model: model directory of the opposite direction. The score of a pair is then the smaller one of both
            directions.
        min_score: remove pairs with a lower score. Default: the score that 2% of the validation pairs are below, of
            which 5,000 are scored. The default requires text to validate on that is not a part of the training text.
        rejected: file for the removed pairs, with tab-separated columns: filter, source, target.

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
    duplicate_sources: Similarity = "off"
    duplicate_targets: Similarity = "off"
    model: str | None = None
    reverse_model: str | None = None
    min_score: float | None = None
    rejected: str | None = None

    def __post_init__(self):
        problems = []
        if self.max_characters < 0:
            problems.append(f"`max_characters` must not be negative, not {self.max_characters}")
        if not (self.max_length_ratio == 0 or 1 <= self.max_length_ratio < math.inf):
            problems.append(f"`max_length_ratio` must be 0 or at least 1, not {self.max_length_ratio}")
        if not 0 <= self.min_letters <= 1:
            problems.append(f"`min_letters` must be in [0, 1], not {self.min_letters}")
        if self.min_score is not None and not math.isfinite(self.min_score):
            problems.append(f"`min_score` must be finite, not {self.min_score}")
        for name in ("reverse_model", "min_score"):
            if getattr(self, name) is not None and not self.model:
                problems.append(f"`{name}` requires `model`")
        if problems:
            raise ValueError(f"Options of `cleaning`: {'; '.join(problems)}")
