"""Makes the shortlist of a model from parallel text."""

import itertools
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from keras_transformer.apps.lexicon import coverage, learn_lexicon, make_shortlist
from keras_transformer.config import EOS_ID
from keras_transformer.counting import counted
from keras_transformer.decoding.shortlist import Shortlist
from keras_transformer.storage.atomic_files import atomic_write
from keras_transformer.storage.model_directory import ModelDirectory, ModelDirectoryError
from keras_transformer.storage.tokenizers import load_tokenizers
from keras_transformer.text.lines import MAX_LENGTH
from keras_transformer.translate.batching import BATCH_SIZE

#: Number of pairs below which the list lacks most translations.
_FEW = 1_000
#: One pair of this many measures the coverage instead, at most `_MOST_HELD_OUT` pairs.
_HELD_OUT_EVERY = 50
_MOST_HELD_OUT = 2_000


def learn_shortlist(
    directory: str | Path,
    pairs: Iterable[tuple[str, str]],
    width: int = 50,
    num_frequent: int = 300,
    max_pairs: int = 200_000,
    overwrite: bool = False,
) -> Shortlist:
    """Learns the shortlist of a model, and writes it to the model directory.

    The likely translations of a subword are those of IBM Model 1, and the subword itself, so that names and rare
    characters can be copied. A part of the pairs is held out, and the share of their target subwords that the list
    contains is printed.

    Args:
        directory: model directory of a finished training.
        pairs: pairs of source and target text. Translations by the model, or by its teacher, give a better list than
            those of people.
        width: maximum number of translations per source subword.
        num_frequent: number of the most frequent target subwords, which are always considered; at least 128.
        max_pairs: maximum number of pairs to read.
        overwrite: replace an existing shortlist.

    Returns:
        The shortlist.

    Raises:
        ValueError: if the directory contains no finished model, or a shortlist, or there are no pairs.

    Example:

        learn_shortlist("runs/en-de", read_pairs("train.en", "train.de"))
    """
    places = ModelDirectory(directory)
    places.require_finished()
    if places.shortlist_file.exists() and not overwrite:
        raise ModelDirectoryError(f"{places.shortlist_file} exists; use --overwrite to replace it")
    tokenizers = load_tokenizers(places)
    texts = [*zip(*itertools.islice(pairs, max_pairs), strict=True)]
    if not texts:
        raise ValueError("The text must have at least one pair")
    sources, targets = (
        [ids[:MAX_LENGTH] for ids in tokenizer.encode(lines)]
        for tokenizer, lines in zip(tokenizers, texts, strict=True)
    )
    held_out = slice(0, _MOST_HELD_OUT * _HELD_OUT_EVERY, _HELD_OUT_EVERY) if len(sources) > 1 else slice(0)
    tested = [side[held_out] for side in (sources, targets)]
    for side in (sources, targets):
        del side[held_out]
    vocab_sizes = [tokenizer.vocab_size for tokenizer in tokenizers]
    frequencies = np.bincount(np.concatenate(targets), minlength=vocab_sizes[1])
    constraints = tokenizers[1].text_constraints
    forbidden = [*constraints.forbidden]
    required = [*range(EOS_ID + 1), *_bytes_within(constraints, frequencies)]
    frequencies[forbidden] = -1
    lexicon = learn_lexicon(sources, targets, vocab_sizes[1])
    copies = _copies(*tokenizers)
    copies[np.isin(copies, forbidden)] = -1
    shortlist = make_shortlist(lexicon, frequencies, vocab_sizes[0], width, num_frequent, required, copies)
    with places.locked(), atomic_write(places.shortlist_file) as temporary:
        shortlist.save(temporary)
    few = "; these are few, so the list lacks most translations" if len(texts[0]) < _FEW else ""
    print(f"learned from {counted(len(texts[0]), 'pair')}{few}", file=sys.stderr)
    _describe(shortlist, *tested)
    return shortlist


def _bytes_within(constraints, frequencies) -> list[int]:
    """The ids of all bytes that continue a character, if the text has any, so that each character can be completed."""
    ids = [i for i, byte in constraints.bytes if 0x80 <= byte < 0xC0]
    return ids if frequencies[ids].any() else []


def _copies(source, target) -> np.ndarray:
    """The id in the target tokenizer of each subword of the source tokenizer; -1 if it has none."""
    ids = {piece: i for i, piece in enumerate(target.pieces)}
    return np.array([ids.get(piece, -1) for piece in source.pieces])


def _describe(shortlist, sources, targets):
    """Prints the number of candidates, and their coverage of held-out translations, if there are any."""
    if not sources:
        return
    for batch_size in (1, BATCH_SIZE):
        candidates, share = coverage(shortlist, sources, targets, batch_size)
        print(
            f"{counted(batch_size, 'sentence')} at a time: "
            f"{candidates:,.0f} of {shortlist.vocab_size:,} subwords considered, "
            f"{share:.2%} of the subwords of "
            f"{counted(len(sources), 'held-out translation')} among them",
            file=sys.stderr,
        )
