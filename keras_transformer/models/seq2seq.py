"""The base class of a user's models that generate sequences from any input."""

import keras

from keras_transformer import masks
from keras_transformer.checks import counts, require
from keras_transformer.decoding import SpecialIds
from keras_transformer.models.generation import Seq2SeqMethods

_IDS = SpecialIds()


class Seq2Seq(keras.Model, Seq2SeqMethods):
    """Base class of models that map a source of any kind to a sequence of tokens.

    A subclass makes its layers in `__init__` and has two methods:

    - `encode(source)` returns the memory, a tensor or a structure of tensors with one row per source, and its boolean
      mask `(batch, source_length)`, or `None`.
    - `decode(tokens, memory, mask=None, cache=None, offset=0)` returns logits `(*tokens.shape, vocab_size)` for the
      token after each token. With a cache, `tokens` are `(rows,)`, the newest token of each hypothesis, at the position
      `offset`, the memory is that of `project_memory`, and the result is a tuple of the logits and the updated cache.

    It inherits compiled `generate`, `stream` and `token_log_probs`, `search`, and export. `fit` takes `({"source": …,
    "target": …}, labels)`: targets are shifted right, so they start with the start token, and the logits at a position
    predict the label there.

    A subclass whose attribute `decoder` is a `Decoder` also inherits `empty_cache` and `project_memory`. Others
    override both.

    The limit of a hypothesis is the number of memory positions whose mask is `True`, plus the strategy's
    `extra_length`. A memory without a mask counts as 0 positions.

    The implicit mask of the target must not hide the start token. If `special_ids` has equal `pad` and `bos`, as in T5,
    make the embedding without a mask, `TokenEmbedding(…, pad_id=None)`: later padding is hidden by the causal mask.

    Args:
        source: the source as `keras.Input`, or a structure of them. Axes that vary are `None`.
        vocab_size: size of the vocabulary of the target.
        special_ids: the ids of padding and of the start and end tokens.
        max_length: maximum number of target tokens, such as the number of learned positions. Default: any number.
        **kwargs: `name` and `dtype`. Pass `dtype=self.dtype_policy` on to the layers of a subclass.

    Raises:
        ValueError: if `source` is not symbolic, `vocab_size` is not positive, or the special ids clash or are not in
            the vocabulary.

    Example: from the pixels of an image to words.

    >>> import keras_transformer as kt
    >>> @keras.saving.register_keras_serializable()
    ... class Captioner(Seq2Seq):
    ...     def __init__(self, vocab_size, **kwargs):
    ...         super().__init__(keras.Input((28, 28, 1)), vocab_size, **kwargs)
    ...         self.patches = keras.Sequential([keras.layers.Conv2D(8, 7, 7), keras.layers.Reshape((16, 8))])
    ...         self.encoder = kt.layers.Encoder(num_layers=1, d_model=8, num_heads=2, d_ff=16)
    ...         self.embedding = kt.layers.TokenEmbedding(vocab_size, 8)
    ...         self.positions = kt.layers.PositionalEncoding()
    ...         self.decoder = kt.layers.Decoder(num_layers=1, d_model=8, num_heads=2, d_ff=16)
    ...         self.logits = kt.layers.TiedLogits(self.embedding)
    ...
    ...     def encode(self, image):
    ...         return self.encoder(self.positions(self.patches(image))), None
    ...
    ...     def decode(self, tokens, memory, mask=None, cache=None, offset=0):
    ...         x = self.positions(self.embedding(tokens), offset=offset)
    ...         if cache is None:
    ...             return self.logits(self.decoder(x, memory, memory_mask=mask))
    ...         x, cache = self.decoder(x, memory, memory_mask=mask, cache=cache, offset=offset)
    ...         return self.logits(x), cache
    >>> Captioner(vocab_size=100).generate(np.zeros((3, 28, 28, 1))).tokens.shape[:2]
    (3, 1)
    """

    def __new__(cls, *args, **kwargs):
        # Keras keeps the arguments of layers for `get_config`, but not those of models.
        return keras.Layer.__new__(cls, *args, **kwargs)

    def __init__(self, source, vocab_size, special_ids=_IDS, max_length=None, **kwargs):
        super().__init__(**kwargs)
        ids = SpecialIds(*special_ids)
        require(counts(1, vocab_size=vocab_size), _problems(source, ids, vocab_size))
        # Not as attributes: Keras would replace dicts and tuples by types of its own.
        self.__dict__.update(source_spec=source, special_ids=ids)
        self.vocab_size = vocab_size
        self.max_length = max_length

    def build(self, input_shape=None):
        """Creates the weights. Keras calls this method before the first call."""
        target = keras.KerasTensor((None, None), "int32")
        self.compute_output_spec({"source": self.source_spec, "target": target})

    def get_build_config(self):
        return {"input_shape": None} if self.built else None

    def build_from_config(self, config):
        self.build()

    def _checked_source(self, source):
        if not self.built:
            self.build()
        return super()._checked_source(source)

    def call(self, inputs, training=None):
        return _Pass(lambda source, target: self.decode(target, *self._encoded(source)))(**inputs, training=training)

    def _encoded(self, source):
        found = self.encode(source)
        if not isinstance(found, tuple) or len(found) != 2:
            raise ValueError(
                "`encode` must return a tuple of the memory and its mask, or `None` without a mask. "
                f"Received: {type(found).__name__} from {type(self).__name__}.encode"
            )
        return found


def _problems(source, ids, vocab_size):
    if not all(isinstance(x, keras.KerasTensor) for x in keras.tree.flatten(source)):
        yield f"`source` must be a keras.Input, or a structure of them. Received: source={source}"
    if ids.eos in ids[:2] or not all(0 <= i < vocab_size for i in ids):
        yield f"`special_ids` must be in [0, {vocab_size}), and `eos` must differ from the others. Received: {ids}"


class _Pass(keras.layers.Layer):
    """Runs a function of source and target as the call of a layer.

    On JAX, Keras runs a model's `call` outside of `__call__`. The layers inside of it would not get `training`.
    """

    def __init__(self, function):
        super().__init__(name="pass", autocast=False)
        self.function = function
        self.supports_masking = True

    def call(self, source, target):
        return masks.without_mask(self.function(source, target))  # Keras would rescale the loss on each replica.

    def compute_mask(self, *inputs, **masks):
        return None
