"""Token embedding with tied output logits."""

import keras
from keras import ops

from keras_transformer import masks
from keras_transformer.checks import at_least, positive, require
from keras_transformer.config import PAD_ID
from keras_transformer.layers.checks import check_width
from keras_transformer.layers.configured import Configured
from keras_transformer.layers.seeds import seeded_initializer


@keras.saving.register_keras_serializable(package="keras_transformer")
class TokenEmbedding(keras.layers.Embedding):
    """√d_model · E[ids]. The method `logits` computes x Eᵀ with the same matrix.

    Masking: the implicit mask of the output is `False` where an id is `pad_id`.

    Names here -> `keras.layers.Embedding`: `vocab_size` -> `input_dim`, `d_model` -> `output_dim`, `pad_id=0` ->
    `mask_zero=True`.

    Args:
        vocab_size: number of rows of E.
        d_model: number of columns of E.
        pad_id: id of the padding token. With `None` the layer makes no mask.
        scale: whether to multiply by √d_model.
        embeddings_initializer: initializer of E. Default: a normal distribution of standard deviation 1 / √d_model.
        seed: int, seed of the initializer if that has none. Default: drawn from Python's `random` module.
        **kwargs: other arguments of `keras.layers.Embedding`, except `mask_zero`. As there, a configuration contains
            neither `weights` nor LoRA, but a saved file contains their values.

    Call arguments:
        ids: int tensor of any rank, such as `(batch, length)`, with values in `[0, vocab_size)`.

    Returns:
        `(batch, length, d_model)`.

    Raises:
        ValueError: if a size is not positive, or if `mask_zero` is given instead of `pad_id`.

    Example:

    >>> embedding = TokenEmbedding(vocab_size=11, d_model=4)
    >>> vectors = embedding(np.array([[2, 7, 3, 0]]))
    >>> embedding.logits(vectors).shape
    TensorShape([1, 4, 11])

    Reference:
        Vaswani et al. 2017, §3.4.
    """

    def __init__(
        self, vocab_size, d_model, pad_id=PAD_ID, scale=True, embeddings_initializer=None, seed=None, **kwargs
    ):
        require(at_least(1, vocab_size=vocab_size, d_model=d_model))
        if "mask_zero" in kwargs:
            mask_zero = kwargs["mask_zero"]
            raise ValueError(f"`pad_id` must be given instead of `mask_zero`. Received: mask_zero={mask_zero}")
        default = None if seed is None else _default_initializer(d_model)
        super().__init__(vocab_size, d_model, seeded_initializer(embeddings_initializer or default, seed), **kwargs)
        self._given_initializer = embeddings_initializer
        # `keras.layers.Embedding` disables both: it masks only with `mask_zero`, and casts its output itself.
        self.supports_masking = True
        self.autocast = True
        self.vocab_size = vocab_size
        self.d_model = d_model
        self.pad_id = pad_id
        self.scale = scale
        self.seed = seed

    def build(self, ids_shape=None):
        if self.embeddings_initializer is None:
            self.embeddings_initializer = _default_initializer(self.output_dim)
        super().build()

    def call(self, ids):
        vectors = ops.take(self.embeddings, ops.cast(ids, "int32"), axis=0)
        return vectors * ops.cast(self.d_model**0.5, vectors.dtype) if self.scale else vectors

    def logits(self, inputs, matrix=None):
        """Computes x Eᵀ, one logit per subword, in the dtype of the inputs.

        Args:
            inputs: `(…, d_model)`.
            matrix: result of `output_matrix`, to compute it once for several calls. Default: computed here.

        Returns:
            `(…, vocab_size)`, without an implicit mask; with the matrix of some tokens, `(…, tokens)`.

        Raises:
            ValueError: if the width of the inputs is not `d_model`.
        """
        check_width("inputs", inputs.shape, self.d_model)
        matrix = self.output_matrix() if matrix is None else matrix
        return ops.matmul(inputs, ops.cast(matrix, inputs.dtype))

    def output_matrix(self, ids=None):
        """Computes Eᵀ, once per search, so that decoding steps do not multiply by a transposed matrix.

        Args:
            ids: int `(tokens,)`: the columns to return. Default: all.

        Returns:
            `(d_model, vocab_size)` or `(d_model, tokens)`, in the compute dtype.
        """
        rows = self.embeddings if ids is None else ops.take(self.embeddings, ids, axis=0)
        return ops.transpose(ops.cast(rows, self.compute_dtype))

    def compute_mask(self, ids, previous_mask=None):
        return None if self.pad_id is None else masks.padding_mask(ids, self.pad_id)

    def compute_output_shape(self, ids_shape):
        return (*ids_shape, self.d_model)

    def get_config(self):
        return {
            **keras.layers.Layer.get_config(self),  # Those of `keras.layers.Embedding` have other names.
            "vocab_size": self.vocab_size,
            "d_model": self.d_model,
            "pad_id": self.pad_id,
            "scale": self.scale,
            "embeddings_initializer": keras.saving.serialize_keras_object(self._given_initializer),
            "embeddings_regularizer": keras.regularizers.serialize(self.embeddings_regularizer),
            "embeddings_constraint": keras.constraints.serialize(self.embeddings_constraint),
            "seed": self.seed,
        }


