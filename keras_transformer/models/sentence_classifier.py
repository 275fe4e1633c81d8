"""An encoder-only sentence classifier."""

import keras

from keras_transformer import masks
from keras_transformer.checks import at_least, require
from keras_transformer.config import TransformerConfig
from keras_transformer.layers import Encoder, SequencePooling
from keras_transformer.models.base import ConfiguredModel
from keras_transformer.models.front_end import source_input
from keras_transformer.models.masked_language_model import MaskedLanguageModel
from keras_transformer.models.parts import Parts


@keras.saving.register_keras_serializable(package="keras_transformer")
class SentenceClassifier(ConfiguredModel):
    """logits = W · pooled(encoder(source)) + b.

    This is a functional model. Its input is int ids `(batch, source_length)`, its output is float32 logits
    `(batch, num_classes)`. Train it with a loss that has `from_logits=True`.

    Masking: positions with `pad_id` are not attended to and are excluded from the pooling. A source without tokens is
    pooled to zeros.

    Args:
        config: a `TransformerConfig`. Options of the decoder are ignored.
        num_classes: number of logits.
        pooling: `"mean"`, `"first"` or `"max"` of the encoder output over all positions except padding; see
            `SequencePooling`. For `"first"`, begin each source with a special token, such as `bos_id`.
        layer: the layer of which the encoder has copies. Default: an `EncoderLayer` of the configuration.
        source: a functional model in place of the ids and their embedding; see `Transformer`. Positions that its
            implicit mask excludes are not attended to and not pooled.
        **kwargs: `name`, `dtype` (a dtype policy such as `"mixed_bfloat16"`), and for the layers that the model makes
            `kernel_initializer`, `bias_initializer`, `embeddings_initializer`, `kernel_regularizer` and `seed` (int,
            for equal initial weights and dropout in each run).

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
        layer=None,
        source=None,
        *,
        name="sentence_classifier",
        dtype=None,
        **kwargs,
    ):
        parts = Parts(config, dtype, kwargs, source, layer=layer)
        require(at_least(1, num_classes=num_classes))
        layers = parts.one_stack(
            Encoder, layer, vocab_size=config.source_vocabulary, depth=config.depths[0], name="encoder"
        )
        # `super().__init__` needs the graph of these layers. Before that call, PyTorch rejects `self.name = layer`.
        self.__dict__.update(
            config=config,
            num_classes=num_classes,
            pooling=pooling,
            **layers,
            pool=SequencePooling(pooling, dtype="float32", name="pool"),
            head=parts.dense(num_classes, "head"),
        )
        source = source_input(parts.source)
        super().__init__(source, self.classify(source), parts, name=name, **kwargs)

    @classmethod
    def from_encoder(cls, model, num_classes, pooling="mean", **kwargs):
        """Makes a classifier that starts from the embedding and the encoder of a `MaskedLanguageModel`.

        Args:
            model: a `MaskedLanguageModel`, or another `SentenceClassifier`.
            num_classes: number of logits.
            pooling: see `SentenceClassifier`.
            **kwargs: arguments of `SentenceClassifier` other than those of `model`, such as `name`.

        Returns:
            A `SentenceClassifier` with a new head.

        Raises:
            ValueError: if `model` has another type.
        """
        if not isinstance(model, (MaskedLanguageModel, SentenceClassifier)):
            raise ValueError(
                "`model` must be a MaskedLanguageModel or a SentenceClassifier. "
                f"Received: model of type {type(model).__name__}"
            )
        arguments = keras.saving.deserialize_keras_object(model.parts.get_config())
        arguments = {**arguments, "dtype": model.dtype_policy, **kwargs}
        classifier = cls(model.config, num_classes, pooling, **arguments)
        for name in ("embedding", "positions", "embedding_norm", "encoder"):
            part = getattr(classifier, name)
            if isinstance(part, keras.Layer):
                part.set_weights(getattr(model, name).get_weights())
        return classifier

    def classify(self, source):
        """Computes the logits of sources.

        Args:
            source: int `(batch, source_length)`, padded with `pad_id`, or the input of the model in place of the
                embedding.

        Returns:
            Float32 `(batch, num_classes)`.
        """
        x = self.embedding(source)
        mask = masks.resolve(None, x)
        x = self.dropout(self.embedding_norm(self.positions(x)))
        return self.head(self.pool(self.encoder(x, mask=mask), mask=mask))

    def get_config(self):
        return {**super().get_config(), "num_classes": self.num_classes, "pooling": self.pooling}
