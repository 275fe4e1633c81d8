import keras
import numpy as np
import pytest

from keras_transformer.layers import LearnedPositionalEmbedding, PositionalEncoding

to_numpy = keras.ops.convert_to_numpy
BATCH, LENGTH, D_MODEL = 2, 7, 22


def zeros(length=LENGTH, dtype="float32"):
    return keras.ops.zeros((BATCH, length, D_MODEL), dtype)


@pytest.fixture(params=["sinusoidal", "learned"])
def positions(request, randomize):
    if request.param == "sinusoidal":
        return PositionalEncoding()
    layer = LearnedPositionalEmbedding(max_length=11)
    layer.build((None, None, D_MODEL))
    return randomize(layer)


def test_is_the_formula(reference):
    expected = np.broadcast_to(reference.positional_encoding(LENGTH, D_MODEL), (BATCH, LENGTH, D_MODEL))
    np.testing.assert_allclose(to_numpy(PositionalEncoding()(zeros())), expected, atol=1e-6)


def test_is_added_to_the_inputs(positions):
    x = np.random.default_rng(0).normal(size=(BATCH, LENGTH, D_MODEL)).astype("float32")
    np.testing.assert_allclose(to_numpy(positions(x)), x + to_numpy(positions(zeros())), atol=1e-6)


def test_learned_adds_rows_of_its_table(randomize):
    layer = LearnedPositionalEmbedding(max_length=11)
    layer.build((None, None, D_MODEL))
    table = randomize(layer).embeddings.numpy()
    assert table.shape == (11, D_MODEL)
    np.testing.assert_allclose(to_numpy(layer(zeros()))[1], table[:LENGTH], atol=1e-6)


@pytest.mark.parametrize("as_tensor", [False, True])
def test_offset_is_a_slice(positions, as_tensor):
    offset = keras.ops.convert_to_tensor(3, "int32") if as_tensor else 3
    whole = to_numpy(positions(zeros(LENGTH)))
    np.testing.assert_allclose(to_numpy(positions(zeros(2), offset=offset)), whole[:, 3:5], atol=1e-6)


def test_given_positions_are_rows_of_the_table(positions):
    given = np.array([[0, 1, 2, 0, 1], [0, 0, 3, 1, 6]])
    whole = to_numpy(positions(zeros()))[0]
    np.testing.assert_allclose(to_numpy(positions(zeros(5), positions=given)), whole[given], atol=1e-6)


def test_given_positions_may_be_fewer_than_the_inputs():
    layer = LearnedPositionalEmbedding(max_length=3)
    assert layer(zeros(5), positions=np.array([[0, 1, 2, 0, 1]] * BATCH)).shape == (BATCH, 5, D_MODEL)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("offset", [0, 2049, 60_000])
def test_half_precision_angles_are_exact_at_large_offsets(dtype, offset, reference):
    half = PositionalEncoding(dtype=dtype)(zeros(3, dtype), offset=offset)
    assert keras.backend.standardize_dtype(half.dtype) == dtype
    exact = reference.positional_encoding(offset + 3, 2) if offset > 10_000 else None
    single = to_numpy(PositionalEncoding()(zeros(3), offset=offset))
    if exact is not None:
        np.testing.assert_allclose(single[0, :, :2], exact[offset:], atol=1e-3)
    rounded = to_numpy(keras.ops.cast(keras.ops.cast(single, dtype), "float32"))
    assert np.array_equal(to_numpy(keras.ops.cast(half, "float32")), rounded)


def test_any_length_is_encoded(reference):
    encoding = to_numpy(PositionalEncoding()(keras.ops.zeros((1, 1000, 6))))[0]
    np.testing.assert_allclose(encoding, reference.positional_encoding(1000, 6), atol=1e-3)


def test_max_wavelength_sets_the_slowest_wave():
    encoding = to_numpy(PositionalEncoding(max_wavelength=16.0)(keras.ops.zeros((1, 3, 4))))[0]
    np.testing.assert_allclose(encoding[2], [np.sin(2), np.cos(2), np.sin(0.5), np.cos(0.5)], atol=1e-6)


