"""One runtime, in its own process. Reads `[lines, batch_size]` as one line of JSON, and prints one line of JSON."""

import json
import os
import sys
import time


def main():
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # Standard output is for the answers only.
    directory, runtime, options = json.loads(sys.argv[1])
    started = time.perf_counter()
    translator = load(directory, runtime, options)
    translator.translate(["a"])
    answer(answers, seconds=time.perf_counter() - started)
    for request in sys.stdin:
        lines, batch_size = json.loads(request)
        started = time.perf_counter()
        texts = [translation.text for translation in translator.translate(lines, batch_size)]
        seconds = time.perf_counter() - started
        subwords = sum(len(ids) for ids in target_tokenizer(directory).encode(texts))
        answer(answers, seconds=seconds, memory=peak_memory(), subwords=subwords, texts=texts)


def load(directory, runtime, options):
    from keras_transformer.decoding import BeamSearch
    from keras_transformer.export import load_translator

    if "search" in options:
        options["strategy"] = BeamSearch(**options.pop("search"))
    return load_translator(directory, runtime, **options)


def target_tokenizer(directory):
    from keras_transformer.model_directory import ModelDirectory
    from keras_transformer.text.tokenization import load_tokenizers

    return load_tokenizers(ModelDirectory(directory))[1]


def peak_memory():
    """Peak resident memory of this process in MiB. `resource` would include the parent's."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:")) / 1024


def answer(stream, **values):
    print(json.dumps(values), file=stream, flush=True)


if __name__ == "__main__":
    main()
