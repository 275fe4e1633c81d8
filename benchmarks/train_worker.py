"""One library, in its own process. For each line of input it trains one pass and prints one line of JSON."""

import json
import os
import sys
import time

from benchmarks import train_peers
from benchmarks.decode_worker import answer, peak_memory
from benchmarks.train_data import read_batches
from keras_transformer import TransformerConfig


def main():
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # Standard output is for the answers only.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # The processes share the GPU.
    name, file, config, precision = sys.argv[1:]
    started = time.perf_counter()
    peer = {**train_peers.PEERS, **train_peers.ATTENTION_PEERS}[name]
    if peer.backend:
        os.environ["KERAS_BACKEND"] = peer.backend
    config = TransformerConfig(**json.loads(config))
    one_pass = getattr(train_peers, peer.trainer)(read_batches(file), config, precision, **peer.options)
    one_pass()
    answer(answers, start=time.perf_counter() - started, device=device(peer.module))
    for _ in sys.stdin:
        started = time.perf_counter()
        loss = one_pass()
        seconds = time.perf_counter() - started
        answer(answers, seconds=seconds, loss=loss, memory=peak_gpu_memory(peer.module) or peak_memory())


def device(module):
    """The name of the GPU that PyTorch or the Keras backend trains on, or "CPU"."""
    if module == "torch":
        import torch

        return torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    from keras_transformer.training.backends import make_devices

    return make_devices(None).kind


def peak_gpu_memory(module):
    """Peak memory of tensors on the GPU in MiB; 0 on a CPU."""
    if module == "torch":
        import torch

        return torch.cuda.max_memory_allocated() / 2**20
    import keras

    if keras.backend.backend() == "jax":
        import jax

        return (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use", 0) / 2**20
    import tensorflow as tf

    has_gpu = tf.config.list_physical_devices("GPU")
    return tf.config.experimental.get_memory_info("GPU:0")["peak"] / 2**20 if has_gpu else 0


if __name__ == "__main__":
    main()
