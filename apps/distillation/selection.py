"""The choice of a hypothesis of each sentence."""

import contextlib
import functools
import itertools
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from keras_transformer.apps.distillation.config import Selection
from keras_transformer.apps.distillation.folder import written_lines
from keras_transformer.storage.progress import progress_bar
from keras_transformer.training.data.processes import WorkerProcesses
from keras_transformer.translate.batching import chunks_of

#: Sentences whose hypotheses are compared at a time.
_CHUNK = 2_000


def choose_among(select: Selection, lines: list[str], references: list[str]) -> list[tuple[int, float]]:
    """Chooses a hypothesis of each sentence.

    Args:
        select: how.
        lines: the hypotheses of each sentence, in JSON.
        references: the reference translations; empty if hypotheses are chosen by score.

    Returns:
        The number of each chosen hypothesis, and the teacher's score of it.
    """
    return [
        _best(select, json.loads(line)["translations"], reference)
        for line, reference in itertools.zip_longest(lines, references)
    ]


def _best(select, hypotheses, reference):
    texts = [hypothesis["text"] for hypothesis in hypotheses]
    choices = [i for i, text in enumerate(texts) if text.strip()] or [0]  # An empty one would remove the pair.
    best = choices[0]  # They are sorted by score.
    if select != "score":
        best = max(choices, key=lambda i: _quality(select, texts[i], reference))
    return best, hypotheses[best]["score"]


def _quality(select, text, reference) -> float:
    import sacrebleu  # Slow to import, and not needed by the main process.

    score = sacrebleu.sentence_chrf if select == "chrf" else sacrebleu.sentence_bleu
    return score(text, [reference]).score


def choose(
    path: Path, references: Iterable[tuple[str, str]] | None, count: int, select: Selection
) -> tuple[np.ndarray, np.ndarray]:
    """Chooses a hypothesis of each sentence, on all cores.

    Args:
        path: file with the hypotheses of a sentence on each line, as `translate --json` writes them.
        references: pairs of source and reference translation; `None` if there are none.
        count: number of sentences.
        select: how hypotheses are chosen.

    Returns:
        What `choose_among` finds, as arrays: int32 `(count,)` and float64 `(count,)`.
    """
    choices, scores = np.zeros(count, "int32"), np.zeros(count)
    targets = (target for _, target in references) if references and select != "score" else iter(())
    chunks = ((lines, list(itertools.islice(targets, len(lines)))) for lines in chunks_of(written_lines(path), _CHUNK))
    done = 0
    with contextlib.closing(WorkerProcesses(functools.partial(choose_among, select))) as workers:
        with progress_bar(total=count, desc="choosing", unit=" lines") as bar:
            for found in workers.map(chunks):
                part = slice(done, done + len(found))
                choices[part], scores[part] = zip(*found, strict=True)
                done += len(found)
                bar.update(len(found))
    return choices, scores
