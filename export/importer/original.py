"""The original of an imported model: the model of transformers in the same folder, by the token ids of this package."""

import contextlib
import itertools
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from keras_transformer.checks import needs
from keras_transformer.config import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from keras_transformer.export.importer.json_files import read_fields
from keras_transformer.export.importer.vocabulary import WORD
from keras_transformer.storage.languages import Direction
from keras_transformer.text.files import TextLines
from keras_transformer.text.tokenization import SPECIAL_PIECES, Tokenizer

#: Maximum number of lines of a text to compare.
LINES = 200


def sample_lines(source: str | Path) -> list[str]:
    """Reads the first lines of the text to compare. Raises `ValueError` if they cannot be read or contain no text."""
    with TextLines(source) as text:
        lines = [*itertools.islice(text, LINES)]
    if not any(line.strip() for line in lines):
        raise ValueError(f"`source` must have text in its first {LINES} lines. Received: source={source}")
    return lines


def require_transformers() -> None:
    """Raises `ValueError` if PyTorch or transformers is not installed."""
    if "tensorflow" not in sys.modules:
        # PyTorch imports Triton lazily. Triton crashes if TensorFlow was imported before.
        with contextlib.suppress(ImportError):
            import triton  # noqa: F401
    with needs("transformers"):
        import torch  # noqa: F401
        import transformers  # noqa: F401


