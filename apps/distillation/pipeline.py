"""Sequence-level distillation: a teacher translates the text that a student is trained on."""

import collections
import contextlib
import hashlib
import itertools
import json
import sys
from collections.abc import Iterator

import numpy as np

from keras_transformer.apps.distillation.config import DistillConfig
from keras_transformer.apps.distillation.folder import DistillationFolder, resumable, written_lines
from keras_transformer.apps.distillation.selection import choose
from keras_transformer.counting import counted
from keras_transformer.evaluation.scorer import LikelihoodScorer
from keras_transformer.storage.atomic_files import atomic_write
from keras_transformer.storage.languages import languages_of
from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.storage.origin import hash_of_program
from keras_transformer.storage.progress import progress_bar
from keras_transformer.storage.recorded_folder import hash_of_files
from keras_transformer.storage.resumable_file import ResumableFile
from keras_transformer.storage.token_directory import TokenDirectory
from keras_transformer.text.files import UTF_8, one_line
from keras_transformer.text.tokenization import TokenizerConfig
from keras_transformer.training.cleaning.identification import LanguageRule
from keras_transformer.training.data.prepare import check_cleaning, prepare
from keras_transformer.training.data_config import PrepareConfig
from keras_transformer.training.datasets.pairs import Corpus
from keras_transformer.training.datasets.text import HELD_OUT_EVERY, load_text, text_lines, text_pairs
from keras_transformer.translate.batching import BatchLimits
from keras_transformer.translate.load import load_translator
from keras_transformer.translate.translator import Translator


def distill(config: DistillConfig) -> TokenDirectory:
    """Translates text with a teacher, and tokenizes the translations for the training of a student.

    If the work is interrupted, the same call resumes it.

    Args:
        config: the teacher, the text, the choice of the translations, and the output.

    Returns:
        The tokens, for `TrainConfig(prepared=…)`.

    Raises:
        ValueError: if a file or a model directory is invalid.

    Example:

        distill(DistillConfig(teacher="runs/teacher", output="runs/distilled", source="train.en"))

    Reference:
        Kim & Rush 2016, "Sequence-Level Knowledge Distillation".
    """
    folder = DistillationFolder(config.output)
    folder.require_free(config.overwrite)
    BatchLimits(config.batch_size, config.batch_tokens)
    scorers = (config.reverse_model, config.cleaning.model, config.cleaning.reverse_model)
    for path in (*config.teacher, *filter(None, scorers)):
        ModelDirectory(path).require_finished()
        if not languages_of(path).has_default:
            raise ValueError(
                "Models of several languages must have a default, which `import --target_language` and "
                f"`train --target_language` record. Received: {path}"
            )
    options = _prepare_options(folder, config)
    check_cleaning(options, is_held_out=config.validation_source is None)
    lines = text_lines(config.source, config.encoding)
    references = text_pairs(config.source, config.target, config.encoding) if config.target else None
    validation = None
    if config.validation_source:
        validation = text_pairs(config.validation_source, config.validation_target, config.encoding)
    elif lines.count * (1 - config.reject) < HELD_OUT_EVERY:
        raise ValueError(
            f"`validation_source` must be given if fewer than {HELD_OUT_EVERY} lines are used. "
            f"Received: {counted(lines.count, 'line')}, reject={config.reject}"
        )
    with folder.locked():
        translator = _teacher(config)
        translator.check_n_best(config.n_best)
        record = _record(lines, config)
        folder.begin(record, config.overwrite)
        if not folder.translations.exists():
            _translate(lines, translator, config, resumable(folder.translations, record["translations"]))
        choices, scores = choose(folder.translations, references, lines.count, config.select)
        if config.reverse_model:
            scores = _reverse_scores(folder, choices, config, record["scores"])
        _write_texts(folder, choices, scores, config.reject)
        train = text_pairs(options.source, options.target, UTF_8)
        return prepare(options, load_text(options) if validation is None else Corpus(train, validation))


