import json

import numpy as np
import pytest

from keras_transformer.losses import token_cross_entropy
from keras_transformer.saving import load_model
from keras_transformer.storage.rows import TokenSide
from keras_transformer.text.tokenization import Tokenizer
from keras_transformer.training.backends import make_devices
from keras_transformer.training.data.batches import BucketedBatches
from keras_transformer.training.data_config import BatchConfig

SMOOTHING = 0.1


@pytest.fixture(scope="module")
def checkpoint(model_directory):
    """The compiled model of the run."""
    return load_model(model_directory / "checkpoints" / "step-00000024.keras")


@pytest.fixture(scope="module")
def data(model_directory, toy_files):
    """8 pairs of token ids with different lengths, as a list and as padded batches."""
    lines = [(toy_files / f"train.{name}").read_text().splitlines()[:8] for name in ("en", "de")]
    tokenizer = Tokenizer(model_directory / "tokenizer.model")
    sides = [[np.array(ids) for ids in tokenizer.encode(side)] for side in lines]
    return list(zip(*sides, strict=True)), [
        TokenSide(np.concatenate(side), np.array([len(ids) for ids in side])) for side in sides
    ]


def by_hand(model, rows, smoothing):
    """The mean over all tokens, computed sentence by sentence without padding."""
    losses = []
    for source, labels in rows:
        target = np.concatenate([[2], labels[:-1]])
        logits = model({"source": source[None], "target": target[None]}, training=False)
        losses.append(np.array(token_cross_entropy(labels[None], logits, smoothing))[0])
    return np.concatenate(losses).mean()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("num_buckets", "tokens_per_batch"), [pytest.param(1, 2000, marks=pytest.mark.nightly), (3, 120)]
)
def test_validation_loss_is_the_mean_over_real_tokens(checkpoint, data, num_buckets, tokens_per_batch):
    rows, sides = data
    batches = BucketedBatches(*sides, BatchConfig(tokens_per_batch=tokens_per_batch, num_buckets=num_buckets))
    logs = checkpoint.evaluate(
        make_devices(None).validation_data(batches)["validation_data"], verbose=0, return_dict=True
    )
    assert logs["loss"] == pytest.approx(by_hand(checkpoint, rows, SMOOTHING), rel=1e-5)
    assert logs["perplexity"] == pytest.approx(np.exp(by_hand(checkpoint, rows, 0.0)), rel=1e-5)


def test_the_loss_in_the_log_is_the_validation_loss_of_the_last_model(checkpoint, model_directory, toy_files):
    entries = json.loads((model_directory / "checkpoints" / "validations.json").read_text())
    lines = [(toy_files / f"train.{name}").read_text().splitlines()[99::100] for name in ("en", "de")]
    tokenizer = Tokenizer(model_directory / "tokenizer.model")
    rows = [tuple(map(np.array, pair)) for pair in zip(*map(tokenizer.encode, lines), strict=True)]
    assert len(rows) == 3
    assert entries[-1]["loss"] == pytest.approx(by_hand(checkpoint, rows, SMOOTHING), rel=1e-5)
