"""One runtime, in its own process. Reads `[lines, batch_size, requests]` as lines of JSON, and prints lines of JSON."""

import itertools
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
        lines, batch_size, requests = json.loads(request)
        batches = batches_of(translator, lines, batch_size, requests)
        started = time.perf_counter()
        found = [translator.translate([lines[i] for i in batch], batch_size) for batch in batches]
        seconds = time.perf_counter() - started
        by_line = dict(zip(itertools.chain(*batches), itertools.chain(*found), strict=True))
        texts = [by_line[i].text for i in range(len(lines))]
        subwords = sum(len(ids) for ids in target_tokenizer(directory).encode(texts))
        answer(answers, seconds=seconds, memory=peak_memory(), subwords=subwords, texts=texts)


def load(directory, runtime, options):
    from keras_transformer.decoding import BeamSearch
    from keras_transformer.translate import load_translator

    if "search" in options:
        options["strategy"] = BeamSearch(**options.pop("search"))
    return load_translator(directory, runtime, **options)


def batches_of(translator, lines, batch_size, requests):
    """Indices of the lines of each call of `translate`: with `requests` those of one batch, otherwise all."""
    if not requests:
        return [range(len(lines))]
    from keras_transformer.translate.batching import BatchLimits

    return list(BatchLimits(batch_size).batches([1 + count for count in translator.count_tokens(lines)]))


def target_tokenizer(directory):
    from keras_transformer.storage.model_directory import ModelDirectory
    from keras_transformer.storage.tokenizers import load_tokenizers

    return load_tokenizers(ModelDirectory(directory))[1]


def peak_memory():
    """Peak resident memory of this process in MiB. `resource` would include the parent's."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:")) / 1024


def answer(stream, **values):
    print(json.dumps(values), file=stream, flush=True)


if __name__ == "__main__":
    main()
