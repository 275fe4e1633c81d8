"""An encoder-only sentence classifier."""

import keras
from keras import ops

from keras_transformer import masks
from keras_transformer.config import TransformerConfig
from keras_transformer.layers import Dropout, Encoder
from keras_transformer.models.base import ConfiguredModel, checked_policy
from keras_transformer.models.parts import make_embedding, make_positions, stack_sizes


@keras.saving.register_keras_serializable(package="keras_transformer")
class SentenceClassifier(ConfiguredModel):
    """logits = W · pooled(encoder(source)) + b.

    This is a functional model. Its input is int ids `(batch, source_length)`, its output is float32 logits
    `(batch, num_classes)`. Train it with a loss that has `from_logits=True`.

    Masking: positions with `pad_id` are not attended to and are excluded from the mean. A source without tokens is
    pooled to zeros.

    Args:
        config: a `TransformerConfig`. Options of the decoder are ignored.
        num_classes: number of logits.
        pooling: `"mean"` averages the encoder output over all positions except padding; `"first"` takes the first
            position. For `"first"`, begin each source with a special token, such as `bos_id`.
        **kwargs: `name` and `dtype` (a dtype policy such as `"mixed_bfloat16"`).

    Raises:
        ValueError: if `config` is not a `TransformerConfig`, `num_classes` is not positive, or `pooling`
            is unknown.

    Example:

    >>> config = TransformerConfig.preset("tiny", vocab_size=100)
    >>> SentenceClassifier(config, num_classes=3)(np.array([[5, 6, 7, 3], [8, 3, 0, 0]])).shape
    TensorShape([2, 3])

    Reference:
        Devlin et al. 2019, "BERT", §3 and §4.1 (first-token pooling).
    """

    def __init__(
        self,
        config: TransformerConfig,
        num_classes,
        pooling="mean",
        *,
        name="sentence_classifier",
        dtype=None,
        **kwargs,
    ):
        policy = checked_policy(config, dtype)
        if num_classes < 1:
            raise ValueError(f"`num_classes` must be at least 1. Received: num_classes={num_classes}")
        if pooling not in ("mean", "first"):
            raise ValueError(f"`pooling` must be 'mean' or 'first'. Received: pooling={pooling!r}")
        # `super().__init__` needs the graph of these layers. Before that call, PyTorch rejects `self.name = layer`.
        self.__dict__.update(
            config=config,
            num_classes=num_classes,
            pooling=pooling,
            embedding=make_embedding(config, policy, config.source_vocabulary, "embedding"),
            positions=make_positions(config, policy, "positions"),
            dropout=Dropout(config.dropout, dtype=policy, name="dropout"),
            encoder=Encoder(**stack_sizes(config, config.depths[0]), dtype=policy, name="encoder"),
            head=keras.layers.Dense(num_classes, dtype="float32", name="head"),
        )
        source = keras.Input((None,), dtype="int32", name="source")
        super().__init__(source, self.classify(source), policy, name=name, **kwargs)

    def classify(self, source):
        """Computes the logits of sources.

        Args:
            source: int `(batch, source_length)`, padded with `pad_id`.

        Returns:
            Float32 `(batch, num_classes)`.
        """
        mask = masks.padding_mask(source, self.config.pad_id)
        x = self.dropout(self.positions(self.embedding(source)))
        x = ops.cast(self.encoder(x, mask=mask), "float32")
        # A sum instead of an index, because a source of length 0 has no first position.
        return self.head(ops.sum(x[:, :1], axis=1) if self.pooling == "first" else _mean(x, mask))

    def get_config(self):
        return {**super().get_config(), "num_classes": self.num_classes, "pooling": self.pooling}


def _mean(x, mask):
    weights = ops.expand_dims(ops.cast(mask, x.dtype), -1)
    return ops.sum(x * weights, axis=1) / ops.maximum(ops.sum(weights, axis=1), 1.0)
