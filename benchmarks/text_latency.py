"""Latency of a language model beside transformers: `python -m benchmarks.text_latency --help`.

An untrained model in the layout of Llama continues a prompt with greedy search: `LanguageModel.stream`, loops over
`decoder.onnx` in float32 and int8, and over the same model in transformers (PyTorch). All are in one
process and take turns. The table has the time to the first token, which includes the prompt, and to each further one.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

SIZES = {"vocab_size": 16000, "num_layers": 8, "d_model": 512, "num_heads": 8, "d_ff": 1376, "num_kv_heads": 4}


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.text_latency", description=__doc__)
    parser.add_argument("--prompt", type=int, default=128, help="number of tokens of the prompt")
    parser.add_argument("--tokens", type=int, default=64, help="number of tokens to generate, at least 2")
    parser.add_argument("--rows", type=int, default=1, help="number of prompts at a time")
    parser.add_argument("--threads", type=int, default=1, help="threads of every runtime")
    parser.add_argument("--turns", type=int, default=9, help="number of turns; the table shows the median")
    options = parser.parse_args()
    prompt = np.random.default_rng(1).integers(4, SIZES["vocab_size"], (options.rows, options.prompt), "int32")
    with tempfile.TemporaryDirectory() as folder:
        streams = make_streams(Path(folder), options)
        texts = {name: [*stream(prompt)] for name, stream in streams.items()}  # Compiles.
        seconds = {name: [] for name in streams}
        for _ in range(options.turns):
            for name, stream in streams.items():
                seconds[name].append(time_stream(stream, prompt))
    show(texts, seconds, options)


def time_stream(stream, prompt):
    """Seconds until the first token, and the median until each further one."""
    times = [time.perf_counter()]
    for _ in stream(prompt):
        times.append(time.perf_counter())
    first, *further = np.diff(times)
    return first, statistics.median(further)


def make_streams(folder, options):
    """By name: a function of prompts that yields the next token of each row."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)

    import keras_transformer as kt
    from keras_transformer.export.onnx.text_decoder import OnnxTextDecoder

    config = kt.TransformerConfig.preset("modern", **SIZES, scale_embedding=False)
    model = kt.LanguageModel(config, seed=1)
    # The end token is forbidden until the last step, so that all runtimes do the same work.
    strategy = kt.decoding.GreedySearch(extra_length=options.tokens, min_length=options.prompt + options.tokens - 1)
    print("Exporting", file=sys.stderr)
    kt.export.export_huggingface(model, folder / "huggingface")
    samples = np.random.default_rng(2).integers(4, SIZES["vocab_size"], (2, 5), "int32")  # A short verification.
    formats = ["onnx", "onnx_int8"]
    kt.export.export_model(model, folder / "export", kt.decoding.GreedySearch(), formats, samples)

    def onnx(name):
        decoder = OnnxTextDecoder(folder / "export" / name, options.tokens, options.threads)
        return lambda prompt: (tokens for tokens, _ in decoder.stream(prompt, min_length=strategy.min_length))

    return {
        "Keras, stream": lambda prompt: (tokens[:, 0] for tokens in model.stream(prompt, strategy)),
        "decoder.onnx": onnx("onnx"),
        "decoder.onnx, int8": onnx("onnx_int8"),
        "transformers": transformers_stream(folder / "huggingface", options),
    }


def transformers_stream(folder, options):
    """A loop over the model in transformers, without the checks of its `generate`."""
    import torch
    import transformers

    torch.set_num_threads(options.threads)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()

    def stream(prompt):
        start = np.full((len(prompt), 1), model.config.bos_token_id)
        tokens, cache = torch.tensor(np.concatenate([start, prompt], axis=1)), None
        for _ in range(options.tokens):
            with torch.inference_mode():
                found = model(tokens, past_key_values=cache, use_cache=True, logits_to_keep=1)
            logits, cache = found.logits[:, -1].clone(), found.past_key_values
            logits[:, [0, 2, 3]] = -torch.inf
            tokens = logits.argmax(dim=-1, keepdim=True)
            yield tokens[:, 0].numpy()

    return stream


def show(texts, seconds, options):
    from rich.console import Console
    from rich.table import Table

    title = f"{options.rows} x {options.prompt} tokens, {options.threads} threads; median of {options.turns} turns, ms"
    table = Table("runtime", "first token", "/ transformers", "further token", "/ transformers", "equal", title=title)
    reference, theirs = np.stack(texts["transformers"][:-1]), seconds["transformers"]
    for name, ours in seconds.items():
        cells = []
        for which in range(2):
            ratios = [a[which] / b[which] for a, b in zip(ours, theirs, strict=True)]
            cells += [f"{1e3 * statistics.median(x[which] for x in ours):.2f}", f"{statistics.median(ratios):.2f}"]
        equal = np.mean(np.stack(texts[name][: len(reference)]) == reference)
        table.add_row(name, *cells, f"{equal:.0%}")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
