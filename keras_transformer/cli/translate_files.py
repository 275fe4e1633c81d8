"""Implementation of the commands `translate`, `evaluate`, `compare` and `score`."""

import collections
import contextlib
import dataclasses
import hashlib
import itertools
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from keras_transformer.cli.translator_options import TranslatorOptions, split_directories
from keras_transformer.storage.atomic_files import atomic_write
from keras_transformer.storage.languages import languages_of, require_languages
from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.storage.origin import hash_of_program
from keras_transformer.storage.progress import progress_bar
from keras_transformer.storage.resumable_file import ResumableFile
from keras_transformer.text.files import TextLines, json_line, one_column, read_lines
from keras_transformer.translate.batching import BatchLimits
from keras_transformer.translate.splitting_translator import SplittingTranslator


def translate(options) -> None:
    """Translates a file or standard input to a file or standard output.

    Raises:
        ValueError: if a file cannot be read or written, or the options of the runtime are invalid.
    """
    chosen = TranslatorOptions.of(options, options.directory)
    given = [f"`--{name}`" for name, code in chosen.languages.items() if code]
    if options.from_json and given:
        raise ValueError(f"{', '.join(given)} must not be given with `--from_json`, whose lines name the languages")
    with TextLines(options.file, options.encoding) as lines, _output(options, chosen) as (write, done):
        source = itertools.islice(lines, done, None)
        translator, languages = chosen.load(), chosen.languages
        if options.split_sentences:
            known = languages_of(chosen.directories[0]).source  # An export of an older version does not record it.
            translator = SplittingTranslator(translator, options.source_language or known)
        sources, queues = collections.deque(), {name: collections.deque() for name in languages}
        if options.from_json:
            languages = {name: iter(queue.popleft, object()) for name, queue in queues.items()}

        def read():
            for count, line in enumerate(source, done + 1):
                bar.total = lines.share and max(count, round(count / lines.share))
                if options.from_json:
                    line, *codes = _from_json(count, line, translator.languages)
                    for queue, code in zip(queues.values(), codes, strict=True):
                        queue.append(code)
                sources.append(line)
                yield line

        to_text = _as_json if options.json else _as_rows if chosen.n_best > 1 else _as_text
        interactive = options.line_by_line or (options.file is None and sys.stdin.isatty())
        with progress_bar(unit="line", initial=done, disable=interactive) as bar:
            limits = chosen.limits
            batching = limits.batch_size, limits.batch_tokens, chosen.n_best, bar.update
            chunks = ([line] for line in read()) if interactive else [read()]
            number = done
            for chunk in chunks:
                for translation in translator.translate_stream(chunk, *batching, first_line=number + 1, **languages):
                    number += 1
                    write(to_text(number, sources.popleft(), translation))


def evaluate(options) -> None:
    """Translates a test set and prints its scores.

    Raises:
        ValueError: if a file cannot be read, the numbers of lines differ, or the options of the runtime are invalid.
    """
    from keras_transformer.evaluation.scores import check_test_set
    from keras_transformer.evaluation.scores import evaluate as run

    source, reference = (read_lines(path, options.encoding) for path in (options.source, options.reference))
    check_test_set(source, reference, options.bleu_tokenize)
    chosen = TranslatorOptions.of(options, options.directory)
    translator = chosen.load()
    with progress_bar(unit="line", total=len(source)) as bar:
        batching = options.batch_size, options.batch_tokens
        scores = run(translator, source, reference, *batching, options.bleu_tokenize, bar.update, **chosen.languages)
    print(scores)


def compare(options) -> None:
    """Translates a test set with two models and prints their comparison.

    Raises:
        ValueError: if a file cannot be read, the numbers of lines differ, or the options of the runtime are invalid.
    """
    from keras_transformer.evaluation.comparison import compare as run
    from keras_transformer.evaluation.scores import check_test_set

    source, reference = (read_lines(path, options.encoding) for path in (options.source, options.reference))
    check_test_set(source, reference, options.bleu_tokenize)
    names = options.first, options.second
    given = {name: _given_translations(name, source, options) for name in names}  # Checked before a model is loaded.
    translations = tuple(given[name] or _translated(name, source, options) for name in names)
    found = run(names, translations, source, reference, options.bleu_tokenize, options.differences)
    print(json_line(dataclasses.asdict(found)) if options.json else found)


def _given_translations(name, source, options) -> list[str] | None:
    """The translations in a file; `None` for model directories."""
    if not Path(name).is_file():
        for path in split_directories(name):
            ModelDirectory(path).require_finished()
        TranslatorOptions.of(options, name)  # Raises errors before a model is loaded.
        return None
    lines = read_lines(name, options.encoding)
    if len(lines) != len(source):
        raise ValueError(f"{name} must have one line per line of `--source`, {len(source)}. Received: {len(lines)}")
    return lines


