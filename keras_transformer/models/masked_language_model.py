"""An encoder that predicts masked tokens, and the function that masks them."""

import functools

import keras
from keras import ops

from keras_transformer import masks
from keras_transformer.checks import require, within
from keras_transformer.config import TransformerConfig
from keras_transformer.layers import Encoder
from keras_transformer.layers.random_bits import random_bits
from keras_transformer.models.base import ConfiguredModel
from keras_transformer.models.parts import Parts


@keras.saving.register_keras_serializable(package="keras_transformer")
class MaskedLanguageModel(ConfiguredModel):
    """logits = E · encoder(tokens).

    This is a functional model. Its input is int ids `(batch, length)`, its output is logits
    `(batch, length, vocab_size)`. Each position predicts its own token from the tokens on both sides. Train it on
    batches of `mask_tokens`. `SentenceClassifier.from_encoder` makes a classifier that starts from the weights.

    Masking: positions with `pad_id` are not attended to. The logits carry no Keras mask.

    Args:
        config: a `TransformerConfig`. Options of the decoder are ignored. With `tie_output=False` the output has
            a separate embedding matrix.
        layer: the layer of which the encoder has copies. Default: an `EncoderLayer` of the configuration.
        **kwargs: `name`, `dtype` (a dtype policy such as `"mixed_bfloat16"`), and for the layers that the model makes
            `kernel_initializer`, `bias_initializer`, `embeddings_initializer`, `kernel_regularizer` and `seed` (int,
            for equal initial weights and dropout in each run).

    Raises:
        ValueError: if `config` is not a `TransformerConfig`.

    Example:

    >>> model = MaskedLanguageModel(TransformerConfig.preset("tiny", vocab_size=100))
    >>> model(np.array([[5, 6, 7, 3]])).shape
    TensorShape([1, 4, 100])

    Reference:
        Devlin et al. 2019, "BERT", §3.1, task 1.
    """

    def __init__(self, config: TransformerConfig, layer=None, *, name="masked_language_model", dtype=None, **kwargs):
        parts = Parts(config, dtype, kwargs, layer=layer)
        layers = parts.one_stack(
            Encoder, layer, vocab_size=config.source_vocabulary, depth=config.depths[0], name="encoder"
        )
        # `super().__init__` needs the graph of these layers. Before that call, PyTorch rejects `self.name = layer`.
        self.__dict__.update(config=config, **layers, logits=parts.tied_logits(layers["embedding"]))
        tokens = keras.Input((None,), dtype="int32", name="tokens")
        super().__init__(tokens, self.logits(self.encode(tokens)), parts, name=name, **kwargs)

    def encode(self, tokens):
        """Encodes ids.

        Args:
            tokens: int `(batch, length)`, padded with `pad_id`.

        Returns:
            The encoder output, `(batch, length, d_model)`.
        """
        mask = masks.padding_mask(tokens, self.config.pad_id)
        return self.encoder(self.dropout(self.embedding_norm(self.positions(self.embedding(tokens)))), mask=mask)


def mask_tokens(tokens, seed, config: TransformerConfig, mask_id: int, rate: float = 0.15):
    """Makes a training batch of a `MaskedLanguageModel`: hides random tokens, which the model predicts.

    `mask_id` replaces 80 % of the chosen tokens, a random token replaces 10 %, and 10 % are kept. Padding, start and
    end tokens are never chosen. On TensorFlow, use it in `tf.data`:

        dataset.enumerate().map(lambda seed, tokens: mask_tokens(tokens, seed, config, mask_id))

    Args:
        tokens: int ids `(batch, length)`.
        seed: int scalar, a different one for each batch.
        config: the configuration of the model.
        mask_id: id that stands for a hidden token.
        rate: probability that a token is chosen.

    Returns:
        The ids with hidden tokens, `tokens`, and float32 sample weights `(batch, length)`: 0 for tokens that were not
        chosen, and with mean 1, so that the mean loss is that of the chosen tokens.

    Raises:
        ValueError: if `mask_id` is not in the vocabulary, or `rate` is not in [0, 1].

    Example:

    >>> config = TransformerConfig.preset("tiny", vocab_size=100)
    >>> hidden, tokens, weights = mask_tokens(np.array([[5, 6, 7, 8, 9, 3]]), 1, config, mask_id=1, rate=0.5)
    >>> hidden.numpy()
    array([[1, 6, 7, 8, 1, 3]])
    >>> weights.numpy()
    array([[3., 0., 0., 0., 3., 0.]], dtype=float32)

    Reference:
        Devlin et al. 2019, "BERT", §3.1, task 1.
    """
    require(within("[0, 1]", rate=rate), within(f"[0, {config.source_vocabulary})", mask_id=mask_id))
    shape = ops.shape(tokens)
    chosen, replacement, random = (_uniform(shape, seed, call) for call in range(3))
    is_chosen = ops.logical_and(chosen < rate, _is_text(tokens, config))
    random_ids = ops.cast(random * config.source_vocabulary, tokens.dtype)
    replaced = ops.where(replacement < 0.8, mask_id, ops.where(replacement < 0.9, random_ids, tokens))
    hidden = ops.where(is_chosen, ops.cast(replaced, tokens.dtype), tokens)
    weights = ops.cast(is_chosen, "float32")
    return hidden, tokens, weights / ops.maximum(ops.mean(weights), 1e-9)


def _uniform(shape, seed, call):
    """Random numbers in [0, 1)."""
    # Only 24 bits, which float32 holds: a quotient that is rounded to 1 would be a token after the last one.
    bits = ops.right_shift(random_bits(shape, seed, call), 8)
    return ops.cast(bits, "float32") * 2.0**-24 + 0.5


def _is_text(tokens, config):
    special = (config.pad_id, config.bos_id, config.eos_id)
    return functools.reduce(ops.logical_and, (ops.not_equal(tokens, i) for i in special))
