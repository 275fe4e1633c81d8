"""Speed of the variants of the model beside the paper's: `python -m benchmarks.variants --help`.

Each variant changes one part of a small model. All models are in one process and take turns, so that varying load of
the machine affects all of them equally. Training is `train_on_batch` with the compiled model; decoding is `generate` in
float32 of untrained models, which all write the same number of tokens.
"""

import argparse
import statistics
import sys
import time

import numpy as np

from keras_transformer.config import PRESETS

VARIANTS = {
    "paper": {},
    "rotary": {"positions": "rotary"},
    "alibi": {"positions": "alibi"},
    "relative": {"positions": "relative"},
    "window of 16": {"window": 16},
    "qk_norm": {"qk_norm": True},
    "rms": {"norm": "rms"},
    "gated, d_ff 2/3": {"feed_forward": "gated", "activation": "silu", "d_ff": 688},
    "1 of 4 kv heads": {"num_kv_heads": 1},
    "modern": {**PRESETS["modern"], "d_ff": 688, "num_kv_heads": 1},
}
SIZES = {"vocab_size": 8000, "num_layers": 3, "d_model": 256, "num_heads": 4, "d_ff": 1024}


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.variants", description=__doc__)
    parser.add_argument("--variants", nargs="+", default=[*VARIANTS], choices=[*VARIANTS], help="default: all")
    parser.add_argument("--rows", type=int, default=64, help="rows per training batch")
    parser.add_argument("--length", type=int, default=32, help="length of source and target rows")
    parser.add_argument("--sentences", type=int, default=32, help="sentences per search")
    parser.add_argument("--turns", type=int, default=9, help="number of turns; the table shows the median")
    options = parser.parse_args()
    subjects = {name: Subject(name, options) for name in options.variants}
    for _ in range(options.turns):
        for subject in subjects.values():
            subject.take_turn()
    show(subjects, options)


class Subject:
    """A model, with its measured seconds."""

    def __init__(self, name, options):
        import keras

        import keras_transformer as kt

        print(f"Compiling {name}", file=sys.stderr)
        self.config = kt.TransformerConfig(**{**SIZES, **VARIANTS[name]})
        self.model = kt.Transformer(self.config)
        self.model.compile(keras.optimizers.Adam(1e-4), kt.losses.LabelSmoothedCrossEntropy(0.1), jit_compile=True)
        shape = (options.rows, options.length)
        source, target, labels = np.random.default_rng(1).integers(4, SIZES["vocab_size"], (3, *shape), "int32")
        self.batch = {"source": source, "target": target}, labels
        self.sentences = source[: options.sentences]
        # No search ends early: all beams write the same number of tokens.
        self.greedy = kt.decoding.GreedySearch(extra_length=0, min_length=options.length)
        self.beam = kt.decoding.BeamSearch(beam_size=4, extra_length=0, min_length=options.length)
        self.seconds = {"training": [], "greedy": [], "beam": []}
        self.take_turn()
        self.seconds = {what: [] for what in self.seconds}

    def take_turn(self):
        self._time("training", lambda: [self.model.train_on_batch(*self.batch) for _ in range(4)])
        self._time("greedy", lambda: self.model.generate(self.sentences, self.greedy))
        self._time("beam", lambda: self.model.generate(self.sentences, self.beam))

    def _time(self, what, function):
        started = time.perf_counter()
        function()
        self.seconds[what].append(time.perf_counter() - started)

    def rates(self, options):
        """Target tokens per second of training, and sentences per second of both searches, of each turn."""
        work = {"training": 4 * options.rows * options.length, "greedy": options.sentences, "beam": options.sentences}
        return {what: [work[what] / seconds for seconds in found] for what, found in self.seconds.items()}

    @property
    def cache_bytes(self):
        """Bytes of keys and values of one token and beam in the self-attention caches, in float32."""
        d_k, d_v = self.config.head_dims
        return 4 * self.config.depths[1] * self.config.kv_heads * (d_k + d_v)


def show(subjects, options):
    from rich.console import Console
    from rich.table import Table

    title = f"{options.rows} x {options.length} + {options.length} tokens; median of {options.turns} turns"
    table = Table("variant", title=title)
    headings = {"training": "training, target tokens/s", "greedy": "greedy, sentences/s", "beam": "beam 4, sentences/s"}
    for heading in (*(text for title in headings.values() for text in (title, "/ first")), "cache bytes/token"):
        table.add_column(heading, justify="right")
    first = next(iter(subjects.values())).rates(options)
    for name, subject in subjects.items():
        rates = subject.rates(options)
        cells = []
        for what in headings:
            ratios = [ours / theirs for ours, theirs in zip(rates[what], first[what], strict=True)]
            cells += [f"{statistics.median(rates[what]):,.0f}", f"{statistics.median(ratios):.2f}"]
        table.add_row(name, *cells, f"{subject.cache_bytes:,}")
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