class Original:
    """A model of transformers and its tokenizer. All ids of its methods are those of the import.

    Args:
        folder: the folder of the model.
        tokenizers: source tokenizer and target tokenizer of the import.

    Attributes:
        version: version of transformers.

    Raises:
        ValueError: if transformers cannot load the tokenizer.
    """

    def __init__(self, folder: Path, tokenizers: tuple[Tokenizer, Tokenizer]):
        import transformers

        # transformers 5 ignores the file of `vocab_file=`, but reads the files of a folder.
        self._tokenizer = _load(transformers.AutoTokenizer, folder)
        self._folder, self._config = folder, read_fields(folder / "config.json")
        self._source_pieces = tokenizers[0].pieces
        self._ours = self._our_ids()
        self._theirs = np.full(len(self._source_pieces), self._tokenizer.unk_token_id)
        known = np.flatnonzero(self._ours >= 0)
        self._theirs[self._ours[known]] = known
        special = [self._config[f"{name}_token_id"] for name in ("pad", "decoder_start", "eos")]
        self._theirs[[PAD_ID, BOS_ID, EOS_ID]] = special
        forbidden = {PAD_ID, UNK_ID, BOS_ID, -1, *tokenizers[1].text_constraints.forbidden}
        self._is_barred = np.isin(self._ours, [*forbidden])
        self._model: Any = None
        self.version = transformers.__version__

    def _our_ids(self):
        """The id of the import of each id, found by the piece; -1 if the import does not have the piece."""
        ours = {piece: i for i, piece in enumerate(self._source_pieces)}
        names = {i: piece for piece, i in self._tokenizer.get_vocab().items()}

        def find(i):
            name = names.get(i, "")
            own = f"{name}_" if name in SPECIAL_PIECES else name
            return ours.get(own, ours.get(f"<row_{i}>", -1))

        found = np.array([find(i) for i in range(self._config["vocab_size"])])
        start = self._config["decoder_start_token_id"]
        found[start] = BOS_ID if found[start] < 0 else found[start]
        special = [self._config["pad_token_id"], self._tokenizer.unk_token_id, self._config["eos_token_id"]]
        found[special] = PAD_ID, UNK_ID, EOS_ID
        return found

    @property
    def unknown_ids(self) -> dict[int, str | None]:
        """The ids that the import does not have, with the piece of each, or `None` if transformers has none either."""
        ids = np.flatnonzero(self._ours < 0).tolist()
        return dict(zip(ids, self._tokenizer.convert_ids_to_tokens(ids), strict=True))

    @property
    def live_ids(self) -> np.ndarray:
        """The ids whose logits the import has: all but padding and the start token."""
        return np.setdiff1d(self._ours, [-1, PAD_ID, BOS_ID])

    def encode(self, line: str, direction: Direction) -> list[int]:
        """The ids of a line, with the tokens of its languages. An id that the import does not have is -1."""
        if direction.target_prefix:
            self._tokenizer.src_lang = direction.source
        else:  # The user writes the tokens.
            tokens = "".join(self._source_pieces[i] for i in direction.source_prefix).replace(WORD, " ")
            line = f"{tokens} {line}".strip()
        return [int(self._ours[i]) if i < len(self._ours) else -1 for i in self._tokenizer(line)["input_ids"]]

    def load(self) -> None:
        """Loads the model in float32. Raises `ValueError` if transformers cannot load it."""
        import torch
        import transformers

        options = {"dtype": torch.float32, "low_cpu_mem_usage": True}
        self._model = _load(transformers.AutoModelForSeq2SeqLM, self._folder, **options).eval()
        # The search of the files, such as its length limit and its length penalty, is not compared.
        names = ("pad_token_id", "eos_token_id", "decoder_start_token_id")
        self._model.generation_config = transformers.GenerationConfig(**{name: self._config[name] for name in names})

    def logits(self, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        """The logits of `live_ids`, float32 `(batch, target_length, ids)`, of a target that begins with BOS."""
        import torch

        with torch.inference_mode():
            logits = self._model(
                **self._inputs(source), decoder_input_ids=torch.from_numpy(self._theirs[target])
            ).logits
        return logits.numpy()[..., self._theirs[self.live_ids]]

    def search(self, source: np.ndarray, prefix: np.ndarray, limits: np.ndarray, beam_size: int) -> list[list[int]]:
        """The best hypothesis of each source, by the rules of this package: at the length limit the end token costs.

        Args:
            source: int32 `(batch, source_length)`.
            prefix: int32 `(batch, prefix_length)`: the first tokens of the hypotheses.
            limits: int32 `(batch,)`: maximum number of tokens of each hypothesis.
            beam_size: number of hypotheses in the beam. 1 is greedy search.
        """
        import torch
        import transformers

        start = np.full((len(source), 1), BOS_ID)
        is_barred, rows = torch.from_numpy(self._is_barred), torch.from_numpy(limits).repeat_interleave(beam_size)
        is_end = torch.arange(len(is_barred)) == self._config["eos_token_id"]

        # transformers would change the logits before the softmax, so that the end token at the limit costs nothing.
        def keep_allowed(tokens, scores):
            is_over = (rows <= tokens.shape[1])[:, None]  # (batch * beam_size, 1)
            return scores.masked_fill(is_barred | (is_over & ~is_end), -torch.inf)

        of_beams = {"length_penalty": 0.0, "early_stopping": "never"} if beam_size > 1 else {}
        with _quiet():
            found = self._model.generate(
                **self._inputs(source),
                decoder_input_ids=torch.from_numpy(self._theirs[np.concatenate([start, prefix], axis=1)]),
                logits_processor=transformers.LogitsProcessorList([keep_allowed]),
                max_length=int(limits.max()) + 1,
                num_beams=beam_size,
                do_sample=False,
                **of_beams,
            )
        rows = self._ours[found[:, 1:].numpy()].tolist()
        return [row[: row.index(EOS_ID) + 1] for row in rows]

    def _inputs(self, source):
        import torch

        return {
            "input_ids": torch.from_numpy(self._theirs[source]),
            "attention_mask": torch.from_numpy(source != PAD_ID),
        }


def _load(kind, folder, **options):
    """An object of transformers, from local files, without code of the folder."""
    try:
        with _quiet():
            return kind.from_pretrained(folder, local_files_only=True, trust_remote_code=False, **options)
    except MemoryError:
        raise
    except Exception as error:  # The errors of transformers have no common class.
        raise ValueError(f"transformers cannot load {folder}: {error}") from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """A context without the warnings and progress bars of transformers."""
    from transformers.utils import logging

    verbosity, has_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(verbosity)
        if has_bars:
            logging.enable_progress_bar()
