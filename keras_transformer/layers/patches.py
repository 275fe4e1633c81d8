"""Embedding of the patches of an image."""

import keras
from keras import ops

from keras_transformer.checks import counts, require
from keras_transformer.layers.projections import Projections


@keras.saving.register_keras_serializable(package="keras_transformer")
class PatchEmbedding(Projections):
    """x_p E + b for each patch x_p: the pixels of a square, without overlap, row by row.

    Masking: the output has no mask.

    The result is a sequence for an encoder: `PositionalEncoding` or `LearnedPositionalEmbedding` add positions.

    Args:
        patch_size: height and width of a patch, in pixels.
        d_model: width of the output.
        use_bias: whether to add the bias.
        kernel_initializer: initializer of the kernel.
        bias_initializer: initializer of the bias.
        kernel_regularizer: regularizer of the kernel.
        seed: int, for equal initial weights in each run. Default: the seed is drawn from Python's `random` module.

    Call arguments:
        images: `(batch, height, width, channels)`. Height and width are static multiples of `patch_size`.

    Returns:
        `(batch, patches, d_model)`, with `patches = height / patch_size * width / patch_size`.

    Raises:
        ValueError: if a size is not positive. In a call: if the height or width is not a multiple of `patch_size`.

    Example:

    >>> PatchEmbedding(patch_size=7, d_model=4)(np.zeros((2, 28, 14, 3), "float32")).shape
    TensorShape([2, 8, 4])

    Reference:
        Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words", §3.1, equation 1.
    """

    def __init__(
        self,
        patch_size,
        d_model,
        use_bias=True,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        kernel_regularizer=None,
        seed=None,
        **kwargs,
    ):
        super().__init__(kernel_initializer, bias_initializer, kernel_regularizer, seed, **kwargs)
        require(counts(1, patch_size=patch_size, d_model=d_model))
        self.patch_size = patch_size
        self.d_model = d_model
        self.use_bias = use_bias
        self.projection = self._dense(d_model, "projection", use_bias)

    def build(self, images_shape):
        self.projection.build((images_shape[0], self._num_patches(images_shape), self.patch_size**2 * images_shape[-1]))

    def call(self, images):
        size, shape = self.patch_size, images.shape
        patches = self._num_patches(shape)
        # (batch, rows, size, columns, size, channels) -> (batch, rows, columns, size, size, channels)
        grid = ops.reshape(images, (-1, shape[1] // size, size, shape[2] // size, size, shape[3]))
        grid = ops.transpose(grid, (0, 1, 3, 2, 4, 5))
        return self.projection(ops.reshape(grid, (-1, patches, size * size * shape[3])))

    def compute_output_shape(self, images_shape):
        return (images_shape[0], self._num_patches(images_shape), self.d_model)

    def _num_patches(self, shape):
        """The number of patches of an image."""
        size = self.patch_size
        if len(shape) != 4 or None in shape[1:] or shape[1] % size or shape[2] % size:
            raise ValueError(
                "`images` must have shape (batch, height, width, channels), with height and width static multiples of "
                f"`patch_size`={size}. Received: shape={tuple(shape)}"
            )
        return shape[1] // size * (shape[2] // size)
