"""The pairs of languages of a server: a model, its translator and its queue for each."""

import asyncio
import collections
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from starlette.exceptions import HTTPException

from keras_transformer.apps.html.html_text import HtmlText
from keras_transformer.apps.serve.batcher import Batcher
from keras_transformer.apps.serve.config import ServeConfig
from keras_transformer.apps.serve.metrics import Metrics
from keras_transformer.storage.languages import languages_of
from keras_transformer.storage.model_directory import ModelDirectory, ModelDirectoryError
from keras_transformer.text.sentences import SentenceSplitter, SplitText
from keras_transformer.translate.batching import BatchLimits
from keras_transformer.translate.load import FASTEST_FIRST, available_runtimes, load_translator
from keras_transformer.translate.token_translator import TokenTranslator
from keras_transformer.translate.translation import Translation, by_rank
from keras_transformer.translate.translator import Translator

#: Maximum number of subwords of a sentence whose attention is shown: the table has about the square of it as cells.
MAX_ATTENTION = 200
#: Size of a request, see `_size`, that is split so fast that a thread would take longer.
_SHORT = 1000
#: Time that a text takes apart from its length, in characters: many short texts take as long as a long one.
_PER_TEXT = 100


class TranslatedText(NamedTuple):
    """The translation of a text.

    Attributes:
        texts: the hypotheses, best first, which differ. Each consists of the hypotheses of this rank of all sentences;
            a sentence that has fewer repeats its last one.
        warnings: messages about sentences that were cut.
        scores: the score of each hypothesis, the mean of those of its sentences.
    """

    texts: list[str]
    warnings: list[str]
    scores: list[float]


class LanguagePair:
    """Translates text from one language to another.

    Args:
        source: code of the source language.
        target: code of the target language.
        runtime: name of the runtime of `translator`.
        translator: translates sentences. Several pairs share one whose model has several languages.
        batcher: translates the sentences of all clients.
        splitter: splits texts into sentences.
    """

    def __init__(
        self,
        source: str,
        target: str,
        runtime: str,
        translator: Translator,
        batcher: Batcher,
        splitter: SentenceSplitter,
    ):
        self.source, self.target, self.runtime = source, target, runtime
        self.translator, self.batcher, self._splitter = translator, batcher, splitter
        # The codes of a model with one pair may be others than those that the operator gives.
        self._languages = (source, target) if translator.languages.are_several else (None, None)

    async def translate(self, texts: Sequence[str], n_best: int = 1, is_html: bool = False) -> list[TranslatedText]:
        """Translates plain texts or HTML, with at most `n_best` hypotheses each. Raises as `Batcher.translate` does."""
        parse, join = (self._parse_html, self._join_html) if is_html else (self._splitter.split, _join_text)
        documents = await _in_thread_if(_size(texts) > _SHORT, lambda: [parse(text) for text in texts])
        sentences = [sentence for document in documents for sentence in document.sentences]
        found = iter(await self.batcher.translate(sentences, n_best, self._languages))

        def join_all():
            results = []
            for document in documents:
                translations = [next(found) for _ in document.sentences]
                scores: dict[str, float] = {}
                for rank in by_rank(translations, n_best):
                    scores.setdefault(join(document, rank), _mean_score(rank))
                results.append(TranslatedText([*scores], [*document.warnings], [*scores.values()]))
            return results

        return await _in_thread_if(is_html or _size(texts) > _SHORT, join_all)

    async def attention(self, text: str) -> tuple[np.ndarray, list[str], list[str]]:
        """The attention of the translation of a text's first sentence; see `TokenTranslator.attention`.

        Raises:
            HTTPException: if the runtime or the export does not give it, or if the sentence or its translation has more
                than `MAX_ATTENTION` subwords.
        """
        split = await _in_thread_if(_size([text]) > _SHORT, lambda: self._splitter.split(text))
        sentences = split.sentences
        if not isinstance(self.translator, TokenTranslator) or not sentences:
            raise HTTPException(400, f"There is no attention with {self.runtime}")
        _check_attention_size(*self.translator.count_tokens(sentences[:1]))
        (translation,) = await self.batcher.translate(sentences[:1], 1, self._languages)
        _check_attention_size(len(translation.tokens))
        try:
            return await asyncio.to_thread(self.translator.attention, sentences[0], translation)
        except ModelDirectoryError as error:  # An ONNX export without `alignment.onnx`.
            raise HTTPException(400, f"There is no attention with {self.runtime}") from error

    def _parse_html(self, text: str) -> HtmlText:
        return HtmlText(text, self._splitter)

    def _join_html(self, page: HtmlText, translations: Sequence[Translation]) -> str:
        """The HTML with the translations. Only sentences with inline tags need alignments."""
        needed = [i for i, is_needed in enumerate(page.needs_alignment) if is_needed]
        found = self.translator.align([page.sentences[i] for i in needed], [translations[i] for i in needed])
        alignments = dict(zip(needed, found, strict=True))
        return page.join([one.text for one in translations], [alignments.get(i) for i in range(len(translations))])


