"""One runtime, in its own process. Reads arguments of `translated` as lines of JSON, and answers with lines of JSON."""

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
        started = time.perf_counter()
        texts = translated(translator, *json.loads(request))
        seconds = time.perf_counter() - started
        subwords = sum(len(ids) for ids in target_tokenizer(directory).encode(texts))
        answer(answers, seconds=seconds, memory=peak_memory(), subwords=subwords, texts=texts)


def load(directory, runtime, options):
    from keras_transformer.decoding import BeamSearch
    from keras_transformer.export import load_translator

    if "search" in options:
        options["strategy"] = BeamSearch(**options.pop("search"))
    return load_translator(directory, runtime, **options)


def translated(translator, lines, batch_size, requests):
    """The translations of lines. With `requests`, of each batch by itself, sorted by length, as `translate` does it."""
    if not requests:
        return [translation.text for translation in translator.translate(lines, batch_size)]
    lengths = translator.count_tokens(lines)
    order = sorted(range(len(lines)), key=lambda i: lengths[i])
    texts = {}
    for start in range(0, len(lines), batch_size):
        batch = order[start : start + batch_size]
        found = translator.translate([lines[i] for i in batch], batch_size)
        texts.update(zip(batch, (translation.text for translation in found), strict=True))
    return [texts[i] for i in range(len(lines))]


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
