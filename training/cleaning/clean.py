"""The cleaning of a corpus. Worker processes apply the rules to chunks; the main process finds duplicates."""

import collections
import contextlib
import functools
import itertools
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from keras_transformer.counting import counted
from keras_transformer.storage.atomic_files import TEMPORARY, atomic_write
from keras_transformer.storage.progress import progress_bar
from keras_transformer.text.files import one_column, one_line
from keras_transformer.training.cleaning.config import CleaningConfig
from keras_transformer.training.cleaning.duplicates import SeenHashes, hash_of
from keras_transformer.training.cleaning.identification import LanguageRule
from keras_transformer.training.cleaning.rules import Rule, Typical, rules
from keras_transformer.training.cleaning.scores import ScoreFilter
from keras_transformer.training.data.processes import WorkerProcesses
from keras_transformer.training.datasets.pairs import Corpus, Pairs
from keras_transformer.translate.batching import chunks_of

#: Pairs in a chunk.
_CHUNK = 5_000
#: First pairs, from which the scripts and the usual lengths of the two sides are determined.
_SAMPLE = 10_000

Pair = tuple[str, str]


class Counts(collections.Counter):
    """Numbers of pairs by the filter that removed them; `kept` and `repaired` pairs too."""

    def __str__(self):
        removed = {name: count for name, count in self.items() if name not in ("kept", "repaired")}
        total = self["kept"] + sum(removed.values())
        words = ", ".join(f"{name} {count:,}" for name, count in removed.items()) or "none"
        return f"{self['kept']:,} of {counted(total, 'pair')} kept; removed: {words}; repaired: {self['repaired']:,}"


class Examined(NamedTuple):
    """A chunk of pairs.

    Attributes:
        pairs: the pairs, repaired.
        reasons: name of the filter that removes each pair; `None` if it is kept.
        hashes: uint64 `(pairs,)` for each filter of duplicates.
        repaired: number of pairs that were repaired.
    """

    pairs: list[Pair]
    reasons: list[str | None]
    hashes: list[np.ndarray]
    repaired: int


class _Examiner:
    """Applies the `rules` in a worker process."""

    def __init__(self, config: CleaningConfig, typical: Typical, languages):
        self.config, self.typical, self.languages = config, typical, languages
        self._rules: list[tuple[str, Rule]] | None = None

    def __call__(self, pairs: list[Pair]) -> Examined:
        if self._rules is None:  # In the worker, because lambdas cannot be pickled.
            self._rules = rules(self.config, self.typical, self.languages)
        repaired = [_repaired(pair) for pair in pairs] if self.config.repair else pairs
        changes = sum(new != old for new, old in zip(repaired, pairs, strict=True))
        reasons = [next((name for name, rule in self._rules if not rule(*pair)), None) for pair in repaired]
        hashes = [
            np.fromiter((hash_of(similarity, *select(pair)) for pair in repaired), "uint64", len(pairs))
            for _, similarity, select in duplicate_filters(self.config)
        ]
        return Examined(repaired, reasons, hashes, changes)


def duplicate_filters(config: CleaningConfig):
    """The filters for duplicates: name, similarity, and a function from a pair to the compared texts."""
    every = [
        ("duplicate", config.duplicates, lambda pair: pair),
        ("duplicate_source", config.duplicate_sources, lambda pair: pair[:1]),
        ("duplicate_target", config.duplicate_targets, lambda pair: pair[1:]),
    ]
    return [each for each in every if each[1] != "none"]


def _repaired(pair):
    import ftfy

    # The text keeps its quotation marks, ligatures and full-width letters: the tokenizer's normalization decides.
    options = {"uncurl_quotes": False, "fix_latin_ligatures": False, "fix_character_width": False}
    return tuple(one_line(ftfy.fix_text(line, **options, normalization=None)) for line in pair)


