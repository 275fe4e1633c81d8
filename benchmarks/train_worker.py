"""One library, in its own process. For each line of input it trains one pass and prints one line of JSON."""

import os
import sys
import time

from benchmarks import train_peers
from benchmarks.decode_worker import answer, peak_memory
from benchmarks.train_data import read_batches


def main():
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # Standard output is for the answers only.
    name, file, num_layers = sys.argv[1:]
    started = time.perf_counter()
    _, trainer, options = train_peers.PEERS[name]
    one_pass = getattr(train_peers, trainer)(read_batches(file), int(num_layers), **options)
    one_pass()
    answer(answers, start=time.perf_counter() - started)
    for _ in sys.stdin:
        started = time.perf_counter()
        loss = one_pass()
        answer(answers, seconds=time.perf_counter() - started, loss=loss, memory=peak_memory())


if __name__ == "__main__":
    main()