def _prepare_options(folder, config) -> PrepareConfig:
    """The options of `prepare`, checked before the teacher starts."""
    teacher = config.teacher[0]
    languages = ModelDirectory(teacher).languages
    if config.cleaning.languages:
        LanguageRule(*languages)
    return PrepareConfig(
        source=str(folder.texts[0]),
        target=str(folder.texts[1]),
        output=str(folder.tokens.path),
        overwrite=config.overwrite,
        init_from=teacher if config.tokenizer == TokenizerConfig() else None,
        tokenizer=config.tokenizer,
        clean=True,
        cleaning=config.cleaning,
        source_language=languages[0],
        target_language=languages[1],
        max_length=config.max_length,
        max_length_ratio=config.max_length_ratio,
    )


def _teacher(config) -> Translator:
    teacher = config.teacher if len(config.teacher) > 1 else config.teacher[0]
    return load_translator(teacher, config.runtime, config.num_threads, config.parallel_batches)


def _record(lines, config):
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line.encode() + b"\n")
    translations = {
        "source": digest.hexdigest(),
        "teacher": [hash_of_program(path, config.runtime) for path in config.teacher],
        "runtime": config.runtime,
        "n_best": config.n_best,
    }
    scores = None
    if config.reverse_model:
        scores = {"reverse_model": hash_of_program(config.reverse_model, "keras"), "select": config.select}
        if config.target:
            scores["target"] = hash_of_files(config.target)
    return {"translations": translations, "scores": scores}


def _translate(lines, translator, config, output: ResumableFile) -> None:
    with output.writing(resume=True) as (file, done):
        sources: collections.deque[str] = collections.deque()

        def read():
            for line in itertools.islice(lines, done, None):
                sources.append(line)
                yield line

        with progress_bar(total=lines.count, initial=done, desc="translating", unit=" lines") as bar:
            batching = config.batch_size, config.batch_tokens, config.n_best, bar.update
            for translation in translator.translate_stream(read(), *batching, first_line=done + 1):
                file.write(translation.to_json(sources.popleft()).encode() + b"\n")
                file.flush()


def _reverse_scores(folder, choices, config, record) -> np.ndarray:
    if not folder.reverse_scores.exists():
        with resumable(folder.reverse_scores, record).writing(resume=True) as (file, done):
            pairs = ((target, source) for source, target in _pairs(folder.translations, choices))
            rest = itertools.islice(pairs, done, None)
            scorer = LikelihoodScorer(config.reverse_model)
            with progress_bar(total=len(choices), initial=done, desc="scoring", unit=" lines") as bar:
                for score in scorer.score_stream(rest, config.batch_size, config.batch_tokens):
                    file.write(f"{score.mean_log_prob:.4f}\n".encode())
                    bar.update()
    return np.array([float(line) for line in written_lines(folder.reverse_scores)])


def _write_texts(folder, choices, scores, reject) -> None:
    """Writes the pairs to train on, without the worst ones and those without a translation."""
    is_used = np.ones(len(scores), bool)
    is_used[np.argsort(scores, kind="stable")[: round(reject * len(scores))]] = False
    empty = written = 0
    with contextlib.ExitStack() as stack:
        temporary = [stack.enter_context(atomic_write(path)) for path in folder.texts]
        files = [stack.enter_context(open(path, "w", encoding="utf-8", newline="\n")) for path in temporary]
        for pair in itertools.compress(_pairs(folder.translations, choices), is_used):
            if not all(map(str.strip, pair)):
                empty += 1
                continue
            written += 1
            for file, line in zip(files, pair, strict=True):
                file.write(one_line(line) + "\n")
        if not written:
            raise ValueError(f"No line of the text has a translation. Received: {counted(len(scores), 'line')}")
    rejected = len(scores) - written - empty
    print(
        f"translations: {written:,} of {len(scores):,} used; removed: {empty:,} empty, {rejected:,} by score",
        file=sys.stderr,
    )


def _pairs(path, choices) -> Iterator[tuple[str, str]]:
    for line, choice in zip(written_lines(path), choices, strict=True):
        found = json.loads(line)
        yield found["source"], found["translations"][choice]["text"]