def _default_initializer(d_model):
    return keras.initializers.RandomNormal(stddev=d_model**-0.5)


@keras.saving.register_keras_serializable(package="keras_transformer")
class TiedLogits(Configured):
    """`TokenEmbedding.logits` as a layer for functional models, with an optional scale and bias.

    Masking: the output has no implicit mask. With a mask on the logits, Keras would rescale the loss on each replica,
    and the gradient would differ from that of the mean over all tokens.

    Copies: in a copy of a model by `clone_model`, `from_config` or JSON, the matrix is shared as well. The copied layer
    uses the embedding of the same name and configuration among the layers from which its input is computed.

    Args:
        embedding: the `TokenEmbedding` whose matrix is used.
        use_bias: whether to add a bias per subword.
        scale: factor of the products x Eᵀ; 1 / √d_model in T5, which does not scale its embeddings. Default: `None`, 1.

    Call arguments:
        inputs: `(…, d_model)`.
        weights: result of `output_weights`, to compute it once for several calls.

    Returns:
        `(…, vocab_size)`; with the weights of some tokens, `(…, tokens)`.

    Raises:
        ValueError: if `scale` is not positive. In a call: if the width of `inputs` is not that of the embedding.

    Example:

    >>> embedding = TokenEmbedding(vocab_size=11, d_model=4)
    >>> TiedLogits(embedding)(np.zeros((2, 5, 4), "float32")).shape
    TensorShape([2, 5, 11])

    Reference:
        Press & Wolf 2017, "Using the Output Embedding to Improve Language Models"; `scale`: Raffel et al. 2020, "T5".
    """

    def __init__(self, embedding, use_bias=False, scale=None, **kwargs):
        super().__init__(**kwargs)
        require(positive(scale=scale))
        self.supports_masking = True
        self.embedding = embedding
        self.use_bias = use_bias
        self.scale = scale
        self._is_copy = False

    def __call__(self, inputs, *args, **kwargs):
        if self._is_copy and isinstance(inputs, keras.KerasTensor):
            self._tie(inputs)
        return super().__call__(inputs, *args, **kwargs)

    def build(self, input_shape):
        if not self.embedding.built:
            self.embedding.build()
        check_width("inputs", input_shape, self.embedding.d_model)
        if self.use_bias:
            self.bias = self.add_weight((self.embedding.vocab_size,), "zeros", name="bias")

    def call(self, inputs, weights=None):
        matrix, bias = self.output_weights() if weights is None else weights
        scaled = inputs if self.scale is None else inputs * ops.cast(self.scale, inputs.dtype)
        logits = self.embedding.logits(scaled, matrix)
        return logits if bias is None else logits + ops.cast(bias, logits.dtype)

    def output_weights(self, ids=None):
        """Computes the matrix and the bias of the logits.

        Args:
            ids: int `(tokens,)`: the tokens whose logits are computed. Default: all.

        Returns:
            Result of `TokenEmbedding.output_matrix`, and the bias, `(vocab_size,)` or `(tokens,)`, or `None`.
        """
        bias = self.bias if self.use_bias else None
        if bias is not None and ids is not None:
            bias = ops.take(bias, ids, axis=0)
        return self.embedding.output_matrix(ids), bias

    def compute_mask(self, inputs, previous_mask=None):
        return None

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.embedding.vocab_size)

    @classmethod
    def from_config(cls, config):
        layer = super().from_config(config)
        layer._is_copy = True  # Keras shares objects between layers only when it loads a model from a file.
        return layer

    def _tie(self, inputs):
        """Replaces the embedding of the configuration by that of the model."""
        own = self.embedding.get_config()
        layers = (layer for part in _layers_before(inputs) for layer in part._flatten_layers())
        found = {id(x): x for x in layers if isinstance(x, TokenEmbedding) and x.get_config() == own}
        if len(found) == 1 and id(self.embedding) not in found:
            (embedding,) = found.values()
            # A layer that is built accepts no new sub-layers.
            self._tracker.replace_tracked_value("layers", self.embedding, embedding)
            self.embedding = embedding


def _layers_before(tensor):
    """The layers of the symbolic graph from which a tensor is computed."""
    # Keras has no public function for this: `get_source_inputs` follows each of the paths to a tensor, without layers.
    found, tensors = {}, [tensor]
    while tensors:
        operation, node, _ = getattr(tensors.pop(), "_keras_history", (None, 0, 0))
        if operation is not None and (id(operation), node) not in found:
            found[id(operation), node] = operation
            tensors += operation._inbound_nodes[node].input_tensors
    return [operation for operation in found.values() if isinstance(operation, keras.Layer)]
