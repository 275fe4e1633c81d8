"""Greedy search with the `decoder.onnx` of a language model. The loop runs in Python."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from keras_transformer.export.onnx.greedy_decoder import log_sum_exp


class OnnxTextDecoder:
    """Continues texts with `decoder.onnx`: an example for servers that have their own loop.

    The first call computes all columns in which no prompt is padded. Each further call computes one token of each text:
    the next one of its prompt, or the newest one.

    Args:
        folder: folder of an ONNX export of a language model.
        extra_length: maximum number of tokens beyond those of the prompt, including the end token, which is forced
            there.
        num_threads: onnxruntime's threads. 0: one per core.
    """

    def __init__(self, folder: str | Path, extra_length: int = 50, num_threads: int = 0):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = num_threads
        file = Path(folder) / "decoder.onnx"
        self._session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        self._extra_length = extra_length
        self._config = json.loads(self._session.get_modelmeta().custom_metadata_map["config"])

    def stream(self, prompt: np.ndarray, min_length: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields the next token of each text and its log probability, both `(rows,)`.

        Args:
            prompt: int32 `(rows, prompt_length)`, padded, without the start token.
            min_length: minimum number of tokens before the end token, with the prompt.
        """
        pad, bos, eos = (self._config[f"{name}_id"] for name in ("pad", "bos", "eos"))
        lengths = (prompt != pad).sum(axis=1)
        limits = (lengths + self._extra_length).clip(1, self._config["max_length"])
        position, finished = int(lengths.min()), np.zeros(len(prompt), bool)
        tokens = np.pad(prompt[:, :position], ((0, 0), (1, 0)), constant_values=bos)
        cache = self._empty_cache(len(prompt))
        while not finished.all():
            logits, cache = self._step(tokens, cache)
            allowed = logits.copy()
            allowed[:, [pad, bos, *([eos] if position < min_length else [])]] = -np.inf
            best = allowed.argmax(axis=1)
            chosen = np.where(position + 1 >= limits, eos, best)
            if position < prompt.shape[1]:
                chosen = np.where(position < lengths, prompt[:, position], chosen)
            log_probs = np.take_along_axis(logits, chosen[:, None], axis=1)[:, 0] - log_sum_exp(logits)
            yield np.where(finished, pad, chosen), np.where(finished, 0.0, log_probs)
            finished |= chosen == eos
            tokens, position = chosen[:, None].astype("int32"), position + 1

    def search(self, prompt: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The texts `(rows, 1, length)` and the log probability of what follows the tokens that all prompts have."""
        tokens, log_probs = zip(*self.stream(prompt), strict=True)
        shortest = int((prompt != self._config["pad_id"]).sum(axis=1).min())
        found = np.concatenate([prompt[:, :shortest], np.stack(tokens, axis=1)], axis=1)
        return found[:, None], np.sum(log_probs, axis=0)[:, None]

    def _step(self, tokens, cache):
        logits, *values = self._session.run(None, {"tokens": tokens, **cache})
        return logits, dict(zip(cache, values, strict=True))

    def _empty_cache(self, rows):
        dtypes = {"tensor(float)": "float32", "tensor(float16)": "float16"}
        caches = [value for value in self._session.get_inputs() if value.name.startswith("cache_")]
        return {value.name: np.zeros((rows, value.shape[1], 0, value.shape[3]), dtypes[value.type]) for value in caches}
