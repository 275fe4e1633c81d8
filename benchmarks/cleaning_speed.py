"""Speed and memory of cleaning a large corpus, beside OpusFilter: `python -m benchmarks.cleaning_speed --help`.

Each sentence of the corpus is two random sentences of --source and their translations, and half of the pairs are
spoiled as in `benchmarks.cleaning`. The programs take turns with the same files:

- `prepare --clean`: cleaning, the training of a tokenizer, and the tokens of the pairs that are kept.
- `cleaning alone`: the filters and the files of the pairs that are kept.
- `OpusFilter`: its filters for duplicates, lengths, letters, scripts, markup, copies and numbers. It has none for
  addresses and repairs no encodings. Its filter by length knows no usual ratio, and removes short pairs, too.

With --languages, all of them also identify the language of each sentence, with lingua. The memory is the highest sum
of all processes of a program, shared pages counted once. Linux only.
"""

import argparse
import contextlib
import itertools
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cleaning import Pair, spoiled
from keras_transformer.translate.threads import num_cores

#: Clean pairs that are spoiled at a time.
BLOCK = 50_000
COLUMNS = ("program", "seconds", "pairs/s", "pairs kept", "peak MiB")
CLEAN = "import sys; from benchmarks.cleaning_speed import clean; clean(sys.argv[1], languages=sys.argv[2] == 'True')"


@dataclass(frozen=True)
class Program:
    """A command to measure. `kept` counts the pairs that it keeps, after it has run."""

    command: list[str]
    kept: Callable[[], int]


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cleaning_speed", description=__doc__)
    parser.add_argument("--source", required=True, help="clean English text, one sentence per line, plain or .gz")
    parser.add_argument("--target", required=True, help="its German translation")
    parser.add_argument("--pairs", type=int, default=100_000, help="pairs of the corpus")
    parser.add_argument("--passes", type=int, default=1, help="runs of each program; the table shows the median")
    parser.add_argument("--languages", action="store_true", help="also use the filters by language, which are slow")
    parser.add_argument("--opusfilter", help="program `opusfilter`, from an environment of its own")
    parser.add_argument("--folder", help="folder of temporary files; default: the system's temporary folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        write_corpus(Path(folder), options.source, options.target, options.pairs)
        show(measure(programs(Path(folder), options), options.passes), options.pairs)


def write_corpus(folder: Path, source: str, target: str, pairs: int) -> None:
    from keras_transformer.training.datasets import read_pairs

    text = list(read_pairs(source, target))
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(open(folder / f"text.{code}", "w", encoding="utf-8")) for code in ("en", "de")]
        for pair in joined(text, pairs):
            for file, line in zip(files, pair, strict=True):
                file.write(f"{line}\n")


