"""Fixtures: pairs of token ids with given lengths, and tokenizers of any kind."""

import io

import numpy as np
import pytest
import sentencepiece

from keras_transformer.storage.rows import TokenSide


@pytest.fixture(scope="session")
def sides_of():
    """Makes pairs with given lengths. The first id identifies the pair; each side ends with 3."""

    def sides_of(lengths):
        return tuple(
            TokenSide(np.concatenate([[10 + i] * (size - 1) + [3] for i, size in enumerate(sizes)]), sizes)
            for sizes in np.array(lengths, "int32").T
        )

    return sides_of


@pytest.fixture(scope="session")
def random_lengths():
    """Random lengths of both sides, 2 to 20."""
    rng = np.random.default_rng(5)
    source = rng.integers(2, 20, 83)
    return np.stack([source, np.clip(source + rng.integers(-3, 4, 83), 2, 20)], axis=1)


@pytest.fixture(scope="session")
def sentencepiece_model():
    """Trains a model of a given kind with SentencePiece itself. The package trains BPE models only."""

    def train(lines, kind, **options):
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            model_type=kind,
            byte_fallback=True,
            pad_id=0,
            unk_id=1,
            bos_id=2,
            eos_id=3,
            minloglevel=2,
            **options,
        )
        return model.getvalue()

    return train
