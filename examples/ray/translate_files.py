"""Translates a directory of text files with Ray Data, one sentence per line.

python examples/ray/translate_files.py runs/en-de texts translations --runtime onnx_int8 --workers 2

Each file is divided into shards. Ray Data distributes them to workers, which have their own translators. It repeats the
shard of a worker that dies. A translated shard is a file in `NAME.partial` that appears when it is complete. The output
file consists of all shards in order. After an interruption, the same command translates the missing shards only.

A shard consists of whole chunks of `translate_stream`. So the batches, and the translations, are those of
`keras-transformer translate --parallel_batches 1`.
"""

import argparse
import collections
import contextlib
import dataclasses
import fcntl
import hashlib
import itertools
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from keras_transformer.progress import progress_bar
from keras_transformer.storage.atomic_files import TEMPORARY, atomic_write, delete, delete_matching
from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.storage.origin import export_folder, hash_of_program
from keras_transformer.text.files import UTF_8, TextLines, readable, split_lines
from keras_transformer.translate.batching import BATCH_SIZE, BatchLimits
from keras_transformer.translate.load import RUNTIMES, available_runtimes, load_translator

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

#: Blocks of the dataset of shards. A worker takes one block at a time: a single shard, except in very large jobs.
_MAX_BLOCKS = 10_000
#: Attempts to translate a shard, and the suffix of the file that counts them.
_MAX_ATTEMPTS = 4
_ATTEMPTS = ".attempts"
#: Folder with the records of the finished files.
RECORDS = ".records"


@dataclasses.dataclass(frozen=True)
class Shard:
    """Consecutive lines of a file.

    Attributes:
        source: the file.
        offset: position of the first byte, in the text without compression.
        first_line: number of the first line, from 1.
        lines: number of lines.
        output: file for their translations.
    """

    source: str
    offset: int
    first_line: int
    lines: int
    output: str

    def read(self) -> list[str]:
        """Reads the lines."""
        with readable(self.source) as file:
            file.seek(self.offset)
            with contextlib.closing(split_lines(file)) as lines:
                first, *others = itertools.islice(lines, self.lines)
        return [first if self.offset else first.removeprefix("\ufeff"), *others]

    def count_attempt(self) -> None:
        """Counts the attempts to translate this shard. Ray Data would endlessly repeat a shard that kills its workers.

        Raises:
            RuntimeError: after too many attempts.
        """
        with open(self.output + _ATTEMPTS, "ab") as file:
            file.write(b".")
            if file.tell() > _MAX_ATTEMPTS:
                last = self.first_line + self.lines - 1
                raise RuntimeError(f"{_MAX_ATTEMPTS} workers died at {self.source}, lines {self.first_line} to {last}")


class Worker:
    """Translates shards with its own translator, on one core.

    Args:
        directory: the model directory.
        runtime: the runtime that translates.
        batch_size: maximum sentences per batch.
    """

    def __init__(self, directory: str, runtime: str, batch_size: int):
        self._translator = load_translator(directory, runtime, num_threads=1)
        self._batch_size = batch_size

    def __call__(self, row: dict) -> dict:
        """Translates a shard, unless a worker that died has finished it.

        Args:
            row: the attributes of a `Shard`.
        """
        shard = Shard(**row)
        if not Path(shard.output).exists():
            shard.count_attempt()
            found = self._translator.translate_stream(shard.read(), self._batch_size, first_line=shard.first_line)
            with atomic_write(Path(shard.output)) as temporary:
                temporary.write_text("".join(f"{one.line}\n" for one in found), encoding=UTF_8, newline="\n")
        return {"output": shard.output, "lines": shard.lines}


