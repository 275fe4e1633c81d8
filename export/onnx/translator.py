"""The ONNX client. It imports neither TensorFlow nor Keras, only onnxruntime, sentencepiece and NumPy."""

import contextlib
import ctypes
import functools
import json
import threading
from pathlib import Path

import numpy as np

from keras_transformer.config import PAD_ID
from keras_transformer.storage.exhaustion import is_out_of_memory
from keras_transformer.storage.languages import languages_of
from keras_transformer.storage.model_directory import ModelDirectory, ModelDirectoryError
from keras_transformer.storage.origin import export_command, export_folder
from keras_transformer.storage.source_text import source_text_of
from keras_transformer.storage.tokenizers import load_tokenizers
from keras_transformer.translate.threads import threads_of_a_batch
from keras_transformer.translate.token_translator import TokenTranslator
from keras_transformer.translate.translator import Translator

#: Bytes of address space that onnxruntime reserves first. Memory is used only where tensors are written. By default it
#: starts with 1 MB and adds regions of twice the size of the last one, where large tensors leave gaps: a server that
#: has translated batches of many sizes then uses 8 % more memory.
_FIRST_REGION = 256 << 20
#: Bytes that may stay unused at the end of a block of memory.
_MAX_UNUSED = 1 << 20


class OnnxTranslator(TokenTranslator):
    """Translates with `model.onnx` in onnxruntime.

    Args:
        directory: a model directory with an ONNX export, or the folder of the export.
        num_threads: threads per batch. 0: the cores are divided among `parallel_batches`.
        providers: onnxruntime's execution providers. Default: the CPU.
        quantize: `"int8"` or `"float16"` for the export of that type. Default: the float32 export.
        parallel_batches: batches translated at a time. For several lines at a time, use the number of cores. The
            default, 1, has the lowest latency for a single batch.
        protect: what is not translated: `"auto"`, `"off"` or a regular expression; see `Protection`.

    Raises:
        ValueError: if the export is missing, damaged or made from another model, a tokenizer belongs to another
            model, a number of threads or batches is out of range, or `protect` is invalid.

    Example:

        OnnxTranslator("runs/en-de").translate(["Two men are outside."])[0].text
    """

    def __init__(
        self,
        directory: str | Path,
        num_threads: int = 0,
        providers: list[str] | None = None,
        quantize: str | None = None,
        parallel_batches: int = 1,
        protect: str = "auto",
    ):
        num_threads = threads_of_a_batch(num_threads, parallel_batches)
        folder = export_folder(directory, "onnx", quantize)
        if not (folder / "model.onnx").is_file():
            kind = f"ONNX {quantize}" if quantize else "ONNX"
            raise ModelDirectoryError(
                f"No {kind} export in {directory} (no model.onnx). "
                f"Make one: {export_command(directory, 'onnx', quantize)}"
            )
        self._folder = folder
        self._load = functools.partial(_session, folder, num_threads, providers)
        self._sessions, self._lock = {}, threading.Lock()
        languages = languages_of(folder)
        # The format `web` has one graph. That of other formats takes no prefix.
        self._with_prefix = "model_prefix" if (folder / "model_prefix.onnx").is_file() else "model"
        first = self._session(self._with_prefix if languages.forces_target else "model")
        metadata = first.get_modelmeta().custom_metadata_map
        if not {"search", "config", "source_tokenizer_sha256", "target_tokenizer_sha256"} <= metadata.keys():
            raise ModelDirectoryError(f"Not an ONNX export of this package: {folder / 'model.onnx'}")
        self._needs_prefix = languages.forces_target and self._with_prefix == "model"
        self.exported_search = json.loads(metadata["search"])
        hashes = (metadata["source_tokenizer_sha256"], metadata["target_tokenizer_sha256"])
        tokenizers = load_tokenizers(ModelDirectory(folder), hashes)
        num_positions = json.loads(metadata["config"])["max_length"]
        known = source_text_of(folder), languages
        super().__init__(*tokenizers, num_positions, parallel_batches, protect, *known)

    def _align_sentences(self, lines, translations):
        """See `Translator.align`. Exports without `alignment.onnx` align by position."""
        if (self._folder / "alignment.onnx").is_file():
            return super()._align_sentences(lines, translations)
        return Translator._align_sentences(self, lines, translations)

    def mean_attention(self, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        """See `TokenTranslator.mean_attention`."""
        return self._session("alignment").run(["weights"], {"source": source, "target": target})[0]

    @property
    def session(self):
        """The session of `model.onnx`."""
        return self._session("model")

    def _session(self, name):
        """The session of a graph. Most clients need only one."""
        with self._lock:
            if name not in self._sessions:
                self._sessions[name] = self._load(name)
            return self._sessions[name]

    def release_sessions(self) -> None:
        """Frees the memory of the sessions. They are loaded again when they are needed."""
        self._sessions = {}
        # glibc keeps freed memory: 2 GB of a model with 484 million parameters. Other systems have no `malloc_trim`.
        with contextlib.suppress(AttributeError, OSError, TypeError):
            ctypes.CDLL(None).malloc_trim(0)

    def search(
        self, source: np.ndarray, n_best: int | None = None, prefix: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """See `TokenTranslator.search`. Only an export of a model that is forced to write a language takes a prefix."""
        if prefix is None and self._needs_prefix:
            prefix = np.full((len(source), 1), PAD_ID, "int32")
        if prefix is None:
            return tuple(self.session.run(["tokens", "scores"], {"source": source}))
        session = self._session(self._with_prefix)
        return tuple(session.run(["tokens", "scores"], {"source": source, "prefix": prefix}))


def _session(folder, num_threads, providers, name):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_threads
    _register_allocator()
    options.add_session_config_entry("session.use_env_allocators", "1")
    file = folder / f"{name}.onnx"
    try:
        return onnxruntime.InferenceSession(str(file), options, providers=providers or ["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's exceptions have no common public class.
        if is_out_of_memory(error):
            raise
        raise ModelDirectoryError(f"Invalid ONNX model: {file} ({error})") from error


@functools.cache
def _register_allocator():
    """Registers the allocator of the sessions of this process.

    They share its memory. The process keeps the memory of a deleted session for later ones. Sessions that other code
    creates are not affected, unless they set `session.use_env_allocators`.
    """
    import onnxruntime

    kind = onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR
    memory = onnxruntime.OrtMemoryInfo("Cpu", kind, 0, onnxruntime.OrtMemType.DEFAULT)
    sizes = {"initial_chunk_size_bytes": _FIRST_REGION, "max_dead_bytes_per_chunk": _MAX_UNUSED}
    onnxruntime.create_and_register_allocator(memory, onnxruntime.OrtArenaCfg(sizes))