class Cleaner:
    """Cleans corpora. Duplicates are found across all of them.

    Args:
        config: a `CleaningConfig`.
        languages: codes of the source language and of the target language; `None` if unknown.
        validation: good translations, for the default of `min_score`.

    Raises:
        ValueError: if a filter requires languages that are unknown; or see `ScoreFilter`.
    """

    def __init__(
        self, config: CleaningConfig, languages: tuple[str | None, str | None], validation: Iterable[Pair] = ()
    ):
        self.config, self.languages = config, languages
        if config.languages:
            LanguageRule(*languages)
        self._seen = [SeenHashes() for _ in duplicate_filters(config)]
        self._score_filter = ScoreFilter(config, validation) if config.model else None

    def clean(self, pairs: Pairs, folder: Path, name: str, rejected: IO | None = None) -> tuple[Pairs, Counts]:
        """Cleans a corpus.

        Args:
            pairs: the pairs.
            folder: folder for the cleaned text.
            name: name of the corpus, with which the names of its files begin.
            rejected: text file for the removed pairs, with tab-separated columns: filter, corpus, source, target.

        Returns:
            The kept pairs, which are read from the files, and the counts.
        """
        files, counts = [folder / f"{name}.{side}.clean" for side in ("source", "target")], Counts()
        with contextlib.ExitStack() as stack:
            outputs = [stack.enter_context(_text_file(file, "w")) for file in files]
            bar = stack.enter_context(progress_bar(total=pairs.count, desc="cleaning", unit=" pairs"))
            for chunk in self.examine(pairs):
                counts["repaired"] += chunk.repaired
                for pair, reason in zip(chunk.pairs, chunk.reasons, strict=True):
                    counts[reason or "kept"] += 1
                    if reason is None:
                        for output, line in zip(outputs, pair, strict=True):
                            output.write(line.replace("\n", " ") + "\n")
                    elif rejected:
                        columns = [reason, name, *map(one_column, pair)]
                        rejected.write("\t".join(columns) + "\n")
                bar.update(len(chunk.pairs))
        return Pairs(functools.partial(_read, files), counts["kept"]), counts

    def examine(self, pairs: Pairs) -> Iterator[Examined]:
        """Finds which pairs are removed. Yields consecutive chunks of them."""
        sample = list(itertools.islice(pairs, _SAMPLE))
        typical = Typical.of([_repaired(pair) for pair in sample] if self.config.repair else sample)
        with contextlib.closing(WorkerProcesses(_Examiner(self.config, typical, self.languages))) as workers:
            for chunk in workers.map((chunk,) for chunk in chunks_of(pairs, _CHUNK)):
                self._remove_duplicates(chunk)
                yield chunk

    def _remove_duplicates(self, chunk: Examined) -> None:
        """Adds the pairs of a chunk that are removed as duplicates, or for their scores."""
        reasons = chunk.reasons
        for (name, _, _), seen, hashes in zip(duplicate_filters(self.config), self._seen, chunk.hashes, strict=True):
            kept = _kept(reasons)
            _remove(reasons, kept, seen.add(hashes[kept]), name)
        if self._score_filter and (kept := _kept(reasons)):
            _remove(reasons, kept, self._score_filter.removes([chunk.pairs[i] for i in kept]), "score")


def _kept(reasons) -> list[int]:
    return [i for i, reason in enumerate(reasons) if reason is None]


def _remove(reasons, places, is_removed, name):
    for i in itertools.compress(places, is_removed):
        reasons[i] = name


def _text_file(path, mode) -> IO:
    return open(path, mode, encoding="utf-8", newline="\n")


def _read(files) -> Iterator[Pair]:
    with _text_file(files[0], "r") as source, _text_file(files[1], "r") as target:
        yield from ((one[:-1], other[:-1]) for one, other in zip(source, target, strict=True))


@contextlib.contextmanager
def cleaned(corpus: Corpus, config: CleaningConfig, folder: Path) -> Iterator[tuple[Corpus, dict[str, Counts]]]:
    """Cleans the training text of a corpus. The validation text is unchanged.

    Args:
        corpus: the corpus. The filter by language uses its languages.
        config: a `CleaningConfig`.
        folder: folder for temporary files.

    Yields:
        The cleaned corpus, which can be read in the block, and the counts of each of its splits. The file of rejected
        pairs is complete.

    Raises:
        ValueError: see `Cleaner`; or if no pair of a split is kept. The message lists all such splits.
    """
    cleaner = Cleaner(config, corpus.languages, corpus.validation)
    with contextlib.ExitStack() as stack:
        temporary = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=folder)))
        with contextlib.ExitStack() as writing:
            rejected = None
            if config.rejected:
                path = writing.enter_context(atomic_write(Path(config.rejected), owns_folder=False))
                rejected = writing.enter_context(_text_file(path, "w"))
            found = {split: cleaner.clean(pairs, temporary, split, rejected) for split, pairs in corpus.splits.items()}
        counts = {split: count for split, (_, count) in found.items()}
        empty = [f"{split}: {count}" for split, count in counts.items() if not count["kept"]]
        if empty:
            raise ValueError(f"The filters must keep at least one pair of each corpus. Received: {'; '.join(empty)}")
        yield corpus.replaced({split: pairs for split, (pairs, _) in found.items()}), counts