def test_symbolic_shape_equals_eager_shape(positions):
    assert tuple(positions(keras.Input((None, D_MODEL))).shape) == (None, None, D_MODEL)
    assert positions(zeros()).shape == (BATCH, LENGTH, D_MODEL)
    start = keras.Input((None, D_MODEL))
    model = keras.Model(start, positions(start))
    np.testing.assert_allclose(model.predict(np.zeros((2, 5, D_MODEL)), verbose=0), to_numpy(positions(zeros(5))))


@pytest.mark.parametrize("given", [{}, {"positions": np.array([[0, 0]])}])
def test_the_mask_passes_through(positions, given):
    embedded = keras.layers.Embedding(7, D_MODEL, mask_zero=True)(np.array([[3, 0]]))
    assert to_numpy(positions(embedded, **given)._keras_mask).tolist() == [[True, False]]


def test_an_odd_width_is_refused():
    with pytest.raises(ValueError, match="`d_model`.*Received: d_model=7"):
        PositionalEncoding()(keras.ops.zeros((1, 2, 7)))


def test_a_static_length_beyond_the_table_is_refused():
    with pytest.raises(ValueError, match="`max_length`=3.*Received: length=5"):
        LearnedPositionalEmbedding(max_length=3)(zeros(5))
    with pytest.raises(ValueError, match="`max_length`.*Received: max_length=0"):
        LearnedPositionalEmbedding(max_length=0)


def test_later_positions_are_clamped_to_the_last(randomize):
    layer = LearnedPositionalEmbedding(max_length=3)
    layer.build((None, None, D_MODEL))
    last = randomize(layer).embeddings.numpy()[2]
    np.testing.assert_allclose(to_numpy(layer(zeros(2), offset=5))[0], [last, last], atol=1e-6)


def test_halves_are_the_sines_and_then_the_cosines(reference):
    interleaved = reference.positional_encoding(LENGTH, D_MODEL)
    expected = np.concatenate([interleaved[:, 0::2], interleaved[:, 1::2]], axis=1)
    np.testing.assert_allclose(to_numpy(PositionalEncoding(layout="halves")(zeros()))[0], expected, atol=1e-6)
    with pytest.raises(ValueError, match="`layout`.*Received: layout='thirds'"):
        PositionalEncoding(layout="thirds")


@pytest.mark.parametrize("as_tensor", [False, True])
def test_the_first_position_is_added_to_all(as_tensor, reference, randomize):
    learned = LearnedPositionalEmbedding(max_length=11, first_position=2)
    learned.build((None, None, D_MODEL))
    table = randomize(learned).embeddings.numpy()
    assert table.shape == (13, D_MODEL)
    offset = keras.ops.convert_to_tensor(3, "int32") if as_tensor else 3
    given = np.array([[0, 1, 2, 0, 1], [0, 0, 3, 1, 6]])
    for layer, rows in (
        (learned, table),
        (PositionalEncoding(first_position=2), reference.positional_encoding(13, D_MODEL)),
    ):
        np.testing.assert_allclose(to_numpy(layer(zeros()))[0], rows[2 : 2 + LENGTH], atol=1e-5)
        np.testing.assert_allclose(to_numpy(layer(zeros(2), offset=offset))[1], rows[5:7], atol=1e-5)
        np.testing.assert_allclose(to_numpy(layer(zeros(5), positions=given)), rows[given + 2], atol=1e-5)
    # All `max_length` positions have a row, and later ones that of the last.
    np.testing.assert_allclose(to_numpy(learned(zeros(3), offset=9))[0], table[[11, 12, 12]], atol=1e-6)
    with pytest.raises(ValueError, match="`max_length`=11.*Received: length=12"):
        learned(zeros(12))


@pytest.mark.parametrize("make", [PositionalEncoding, lambda **first: LearnedPositionalEmbedding(7, **first)])
def test_a_bad_first_position_is_refused(make):
    for first in (-1, 0.5):
        with pytest.raises(ValueError, match=f"`first_position` must be .*Received: first_position={first}"):
            make(first_position=first)
    config = make().get_config()
    assert config.pop("first_position") == 0
    assert type(make()).from_config(config).first_position == 0  # Earlier versions wrote such files.
