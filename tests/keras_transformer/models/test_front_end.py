"""Models whose source is anything but token ids: a functional model stands in place of the embedding."""

import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer.decoding import BeamSearch, GreedySearch, Sampling

to_numpy = keras.ops.convert_to_numpy
FIELDS = {"vocab_size": 23, "num_layers": 1, "d_model": 12, "num_heads": 2, "d_ff": 13, "dropout": 0.0}
CONFIG = kt.TransformerConfig(**FIELDS)
TARGET = np.array([[2, 12, 13, 14, 15], [2, 16, 17, 0, 0], [2, 5, 0, 0, 0]], "int32")
IMAGES = np.random.default_rng(1).random((3, 14, 7, 3), "float32")
# Rows with 5, 3 and 4 frames of features, padded with zeros.
FRAMES = np.random.default_rng(2).random((3, 5, 11), "float32") * (np.arange(5) < [[5], [3], [4]])[..., None]


def patches():
    return keras.Sequential([keras.Input((14, 7, 3)), kt.layers.PatchEmbedding(7, 12)])


def frames():
    """Frames of features of any number, with a mask."""
    return keras.Sequential([keras.Input((None, 11)), keras.layers.Masking(), keras.layers.Dense(12)])


def both():
    """A structure of inputs."""
    image, features = keras.Input((14, 7, 3), name="image"), keras.Input((None, 11), name="features")
    outputs = [kt.layers.PatchEmbedding(7, 12)(image), keras.layers.Dense(12)(features)]
    return keras.Model({"image": image, "features": features}, keras.layers.Concatenate(axis=1)(outputs))


SOURCES = {
    "patches": (patches, IMAGES),
    "frames": (frames, FRAMES),
    "both": (both, {"image": IMAGES, "features": FRAMES}),
}


@pytest.fixture(params=SOURCES, scope="module")
def case(request, randomize):
    make, source = SOURCES[request.param]
    return randomize(kt.Transformer(CONFIG, source=make()), scale=0.3), source


def rows(source, at):
    return keras.tree.map_structure(lambda x: x[at], source)


def test_a_model_is_trained_saved_and_loaded(case, tmp_path):
    model, source = case
    model.compile("adam", kt.losses.LabelSmoothedCrossEntropy(0.1))
    before = [to_numpy(w) for w in model.trainable_weights]
    model.fit({"source": source, "target": TARGET}, np.roll(TARGET, -1, 1), verbose=0)
    assert all((to_numpy(new) != old).any() for new, old in zip(model.trainable_weights, before, strict=True))
    model.save(tmp_path / "model.keras")
    loaded = kt.load_model(tmp_path / "model.keras")
    inputs = {"source": source, "target": TARGET}
    np.testing.assert_array_equal(to_numpy(loaded(inputs)), to_numpy(model(inputs)))
    assert loaded.parts.source is loaded.source_embedding


def test_beam_search_is_the_same_alone_and_in_a_batch(case):
    model, source = case
    found = model.generate(source, BeamSearch(beam_size=3, extra_length=4))
    for row in range(3):
        alone = model.generate(rows(source, slice(row, row + 1)), BeamSearch(beam_size=3, extra_length=4))
        np.testing.assert_allclose(alone.scores[0], found.scores[row], rtol=1e-4)
    assert len({*found.scores[:, 0].tolist()}) == 3  # The source matters.


def test_scores_equal_those_of_one_full_pass(case):
    model, source = case
    found = model.generate(source, GreedySearch(extra_length=4))
    log_probs = model.token_log_probs(source, found.tokens[:, 0])
    np.testing.assert_allclose(log_probs.sum(axis=1), found.scores[:, 0], atol=1e-4)


def test_samples_depend_on_the_seed_only(case):
    model, source = case
    samples = [model.generate(source, Sampling(seed=seed, extra_length=4)).tokens for seed in (1, 1, 2)]
    np.testing.assert_array_equal(*samples[:2])
    assert samples[0].shape != samples[2].shape or (samples[0] != samples[2]).any()


def test_attention_is_over_the_positions_of_the_front_end(case):
    model, source = case
    (scores,) = model.attention_scores(source, TARGET[:, 1:])
    positions = to_numpy(model.encode(source)[0]).shape[1]
    assert scores.shape == (3, 2, 4, positions)


def test_the_mask_of_the_front_end_masks_the_memory(randomize):
    model = randomize(kt.Transformer(CONFIG, source=frames()), scale=0.3)
    memory, mask = model.encode(FRAMES)
    np.testing.assert_array_equal(to_numpy(mask), (FRAMES != 0).any(axis=-1))
    padded = np.pad(FRAMES, ((0, 0), (0, 2), (0, 0)))
    inputs = [{"source": x, "target": TARGET} for x in (FRAMES, padded)]
    np.testing.assert_allclose(*(to_numpy(model(x)) for x in inputs), atol=1e-5)


def test_the_limit_counts_positions_with_a_mask(randomize):
    model = randomize(kt.Transformer(CONFIG, source=frames()), scale=0.01)
    tokens = model.generate(FRAMES, BeamSearch(beam_size=1, extra_length=2, min_length=20)).tokens[:, 0]
    np.testing.assert_array_equal((tokens != 0).sum(axis=1), [7, 5, 6])


