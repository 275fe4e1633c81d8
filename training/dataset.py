"""The batches of a prepared corpus, for a `model.fit` of one's own."""

from pathlib import Path
from typing import TYPE_CHECKING

from keras_transformer.checks import counts, one_of, require
from keras_transformer.storage.token_directory import TokenDirectory
from keras_transformer.training.data.batches import make_batches
from keras_transformer.training.data_config import BatchConfig
from keras_transformer.training.recipe_config import RecipeConfig

if TYPE_CHECKING:
    import tensorflow as tf


def make_dataset(
    prepared: str | Path,
    split: str = "train",
    *,
    tokens_per_batch: int = BatchConfig.tokens_per_batch,
    num_buckets: int | None = None,
    seed: int = RecipeConfig.seed,
    epochs: int = 1,
    replicas: int = 1,
) -> "tf.data.Dataset":
    """Makes the batches of a prepared corpus, in the order in which `train` makes them.

    Each element is `(inputs, labels, weights)`, as `fit` of a `Transformer` takes it:

    - `inputs`: dict of int32 ids, `"source"` `(rows, source_length)` and `"target"` `(rows, target_length)`, padded
      with 0. The target is shifted right. Packed batches also have `"source_segments"` and `"target_segments"`: the
      number of the pair of each token in its row, from 1, and 0 at padding.
    - `labels`: int32 `(rows, target_length)`, padded with 0.
    - `weights`: float32 `(rows, target_length)`, 0 at padding. In training, the weight of each token is
      (number of positions) / (number of tokens) of the batch. With these weights, a loss with the default reduction of
      Keras is the mean over the tokens of the global batch, on any number of replicas. In validation, it is 1.

    Packed batches hold several pairs in a row and have one shape. Batches in length buckets hold one pair in a row and
    have up to `num_buckets` shapes.

    Args:
        prepared: folder written by `prepare`, with one corpus.
        split: `"train"`, in a random order that differs in each epoch; or `"validation"`, in a fixed order.
        tokens_per_batch: global batch size over all replicas, in tokens of the longer side, including padding.
        num_buckets: number of padded lengths, for one pair in a row. Default: packing.
        seed: seed of the order.
        epochs: number of passes over the corpus. An epoch has `len(dataset) // epochs` batches: give this number to
            `fit` as `steps_per_epoch`.
        replicas: number of replicas. Rows with zero weight fill each batch to a multiple of it.

    Returns:
        A `tf.data.Dataset` with a known length. A strategy such as `tf.distribute.MirroredStrategy` divides each batch
        by rows.

    Raises:
        ValueError: if an argument is invalid, the folder has no tokens or several corpora, or a sentence is longer than
            `tokens_per_batch`.

    Example:

        data = make_dataset("tokens/en-de", epochs=3)
        model.fit(data, epochs=3, steps_per_epoch=len(data) // 3, shuffle=False)
    """
    require(counts(1, epochs=epochs, replicas=replicas), one_of(("train", "validation"), split=split))
    config = BatchConfig(tokens_per_batch=tokens_per_batch, num_buckets=num_buckets)
    tokens = TokenDirectory(prepared)
    if split not in tokens.splits:
        raise ValueError(
            "`prepared` must contain one corpus; `train` mixes several. "
            f"Received: {prepared} with {', '.join(tokens.train_splits)}"
        )
    from keras_transformer.training.backends.tensorflow import dataset, signature

    batches = make_batches(*tokens.sides(split), config, multiple=replicas)

    def make_batch(number):
        if split == "train":
            return batches.training_batch(seed, number)
        return batches.validation_batch(number % batches.steps)

    return dataset(make_batch, signature(batches), epochs * batches.steps)
