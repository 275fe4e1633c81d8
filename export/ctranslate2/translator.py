"""The CTranslate2 client. It imports neither TensorFlow nor Keras, only ctranslate2, sentencepiece and NumPy."""

import json
from pathlib import Path

import numpy as np

from keras_transformer.checks import needs
from keras_transformer.config import PAD_ID
from keras_transformer.decoding import BeamSearch
from keras_transformer.decoding.scores import NEG_INF
from keras_transformer.storage.languages import languages_of
from keras_transformer.storage.model_directory import ModelDirectory, ModelDirectoryError
from keras_transformer.storage.origin import export_command, export_folder
from keras_transformer.storage.source_text import source_text_of
from keras_transformer.storage.tokenizers import load_tokenizers
from keras_transformer.translate.batching import pad
from keras_transformer.translate.threads import num_cores, threads_of_a_batch
from keras_transformer.translate.token_translator import TokenTranslator, with_n_best

#: Name of CTranslate2's file for a shortlist.
VMAP = "vmap.txt"


def library():
    """The module `ctranslate2`, or a `ValueError` with the command that installs it."""
    with needs("ctranslate2"):
        import ctranslate2
    return ctranslate2


class CTranslate2Translator(TokenTranslator):
    """Translates with CTranslate2's own search.

    The search differs from this package's:

    - Finished hypotheses leave the beam.
    - The score of n tokens, including the end token, is divided by n^α. This is the kind `"length"` of the length
      penalty, also if another kind was exported.
    - The length limit applies per batch (the longest source + `extra_length`), not per sentence. At the limit the end
      token is not forced.
    - Padding and the start token are allowed. A trained model does not choose them.
    - Where a hypothesis contains the unknown token or bytes that never occur in text, these are forbidden in a second
      search. With a shortlist, only the unknown token is. Other bytes need not form valid UTF-8.
    - Probabilities, and therefore scores, are normalized over the tokens that the second search, `min_length` and
      `no_repeat_ngram_size` allow.

    Args:
        directory: a model directory with a CTranslate2 export, or the folder of the export.
        strategy: `BeamSearch`. Default: the exported search. A hypothesis cannot be longer than the exported position
            table.
        num_threads: threads per batch. 0: the cores are divided among `parallel_batches`.
        compute_type: CTranslate2's type of computation, such as `"float32"` or `"int8"`.
        parallel_batches: batches translated at a time; see `OnnxTranslator`.
        protect: what is not translated; see `OnnxTranslator`.

    Raises:
        ValueError: if the export is missing, damaged or made from another model, a tokenizer belongs to another
            model, a number of threads or batches is out of range, or CTranslate2 is not installed.

    Example:

        CTranslate2Translator("runs/en-de").translate(["Two men are outside."])[0].text
    """

    def __init__(
        self,
        directory: str | Path,
        strategy: BeamSearch | None = None,
        num_threads: int = 0,
        compute_type: str = "default",
        parallel_batches: int = 1,
        protect: str = "auto",
    ):
        num_threads = threads_of_a_batch(num_threads, parallel_batches) or num_cores()
        folder = export_folder(directory, "ctranslate2")
        if not (folder / "model.bin").is_file():
            raise ModelDirectoryError(
                f"No CTranslate2 export in {directory} (no model.bin). "
                f"Make one: {export_command(directory, 'ctranslate2')}"
            )
        ctranslate2 = library()
        try:
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            self.exported_search, hashes = config["search"], config["tokenizers_sha256"]
            num_positions, self._longest = config["max_length"], config["target_positions"]
            self._runtime = ctranslate2.Translator(
                str(folder), inter_threads=parallel_batches, intra_threads=num_threads, compute_type=compute_type
            )
        except (RuntimeError, OSError, ValueError, KeyError) as error:
            raise ModelDirectoryError(f"Invalid CTranslate2 model: {folder} ({error})") from error
        self._use_vmap = (folder / VMAP).is_file()
        tokenizers = load_tokenizers(ModelDirectory(folder), hashes)
        known = source_text_of(folder), languages_of(folder)
        super().__init__(*tokenizers, num_positions, parallel_batches, protect, *known)
        self.strategy = strategy or BeamSearch(**self.exported_search)
        if (processor := self.strategy.logits_processor) is not None:
            raise ValueError(f"CTranslate2 supports no `logits_processor`. Received: logits_processor={processor}")
        pieces = self.target_tokenizer.pieces
        self._ids = {piece: i for i, piece in enumerate(pieces)}
        self._forbidden = {pieces[i] for i in self.target_tokenizer.text_constraints.forbidden}

    def search(
        self, source: np.ndarray, n_best: int | None = None, prefix: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """See `TokenTranslator.search`."""
        s = with_n_best(self.strategy, n_best)
        limit = min(source.shape[1] + s.extra_length, self._longest)
        scores = np.full((len(source), s.n_best), NEG_INF, "float32")
        rows = []
        for row, result in zip(scores, self._results(source, s, limit, prefix), strict=True):
            row[: len(result.scores)] = result.scores
            found = [[self._ids[piece] for piece in pieces] for pieces in result.hypotheses]
            rows += found + [[]] * (s.n_best - len(found))
        tokens = pad(rows)
        return tokens.reshape(len(source), s.n_best, tokens.shape[1]), scores

    def _results(self, source, s, limit, prefix):
        """CTranslate2's results, those of a second search where a hypothesis contains forbidden tokens."""
        sentences = _pieces(source, self.source_tokenizer)
        forced = [[]] * len(sentences) if prefix is None else _pieces(prefix, self.target_tokenizer)
        results = self._run(sentences, s, limit, target_prefix=forced)
        wrong = [
            i
            for i, (found, given) in enumerate(zip(results, forced, strict=True))
            if not self._forbidden.isdisjoint(sum((pieces[len(given) :] for pieces in found.hypotheses), []))
        ]
        if wrong:
            # With a shortlist, CTranslate2 would suppress others. It contains no forbidden token but the unknown one.
            suppressed = [] if self._use_vmap else [[piece] for piece in self._forbidden]
            options = {"disable_unk": True, "suppress_sequences": suppressed}
            chosen = [[rows[i] for i in wrong] for rows in (sentences, forced)]
            again = self._run(chosen[0], s, limit, target_prefix=chosen[1], **options)
            for i, result in zip(wrong, again, strict=True):
                results[i] = result
        return results

    def _run(self, sentences, s, limit, **options):
        return self._runtime.translate_batch(
            sentences,
            beam_size=s.beam_size,
            num_hypotheses=s.n_best,
            length_penalty=s.length_penalty,
            min_decoding_length=min(s.min_length, limit),
            no_repeat_ngram_size=s.no_repeat_ngram_size,
            repetition_penalty=s.repetition_penalty,
            max_decoding_length=limit,
            max_input_length=0,
            return_scores=True,
            return_end_token=True,
            use_vmap=self._use_vmap,
            **options,
        )

    def mean_attention(self, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        """See `TokenTranslator.mean_attention`."""
        results = self._runtime.translate_batch(
            _pieces(source, self.source_tokenizer),
            target_prefix=_pieces(target, self.target_tokenizer),
            beam_size=1,
            max_decoding_length=target.shape[1],
            max_input_length=0,
            return_attention=True,
        )
        weights = np.zeros((*target.shape, source.shape[1]), "float32")
        for rows, result in zip(weights, results, strict=True):
            for row, found in zip(rows, result.attention[0], strict=False):  # None for the end token.
                row[: len(found)] = found
        return weights


def _pieces(rows, tokenizer):
    return [[tokenizer.pieces[i] for i in row if i != PAD_ID] for row in rows]
