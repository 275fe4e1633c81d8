"""Token embedding, whose matrix can also make the logits."""

import keras
from keras import ops

from keras_transformer import masks
from keras_transformer.layers.checks import check_sizes, check_width


@keras.saving.register_keras_serializable(package="keras_transformer")
class TokenEmbedding(keras.layers.Embedding):
    """√d_model · E[ids], and with the same matrix the logits x Eᵀ.

    Makes the implicit mask: `False` where an id is `pad_id`.

    Args:
        vocab_size: number of rows of E.
        d_model: number of columns of E.
        pad_id: id of padding, or `None` for no mask.
        scale: the factor √d_model.

    Call arguments:
        ids: int `(batch, length)` or of any rank, in `[0, vocab_size)`.

    Returns:
        `(batch, length, d_model)`.

    Raises:
        ValueError: if a size is not positive.

    Example:

    >>> embedding = TokenEmbedding(vocab_size=11, d_model=4)
    >>> vectors = embedding(np.array([[2, 7, 3, 0]]))
    >>> embedding.logits(vectors).shape
    TensorShape([1, 4, 11])

    Reference:
        Vaswani et al. 2017, §3.4.
    """

    def __init__(self, vocab_size, d_model, pad_id=0, scale=True, **kwargs):
        check_sizes(vocab_size=vocab_size, d_model=d_model)
        super().__init__(vocab_size, d_model, "zeros", **kwargs)
        # Keras's embedding has both off: its mask is that of another argument, and it casts what it has looked up.
        self.supports_masking = True
        self.autocast = True
        self.vocab_size = vocab_size
        self.d_model = d_model
        self.pad_id = pad_id
        self.scale = scale

    def build(self, ids_shape=None):
        self.embeddings_initializer = keras.initializers.RandomNormal(stddev=self.d_model**-0.5)
        super().build()

    def call(self, ids):
        vectors = ops.take(self.embeddings, ops.cast(ids, "int32"), axis=0)
        return vectors * ops.cast(self.d_model**0.5, vectors.dtype) if self.scale else vectors

    def logits(self, inputs, matrix=None):
        """One score for each subword, in the dtype of the inputs.

        Args:
            inputs: `(…, d_model)`.
            matrix: from `output_matrix`, where logits are made again and again. Default: made anew.

        Returns:
            `(…, vocab_size)`, without implicit mask.

        Raises:
            ValueError: if the inputs are not `d_model` wide.
        """
        check_width("inputs", inputs.shape, self.d_model)
        matrix = self.output_matrix() if matrix is None else matrix
        return ops.matmul(inputs, ops.cast(matrix, inputs.dtype))

    def output_matrix(self):
        """Eᵀ. Made once for a whole search, it spares each step a product with a matrix that lies the other way.

        Returns:
            `(d_model, vocab_size)`, in the compute dtype.
        """
        return ops.transpose(ops.cast(self.embeddings, self.compute_dtype))

    def compute_mask(self, ids, previous_mask=None):
        return None if self.pad_id is None else masks.padding_mask(ids, self.pad_id)

    def compute_output_shape(self, ids_shape):
        return (*ids_shape, self.d_model)

    def get_config(self):
        return {
            **keras.layers.Layer.get_config(self),  # Without the arguments of Keras's embedding.
            "vocab_size": self.vocab_size,
            "d_model": self.d_model,
            "pad_id": self.pad_id,
            "scale": self.scale,
        }


@keras.saving.register_keras_serializable(package="keras_transformer")
class TiedLogits(keras.layers.Layer):
    """`TokenEmbedding.logits`, and a bias if asked for, as a layer, so that a functional graph can hold it.

    Ends the implicit mask: with a mask on the logits Keras would rescale the loss on each replica,
    and the gradient would no longer be that of the global token mean.

    Args:
        embedding: the `TokenEmbedding` whose matrix is used.
        use_bias: a bias for each subword.

    Call arguments:
        inputs: `(…, d_model)`.
        matrix: from the embedding's `output_matrix`, where logits are made again and again.

    Returns:
        `(…, vocab_size)`.

    Raises:
        ValueError: if `inputs` is not as wide as the embedding.

    Example:

    >>> embedding = TokenEmbedding(vocab_size=11, d_model=4)
    >>> TiedLogits(embedding)(np.zeros((2, 5, 4), "float32")).shape
    TensorShape([2, 5, 11])
    """

    def __init__(self, embedding, use_bias=False, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.embedding = embedding
        self.use_bias = use_bias

    def build(self, input_shape):
        if not self.embedding.built:
            self.embedding.build()
        check_width("inputs", input_shape, self.embedding.d_model)
        if self.use_bias:
            self.bias = self.add_weight((self.embedding.vocab_size,), "zeros", name="bias")

    def call(self, inputs, matrix=None):
        logits = self.embedding.logits(inputs, matrix)
        return logits + ops.cast(self.bias, logits.dtype) if self.use_bias else logits

    def compute_mask(self, inputs, previous_mask=None):
        return None

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.embedding.vocab_size)

    def get_config(self):
        return {
            **super().get_config(),
            "embedding": keras.saving.serialize_keras_object(self.embedding),
            "use_bias": self.use_bias,
        }

    @classmethod
    def from_config(cls, config):
        return cls(keras.saving.deserialize_keras_object(config.pop("embedding")), **config)
