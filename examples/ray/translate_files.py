"""Translates a directory of text files with Ray Data, one sentence per line.

python examples/ray/translate_files.py runs/en-de texts translations --runtime onnx_int8 --workers 2

Ray Data distributes the files to workers, which have translators of their own. It repeats the file of a worker that
dies. After an interruption, the same command continues: finished files are skipped, and the others are resumed after
their last translated line. Divide a very large file first, for example with `split -l 1000000`.
"""

import argparse
import hashlib
import itertools
from pathlib import Path

from keras_transformer.storage import ModelDirectory, ResumableFile, hash_of_program
from keras_transformer.text import TextLines
from keras_transformer.translate import load_translator

#: How often a worker that dies is replaced, and its file repeated. By default, Ray Data repeats without end.
RETRIES = {"max_restarts": 3, "max_task_retries": 3}


class Worker:
    """Translates files with its own translator, on one core."""

    def __init__(self, directory: str, runtime: str):
        self._record = {"model": hash_of_program(directory, runtime), "runtime": runtime}
        self._translator = load_translator(directory, runtime, num_threads=1)

    def __call__(self, row: dict) -> dict:
        """Translates the file `source` to the file `output`. An interrupted file must be of this text and model."""
        source, output = Path(row["source"]), Path(row["output"])
        record = {**self._record, "source": hashlib.sha256(source.read_bytes()).hexdigest()}
        file = ResumableFile(output, record, how_to_resume="start the command again")
        with TextLines(source) as lines, file.writing(resume=True) as (written, done):
            rest = itertools.islice(lines, done, None)
            for translation in self._translator.translate_stream(rest, first_line=done + 1):
                written.write(f"{translation.line}\n".encode())
        return row


def missing_files(source: Path, output: Path) -> list[dict]:
    """The files to translate, the largest first: a worker that got one of them last would keep the others waiting."""
    files = [path for path in source.iterdir() if path.is_file() and not path.name.startswith(".")]
    files.sort(key=lambda path: path.stat().st_size, reverse=True)
    pairs = [(path, output / path.name.removesuffix(".gz")) for path in files]
    if len({place for _, place in pairs}) < len(pairs):
        raise ValueError(f"{source} must not contain a file both with and without .gz")
    return [{"source": str(path), "output": str(place)} for path, place in pairs if not place.exists()]


def main() -> None:
    """Translates the files that are not translated yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="model directory of a finished training")
    parser.add_argument("source", type=Path, help="directory of text files, plain or .gz, in UTF-8")
    parser.add_argument("output", type=Path, help="directory to write; on several machines, a shared one")
    parser.add_argument("--runtime", default="keras", help="runtime that translates (default: keras)")
    parser.add_argument("--workers", type=int, default=2, help="number of workers, one core each (default: 2)")
    options = parser.parse_args()
    directory, source, output = (path.resolve() for path in (options.directory, options.source, options.output))
    ModelDirectory(directory).require_finished()
    output.mkdir(parents=True, exist_ok=True)
    rows = missing_files(source, output)
    if rows:
        import ray

        files = ray.data.from_items(rows, override_num_blocks=len(rows)).map(
            Worker,
            fn_constructor_args=(str(directory), options.runtime),
            compute=ray.data.ActorPoolStrategy(size=options.workers),
            num_cpus=1,
            **RETRIES,
        )
        for row in files.iter_rows():
            print(row["output"])


if __name__ == "__main__":
    main()