class TextFile:
    """A file to translate, its shards and its output.

    Args:
        source: the file, plain or `.gz`.
        output: the file to write, without `.gz`.
        record: what determines the translation, except the text.
        limits: limits of a batch.
        chunks: chunks of `translate_stream` per shard.

    Raises:
        ValueError: if the file cannot be read.
    """

    def __init__(self, source: Path, output: Path, record: dict, limits: BatchLimits, chunks: int):
        self._source, self._output = source, output
        self._partial = output.with_name(f"{output.name}.partial")
        self._record_file = output.parent / RECORDS / f"{output.name}.json"
        self.shards, digest = self._divide(limits, chunks)
        self._record = {"source": digest, "chunks": chunks, **record}

    def _divide(self, limits, chunks) -> tuple[list[Shard], str]:
        """The shards, and the hash of the text. Reads the file once, and checks its encoding."""
        shards, digest, offset, line = [], hashlib.sha256(), 0, 1
        with readable(self._source) as file, TextLines(self._source) as texts:
            pairs = zip(file, texts, strict=True)  # The same lines, as bytes and as text.
            while part := list(itertools.chain.from_iterable(itertools.islice(limits.chunks(pairs), chunks))):
                output = self._partial / f"{len(shards):08d}"
                shards.append(Shard(str(self._source), offset, line, len(part), str(output)))
                for raw, _ in part:
                    digest.update(raw)
                    offset += len(raw)
                line += len(part)
        return shards, digest.hexdigest()

    @property
    def missing(self) -> list[Shard]:
        """The shards that are not translated yet."""
        return [shard for shard in self.shards if not Path(shard.output).exists()]

    def begin(self) -> bool:
        """Prepares the translation.

        Returns:
            Whether the file must be translated.

        Raises:
            ValueError: if the output or its shards exist and were not made from this text with these options.
        """
        if self._record_file.exists():
            self._check(self._record_file, self._output)
            if self._output.exists():
                shutil.rmtree(self._partial, ignore_errors=True)
                return False
            delete(self._record_file)  # The output was deleted.
        record = self._partial / "record.json"
        if record.exists():
            self._check(record, self._partial)
        elif self._output.exists():
            raise ValueError(f"{self._output} exists and is not an output of this program; delete or move it")
        with atomic_write(record) as temporary:
            temporary.write_text(json.dumps(self._record, indent=1) + "\n", encoding=UTF_8)
        delete_matching(self._partial, f"*{_ATTEMPTS}")
        return True

    def _check(self, record, path):
        found = json.loads(record.read_text(encoding=UTF_8))
        differing = [name for name in {**self._record, **found} if found.get(name) != self._record.get(name)]
        if differing:
            raise ValueError(f"{path} was made with another {', '.join(differing)}; delete it and {record}")

    def finish(self) -> None:
        """Writes the output of the shards. After an interruption at any point, the command continues here."""
        with atomic_write(self._output) as temporary, open(temporary, "wb") as output:
            for shard in self.shards:
                with open(shard.output, "rb") as file:
                    shutil.copyfileobj(file, output)
        with atomic_write(self._record_file) as temporary:
            temporary.write_text(json.dumps(self._record, indent=1) + "\n", encoding=UTF_8)
        shutil.rmtree(self._partial, ignore_errors=True)


def text_files(source: Path, output: Path, *arguments) -> list[TextFile]:
    """The files of a directory.

    Args:
        source: the directory. Its folders, and files whose names begin with a dot, are skipped.
        output: the directory to write.
        *arguments: further arguments of `TextFile`.

    Raises:
        ValueError: if there is no file, or two files have the same output.
    """
    sources = sorted(path for path in source.iterdir() if path.is_file() and not path.name.startswith("."))
    names = [path.name.removesuffix(".gz") for path in sources]
    if not names:
        raise ValueError(f"`source` must contain text files. Received: source={source}")
    if repeated := [name for name, count in collections.Counter(names).items() if count > 1]:
        raise ValueError(f"{source} contains two files {repeated[0]}, one of them with .gz")
    return [TextFile(path, output / name, *arguments) for path, name in zip(sources, names, strict=True)]