def _check_attention_size(subwords: int) -> None:
    if subwords > MAX_ATTENTION:
        limit = f"Attention is shown for sentences and translations of at most {MAX_ATTENTION} subwords"
        raise HTTPException(400, f"{limit}. Received: {subwords} subwords")


def _mean_score(translations: Sequence[Translation]) -> float:
    return sum(one.score for one in translations) / max(len(translations), 1)


def _join_text(split: SplitText, translations: Sequence[Translation]) -> str:
    return split.join(one.text for one in translations)


def _size(texts: Sequence[str]) -> int:
    """How long it takes to split texts, as the length of a single text."""
    return sum(map(len, texts)) + _PER_TEXT * (len(texts) - 1)


async def _in_thread_if(takes_long, function):
    """Calls a function, in another thread if it takes long, so that other requests need not wait for it."""
    return await asyncio.to_thread(function) if takes_long else function()


def load_pairs(directories: Sequence[str | Path], config: ServeConfig, metrics: Metrics) -> list[LanguagePair]:
    """Loads the models of a server: a pair of languages per directory, or all pairs of a model with several languages.

    Raises:
        ValueError: if a directory contains no finished model or lacks the export, languages are unknown, or two
            directories have the same pair.
    """
    languages = _languages(directories, config)
    runtimes = [config.runtime or _fastest(directory) for directory in directories]
    loaded = [
        _load(directory, pairs, runtime, config, metrics)
        for directory, pairs, runtime in zip(directories, languages, runtimes, strict=True)
    ]
    return [pair for pairs in loaded for pair in pairs]


def _languages(directories, config) -> list[list[tuple[str, str]]]:
    """The pairs of languages of each directory."""
    for directory in map(ModelDirectory, directories):
        directory.require_finished()
    known, given = [*map(languages_of, directories)], config.pairs_of_languages
    if given and len(directories) == 1 and known[0].are_several:
        pairs = [[_named(known[0], *pair) for pair in given]]
    elif given and len(given) != len(directories):
        raise ValueError(
            f"`languages` must have a pair for each directory. Received: languages={config.languages} for "
            f"{len(directories)} directories"
        )
    else:
        pairs = [[pair] for pair in given] or [[each[:2] for each in one.directions()] for one in known]
    for directory, of_directory in zip(directories, pairs, strict=True):
        if not of_directory or None in of_directory[0]:
            raise ValueError(
                f"{directory} does not record the languages of both sides. Give the pairs, such as --languages en-de"
            )
    every = [pair for of_directory in pairs for pair in of_directory]
    for pair, count in collections.Counter(every).items():
        if count > 1:
            raise ValueError(f"Each pair of languages needs one directory. Received: {'-'.join(pair)} more than once")
    return pairs


def _named(languages, source, target) -> tuple[str, str]:
    """A pair of languages of the model. If the model has no list of source languages, the source is the given one."""
    direction = languages.direction(source, target)
    return direction.source, direction.target


def _fastest(directory) -> str:
    available = available_runtimes(directory)
    return next(runtime for runtime in FASTEST_FIRST if runtime in available)


def _load(directory, pairs, runtime, config, metrics) -> list[LanguagePair]:
    parallel = config.num_threads, config.parallel_batches
    translator = load_translator(directory, runtime, *parallel, protect=config.protect)
    workers = translator.parallel_batches
    languages = pairs[0] if translator.languages.are_several else (None, None)
    # Loads what would be loaded for the first client.
    translator.align(["a"], translator.translate(["a"], source_language=languages[0], target_language=languages[1]))
    limits = BatchLimits(config.batch_size, config.batch_tokens)
    batcher = Batcher(translator, limits, workers, config.max_wait / 1000, config.max_queue, metrics)
    sizes = translator.count_tokens, translator.max_source_length, config.split_sentences
    splitters = {source: SentenceSplitter(source, *sizes) for source in dict.fromkeys(source for source, _ in pairs)}
    return [LanguagePair(*pair, runtime, translator, batcher, splitters[pair[0]]) for pair in pairs]