def _translated(name, source, options) -> list[str]:
    chosen = TranslatorOptions.of(options, name)
    translator = chosen.load()
    with progress_bar(unit="line", total=len(source), desc=name) as bar:
        batching = options.batch_size, options.batch_tokens
        found = translator.translate(source, *batching, progress=bar.update, **chosen.languages)
    return [translation.text for translation in found]


def score(options) -> None:
    """Scores given translations and prints one line per pair, with tab-separated columns.

    The columns are the log probability, the number of tokens including the end token, and the log probability per
    token.

    Raises:
        ValueError: if a file cannot be read, the numbers of lines differ, or the model cannot be loaded.
    """
    from keras_transformer.evaluation.scorer import LikelihoodScorer
    from keras_transformer.training.datasets import read_pairs

    BatchLimits(options.batch_size, options.batch_tokens)  # Checks them before the model is loaded.
    pairs = read_pairs(options.source, options.target, options.encoding)
    languages = options.source_language, options.target_language
    require_languages(options.directory, *languages)  # Checked before the model is loaded.
    batching = options.batch_size, options.batch_tokens
    scores = LikelihoodScorer(options.directory).score_stream(pairs, *batching, *languages)
    for pair in progress_bar(scores, unit="line"):
        print(f"{pair.log_prob:.4f}\t{pair.num_tokens}\t{pair.mean_log_prob:.4f}")


def _from_json(number, line, languages) -> tuple[str, str | None, str | None]:
    """The source and its languages, which the model must know, in a line of JSON."""
    try:
        content = json.loads(line)
    except ValueError:
        content = None
    content = content if isinstance(content, dict) else {}
    source, *codes = (content.get(name) for name in ("source", "source_language", "target_language"))
    if not isinstance(source, str) or not all(isinstance(code, str | None) for code in codes):
        raise ValueError(
            f"line {number} must be a JSON object with the string `source` and, optionally, the strings "
            f"`source_language` and `target_language`. Received: {line[:80]}"
        )
    try:
        direction = languages.direction(*codes)
    except ValueError as error:
        raise ValueError(f"line {number}: {error}") from error
    return source, direction.source, direction.target


def _as_text(number, source, translation):
    return translation.line


def _as_rows(number, source, translation):
    rows = [f"{number}\t{one.score:.4f}\t{one_column(one.text)}" for one in translation.hypotheses]
    return "\n".join(rows)


def _as_json(number, source, translation):
    return translation.to_json(source)


@contextlib.contextmanager
def _output(options, chosen) -> Iterator[tuple[Callable[[str], None], int]]:
    """Yields a function that writes the text of one source line, and the number of source lines already written."""
    if options.output is None:
        if options.resume:
            raise ValueError("`--resume` requires `--output`")
        yield lambda text: print(text, flush=True), 0
        return
    path = Path(options.output).resolve()
    if path.exists() and not path.is_file():
        raise ValueError(f"`--output` must name a file. Received: --output={options.output}")
    if options.file and path == Path(options.file).resolve():
        raise ValueError(f"`--output` must not be the source file. Received: --output={options.output}")
    with _file(path, options, chosen) as (file, done):

        def write(text):
            file.write(text.encode() + b"\n")
            file.flush()

        yield write, done


@contextlib.contextmanager
def _file(path, options, chosen):
    """Opens a file that appears when it is complete. It can be resumed if the source is a regular file."""
    if options.file and Path(options.file).is_file():
        has_rows = chosen.n_best > 1 and not options.json
        item_of = (lambda row: row.partition(b"\t")[0]) if has_rows else None
        with ResumableFile(path, _record(options, chosen), item_of).writing(options.resume) as (file, done):
            yield file, done
    elif options.resume:
        raise ValueError(f"`--resume` requires a regular source file. Received: {options.file or 'standard input'}")
    else:
        with atomic_write(path, owns_folder=False) as temporary, open(temporary, "wb") as file:
            yield file, 0


def _record(options, chosen) -> dict:
    """Returns the data that determine the output: hashes of source and model, runtime, search and format."""
    with TextLines(options.file, options.encoding) as lines:
        digest = hashlib.sha256()
        for line in lines:
            digest.update(line.encode() + b"\n")
    record = {
        "source": digest.hexdigest(),
        "model": ",".join(hash_of_program(path, options.runtime) for path in chosen.directories),
        "runtime": options.runtime,
        "search": chosen.search,
        "json": options.json,
    }
    if options.protect != "auto":
        record["protect"] = options.protect
    if chosen.sampling:
        record["sampling"] = chosen.sampling
    if options.from_json:
        record["from_json"] = True
    if options.target_language:
        record["target_language"] = options.target_language
    if options.split_sentences:
        return record | {"split_sentences": options.source_language}
    return record | ({"source_language": options.source_language} if options.source_language else {})