def translated(files: list[TextFile], workers: int, arguments: tuple, address: str | None) -> Iterator[int]:
    """Translates the missing shards, and finishes each file as soon as its shards are complete.

    Args:
        files: the files.
        workers: number of workers.
        arguments: arguments of `Worker`.
        address: a Ray cluster. Default: a new one on this machine.

    Yields:
        The number of lines of each shard, in the order in which they are completed.
    """
    missing = [(file, shard) for file in files for shard in file.missing]  # Before files are finished.
    owners = {shard.output: file for file, shard in missing}
    waiting = collections.Counter(owners.values())
    for file in files:
        if not waiting[file]:
            file.finish()
    if not owners:
        return
    for row in _rows([dataclasses.asdict(shard) for _, shard in missing], workers, arguments, address):
        yield int(row["lines"])
        file = owners[row["output"]]
        waiting[file] -= 1
        if not waiting[file]:
            file.finish()


def _rows(shards, workers, arguments, address):
    import ray

    # Each worker has a core. A core is left for Ray Data's own tasks.
    local = {"include_dashboard": False, "object_store_memory": 256 << 20, "num_cpus": workers + 1}
    address = address or os.environ.get("RAY_ADDRESS")
    ray.init(address, **({} if address else local))
    ray.data.DataContext.get_current().enable_progress_bars = False
    dataset = ray.data.from_items(shards, override_num_blocks=min(len(shards), _MAX_BLOCKS)).map(
        Worker,
        fn_constructor_args=arguments,
        compute=ray.data.ActorPoolStrategy(size=workers),
        num_cpus=1,
    )
    yield from dataset.iter_rows()
    ray.shutdown()


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Locks a directory against a second job, and deletes temporary files of killed ones.

    The system releases the lock of a killed process.

    Args:
        folder: the directory, which is created if necessary.

    Raises:
        ValueError: if another process holds the lock.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for path in (folder, folder / RECORDS):
            delete_matching(path, f"{TEMPORARY}*")  # From killed jobs.
        yield
    except BlockingIOError as error:
        raise ValueError(f"{folder} is in use by another process") from error
    finally:
        os.close(descriptor)


def main() -> None:
    """Translates the files that are not translated yet."""
    options = _parsed()
    directory, output = Path(options.directory).resolve(), options.output.resolve()
    try:
        ModelDirectory(directory).require_finished()
        if options.runtime not in available_runtimes(directory):
            raise ValueError(f"{directory} has no export for --runtime {options.runtime}")
        if options.runtime != "keras":
            export_folder(directory, options.runtime)  # Fails if the model has changed since the export.
        limits = BatchLimits(options.batch_size)
        record = {"model": hash_of_program(directory, options.runtime), "runtime": options.runtime}
        record["batch_size"] = options.batch_size
        with locked(output):
            files = text_files(options.source.resolve(), output, record, limits, options.chunks)
            files = [file for file in files if file.begin()]
            total = sum(shard.lines for file in files for shard in file.missing)
            arguments = str(directory), options.runtime, options.batch_size
            with progress_bar(total=total, unit="line") as bar:
                for lines in translated(files, options.workers, arguments, options.address):
                    bar.update(lines)
    except ValueError as error:
        sys.exit(f"translate_files.py: {error}")


def _at_least_1(text) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1. Received: {text}")
    return number


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", help="model directory of a finished training")
    parser.add_argument("source", type=Path, help="directory of text files, plain or .gz, in UTF-8")
    parser.add_argument("output", type=Path, help="directory to write; on several machines, a shared one")
    parser.add_argument("--runtime", choices=RUNTIMES, default="keras", help="runtime that translates (default: keras)")
    parser.add_argument("--workers", type=_at_least_1, default=2, help="number of workers, one core each (default: 2)")
    parser.add_argument("--batch_size", type=_at_least_1, default=BATCH_SIZE, help="maximum sentences per batch")
    parser.add_argument("--chunks", type=_at_least_1, default=1, help="chunks of 64 batches per shard (default: 1)")
    parser.add_argument("--address", help="Ray cluster, such as auto; default: a new one on this machine")
    return parser.parse_args()


if __name__ == "__main__":
    main()