def test_a_classifier_pools_without_padding(tmp_path, randomize):
    model = randomize(kt.SentenceClassifier(CONFIG, num_classes=5, source=frames()), scale=0.3)
    padded = np.pad(FRAMES, ((0, 0), (0, 2), (0, 0)))
    np.testing.assert_allclose(to_numpy(model(FRAMES)), to_numpy(model(padded)), atol=1e-5)
    model.save(tmp_path / "model.keras")
    np.testing.assert_array_equal(to_numpy(kt.load_model(tmp_path / "model.keras")(FRAMES)), to_numpy(model(FRAMES)))


def test_a_classifier_of_several_tensors_takes_them_by_name(randomize):
    model = randomize(kt.SentenceClassifier(CONFIG, num_classes=5, source=both()), scale=0.3)
    source = SOURCES["both"][1]
    assert {x.name for x in model.inputs} == {"image", "features"}
    np.testing.assert_allclose(model.predict(source, verbose=0), to_numpy(model(source)), atol=1e-5)


def test_lora_adapts_the_front_end(randomize):
    model = randomize(kt.Transformer(CONFIG, source=frames()), scale=0.3)
    model.enable_lora(2)
    assert model.source_embedding.layers[-1].lora_enabled
    assert len([w for w in model.source_embedding.trainable_weights if "lora" in w.name]) == 2


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (keras.layers.Dense(12), "functional model with one output"),
        (lambda: keras.Sequential([keras.layers.Dense(12)]), "functional model with one output"),
        (
            lambda: keras.Sequential([keras.Input((5, 11)), keras.layers.Dense(13)]),
            r"d_model=12\). Received: \(None, 5, 13\)",
        ),
        (lambda: keras.Sequential([keras.Input((11,)), keras.layers.Dense(12)]), r"Received: \(None, 12\)"),
    ],
    ids=["layer", "no input", "width", "rank"],
)
def test_a_front_end_that_does_not_fit_is_refused(source, message):
    with pytest.raises(ValueError, match=message):
        kt.Transformer(CONFIG, source=source if isinstance(source, keras.Layer) else source())


def test_a_front_end_has_no_source_vocabulary():
    config = kt.TransformerConfig(**FIELDS, share_embeddings=False, source_vocab_size=17)
    with pytest.raises(ValueError, match="`source_vocab_size` must not be given with `source`.*Received: .*=17"):
        kt.Transformer(config, source=patches())


@pytest.mark.parametrize(
    ("source", "received"),
    [
        (IMAGES[..., :2], r"\(3, 14, 7, 2\)"),
        (IMAGES[0], r"\(14, 7, 3\)"),
        ({"image": IMAGES}, "image"),
    ],
    ids=["size", "rank", "structure"],
)
def test_a_source_that_does_not_fit_is_refused(source, received):
    with pytest.raises(
        ValueError, match=rf"`source` must be float32 of shape \(any, 14, 7, 3\). Received: .*{received}"
    ):
        kt.Transformer(CONFIG, source=patches()).generate(source)


def test_packing_and_shortlists_need_ids():
    model = kt.Transformer(CONFIG, source=patches())
    with pytest.raises(ValueError, match="Packed rows require token ids as source"):
        model({"source": IMAGES, "target": TARGET, "source_segments": TARGET, "target_segments": TARGET})
    shortlist = kt.decoding.Shortlist(np.zeros((23, 1), "int32"), range(23), vocab_size=23)
    with pytest.raises(ValueError, match="`shortlist` requires a Transformer of token ids"):
        model.generate(IMAGES, shortlist=shortlist)


def test_models_of_an_ensemble_have_a_mask_each(randomize):
    class Masked(keras.layers.Layer):
        """Has a mask of its own, whatever the frames are."""

        def __init__(self):
            super().__init__()
            self.supports_masking = True

        def call(self, x):
            return x

        def compute_mask(self, x, mask=None):
            return keras.ops.any(x > 0.5, axis=-1)

    unmasked = keras.Sequential([keras.Input((None, 11)), keras.layers.Dense(12)])
    masked = keras.Sequential([keras.Input((None, 11)), Masked(), keras.layers.Dense(12)])
    models = [randomize(kt.Transformer(CONFIG, source=source), scale=0.3) for source in (unmasked, masked)]
    together = kt.Ensemble(models).token_log_probs(FRAMES, TARGET[:, 1:])
    probs = [np.exp(model.token_log_probs(FRAMES, TARGET[:, 1:])) for model in models]
    np.testing.assert_allclose(np.exp(together), np.mean(probs, axis=0), atol=1e-5)
    with pytest.raises(ValueError, match="The models must have equal .*source"):
        kt.Ensemble([models[0], kt.Transformer(CONFIG, source=patches())])


def test_more_positions_than_are_learned_are_refused():
    config = kt.TransformerConfig(**FIELDS, positions="learned", max_length=4)
    with pytest.raises(ValueError, match="at most `max_length`=1 positions. Received: 2"):
        kt.Transformer(kt.TransformerConfig(**FIELDS, positions="learned", max_length=1), source=patches())
    with pytest.raises(ValueError, match="`source` must have at most `max_length`=4 positions.*Received: 5"):
        kt.Transformer(config, source=frames()).generate(FRAMES)