def joined(text: Sequence[Pair], pairs: int) -> Iterator[Pair]:
    """Pairs of two random pairs of a text. Half of them are spoiled."""
    draw = random.Random(1)
    while pairs > 0:
        size = min(BLOCK, pairs // 2 + 1)
        clean_pairs = [tuple(map(" ".join, zip(*draw.choices(text, k=2), strict=True))) for _ in range(size)]
        block, _, _ = spoiled(clean_pairs, seed=draw.getrandbits(32))
        yield from block[:pairs]
        pairs -= len(block)


def programs(folder: Path, options) -> dict[str, Program]:
    languages = ["--cleaning.languages"] * options.languages
    text = [f"--source={folder / 'text.en'}", f"--target={folder / 'text.de'}"]
    text += ["--source_language=en", "--target_language=de", "--clean", *languages]
    prepare = [sys.executable, "-m", "keras_transformer", "prepare", f"--output={folder / 'tokens'}", "--overwrite"]
    clean_alone = [sys.executable, "-c", CLEAN, str(folder), str(options.languages)]
    found = {
        "prepare --clean": Program([*prepare, *text], lambda: prepared_pairs(folder / "tokens")),
        "cleaning alone": Program(clean_alone, lambda: num_lines(folder / "kept.source.clean")),
    }
    if options.opusfilter:
        config = folder / "opusfilter.yaml"
        write_opusfilter_config(config, options.languages)
        command = [options.opusfilter, "--overwrite", f"--n-jobs={num_cores()}", str(config)]
        found["OpusFilter"] = Program(command, lambda: num_lines(folder / "filtered.en"))
    return found


def clean(folder: str, languages: bool) -> None:
    """Cleans the corpus of a folder. Runs in a process of its own."""
    from keras_transformer.training.cleaning.clean import Cleaner
    from keras_transformer.training.cleaning.config import CleaningConfig
    from keras_transformer.training.datasets import text_pairs

    pairs = text_pairs([f"{folder}/text.en"], [f"{folder}/text.de"], "utf-8")
    Cleaner(CleaningConfig(languages=languages), ("en", "de")).clean(pairs, Path(folder), "kept")


def write_opusfilter_config(path: Path, languages: bool) -> None:
    """Steps of OpusFilter with the limits of this package's filters: duplicates first, then the other filters."""
    import yaml

    from keras_transformer.training.cleaning.identification import COMMON_LANGUAGES

    filters = [
        {"LengthFilter": {"unit": "char", "min_length": 1, "max_length": 5000}},
        {"LengthRatioFilter": {"unit": "char", "threshold": 2}},
        {"AlphabetRatioFilter": {"threshold": 0.5, "exclude_whitespace": True}},
        {"HtmlTagFilter": {}},
        {"CharacterScoreFilter": {"scripts": ["Latin", "Latin"], "thresholds": [0.5, 0.5]}},
        {"SimilarityFilter": {"threshold": 0.9, "lowercase": True}},
        {"NonZeroNumeralsFilter": {"threshold": 0.5}},
    ]
    if languages:
        options = {"languages": ["en", "de"], "langid_languages": [*COMMON_LANGUAGES], "lingua_mode": "high"}
        filters.append({"LinguaFilter": options})
    names = ("text", "unique", "filtered")
    text, unique, kept = ([str(path.parent / f"{name}.{code}") for code in ("en", "de")] for name in names)
    duplicates = {"inputs": text, "outputs": unique, "letters_only": True, "lowercase": True}
    steps = [
        {"type": "remove_duplicates", "parameters": duplicates},
        {"type": "filter", "parameters": {"inputs": unique, "outputs": kept, "filters": filters}},
    ]
    content = {"common": {"output_directory": str(path.parent)}, "steps": steps}
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")


def prepared_pairs(tokens: Path) -> int:
    from keras_transformer.storage.token_directory import TokenDirectory

    return TokenDirectory(tokens).statistics("train").kept


def num_lines(path: Path) -> int:
    with open(path, "rb") as file:
        return sum(1 for _ in file)


def measure(programs: dict[str, Program], passes: int) -> dict[str, list[tuple[float, float, int]]]:
    """Seconds, peak memory in MiB and number of kept pairs, by program and pass."""
    results = {name: [] for name in programs}
    for number, (name, program) in itertools.product(range(passes), programs.items()):
        print(f"pass {number + 1}: {name}", file=sys.stderr)
        seconds, memory = run(program.command)
        results[name].append((seconds, memory, program.kept()))
    return results


def run(command: list[str]) -> tuple[float, float]:
    """The duration of a command, and the peak memory of its processes in MiB. Its output is shown only if it fails."""
    started, peak = time.perf_counter(), 0.0
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        while process.poll() is None:
            peak = max(peak, sum(map(memory, descendants(process.pid))))
            time.sleep(0.2)
        if process.returncode:
            output.seek(0)
            sys.exit(output.read().decode(errors="replace"))
    return time.perf_counter() - started, peak


def descendants(pid: int) -> list[int]:
    """A process and all processes that it has started."""
    found = [pid]
    for parent in found:  # Grows while it is read.
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            with contextlib.suppress(OSError):  # The process has ended.
                found += map(int, children.read_text().split())
    return found


def memory(pid: int) -> float:
    """MiB of a process. A page that several processes share counts once in their sum."""
    try:
        return int(re.search(r"Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text())[1]) / 1024
    except (OSError, TypeError):  # The process has ended.
        return 0.0


def show(results: dict[str, list[tuple[float, float, int]]], pairs: int) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{pairs:,} pairs on {num_cores()} cores")
    for column in COLUMNS:
        table.add_column(column, justify="left" if column == "program" else "right")
    for name, passes in results.items():
        seconds, peak, kept = (statistics.median(values) for values in zip(*passes, strict=True))
        table.add_row(name, f"{seconds:,.1f}", f"{pairs / seconds:,.0f}", f"{kept:,.0f}", f"{peak:,.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
