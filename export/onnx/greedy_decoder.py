"""Greedy search with `encoder.onnx` and `decoder.onnx`. The loop runs in Python."""

import functools
import json
from pathlib import Path

import numpy as np

from keras_transformer.config import BOS_ID, EOS_ID, PAD_ID


class OnnxGreedySearch:
    """Greedy search that calls the decoder step by step: an example for other searches.

    Args:
        folder: folder of an ONNX export.
        extra_length: maximum length of a hypothesis in addition to the length of its source. At the limit the end
            token is forced.
    """

    def __init__(self, folder: str | Path, extra_length: int = 50):
        self._folder = Path(folder)
        self._extra_length = extra_length

    @functools.cached_property
    def _encoder(self):
        return self._session("encoder")

    @functools.cached_property
    def _decoder(self):
        return self._session("decoder")

    def _session(self, name):
        import onnxruntime

        return onnxruntime.InferenceSession(str(self._folder / f"{name}.onnx"), providers=["CPUExecutionProvider"])

    @functools.cached_property
    def _config(self):
        return json.loads(self._decoder.get_modelmeta().custom_metadata_map["config"])

    def search(self, source: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Chooses the most probable token at each step; see `TokenTranslator.search`."""
        memory = self._run(self._encoder, source=source)
        limits = memory["memory_mask"].sum(axis=1) + self._extra_length
        limits = limits.clip(1, self._config["max_length"])
        cache = self._empty_cache(len(source))
        token = np.full(len(source), BOS_ID, "int32")
        finished = np.zeros(len(source), bool)
        tokens, scores = [], np.zeros(len(source), "float32")
        while not finished.all():
            step = self._run(self._decoder, tokens=token[:, None], **memory, **cache)
            logits = step.pop("logits")
            cache = {name.removeprefix("next_"): value for name, value in step.items()}
            choosable = logits.copy()
            choosable[:, [PAD_ID, BOS_ID]] = -np.inf
            token = np.where(len(tokens) + 1 >= limits, EOS_ID, choosable.argmax(axis=1)).astype("int32")
            chosen = np.take_along_axis(logits, token[:, None], axis=1)[:, 0]
            scores += np.where(finished, 0, chosen - log_sum_exp(logits))
            token = np.where(finished, PAD_ID, token).astype("int32")
            tokens.append(token)
            finished |= token == EOS_ID
        return np.stack(tokens, axis=1)[:, None], scores[:, None]

    def _empty_cache(self, rows):
        caches = {value.name: value for value in self._decoder.get_inputs() if value.name.startswith("cache_")}
        dtypes = {"tensor(float)": "float32", "tensor(float16)": "float16"}
        return {
            name: np.zeros((value.shape[0], rows, value.shape[2], 0, value.shape[4]), dtypes[value.type])
            for name, value in caches.items()
        }

    @staticmethod
    def _run(session, **inputs):
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(names, inputs), strict=True))


def log_sum_exp(logits: np.ndarray) -> np.ndarray:
    """The logarithm of the sum of the exponentials of each row."""
    largest = logits.max(axis=1, keepdims=True)
    return (largest + np.log(np.exp(logits - largest).sum(axis=1, keepdims=True)))[:, 0]
