import keras
import numpy as np
import pytest

from keras_transformer.layers import PatchEmbedding

to_numpy = keras.ops.convert_to_numpy
IMAGES = np.random.default_rng(1).random((3, 14, 7, 2), "float32")


def test_patches_are_squares_of_pixels():
    layer = PatchEmbedding(7, 12, use_bias=False)
    found, kernel = to_numpy(layer(IMAGES)), to_numpy(layer.projection.kernel)
    for patch, pixels in enumerate([IMAGES[:, :7], IMAGES[:, 7:]]):
        np.testing.assert_allclose(found[:, patch], pixels.reshape(3, -1) @ kernel, atol=1e-5)


@pytest.mark.parametrize("shape", [(3, 14, 7), (3, 15, 7, 2), (3, 14, 8, 2)])
def test_images_that_are_no_patches_are_refused(shape):
    with pytest.raises(ValueError, match=rf"`patch_size`=7. Received: shape=\({', '.join(map(str, shape))}\)"):
        PatchEmbedding(7, 12)(np.zeros(shape, "float32"))


@pytest.mark.parametrize("arguments", [(0, 12), (7, -1), (7.0, 12)])
def test_sizes_are_positive_integers(arguments):
    with pytest.raises(ValueError, match="Received: (patch_size|d_model)="):
        PatchEmbedding(*arguments)


def test_it_is_saved_with_its_arguments(tmp_path):
    arguments = {"patch_size": 7, "d_model": 5, "use_bias": False, "kernel_initializer": "he_normal", "seed": 3}
    model = keras.Sequential([keras.Input((14, 7, 2)), PatchEmbedding(**arguments)])
    assert model.output_shape == (None, 2, 5)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert arguments.items() <= loaded.layers[0].get_config().items()
    np.testing.assert_array_equal(to_numpy(loaded(IMAGES)), to_numpy(model(IMAGES)))
    same = PatchEmbedding(**arguments)
    np.testing.assert_array_equal(to_numpy(same(IMAGES)), to_numpy(model(IMAGES)))


def test_mixed_precision_computes_in_half():
    output = PatchEmbedding(7, 5, dtype="mixed_bfloat16")(IMAGES)
    assert keras.backend.standardize_dtype(output.dtype) == "bfloat16"
