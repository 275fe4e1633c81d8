import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer import saving
from keras_transformer.losses import LabelSmoothedCrossEntropy
from keras_transformer.metrics import Perplexity, TokenAccuracy, TokenLoss
from keras_transformer.schedules import WarmupInverseSqrt

to_numpy = keras.ops.convert_to_numpy
SIZES = {"vocab_size": 11, "num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 13}
INPUTS = {
    "source": np.array([[4, 5, 6, 3], [7, 3, 0, 0]], "int32"),
    "target": np.array([[2, 8, 9], [2, 10, 0]], "int32"),
}
LABELS = np.array([[8, 9, 3], [10, 3, 0]], "int32")


def saved_and_loaded(model, folder, **arguments):
    path = folder / "model.keras"
    model.save(path)
    return kt.load_model(path, **arguments)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"share_embeddings": False, "source_vocab_size": 13, "norm_first": True, "num_encoder_layers": 3},
        {"positions": "learned", "max_length": 7, "d_k": 3, "d_v": 5, "use_bias": False, "activation": "gelu"},
    ],
    ids=str,
)
@pytest.mark.portable
def test_a_transformer_comes_back(fields, tmp_path, randomize):
    model = randomize(kt.Transformer(kt.TransformerConfig(**SIZES, **fields), name="mine"))
    loaded = saved_and_loaded(model, tmp_path)
    assert type(loaded) is kt.Transformer
    assert loaded.config == model.config and loaded.name == "mine"
    np.testing.assert_allclose(to_numpy(loaded(INPUTS)), to_numpy(model(INPUTS)), atol=1e-6)
    assert [weight.path for weight in loaded.weights] == [weight.path for weight in model.weights]


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float16"])
def test_the_dtype_policy_comes_back(policy, tmp_path):
    model = kt.Transformer(kt.TransformerConfig(**SIZES), dtype=policy)
    loaded = saved_and_loaded(model, tmp_path)
    assert loaded.dtype_policy.name == loaded.encoder.dtype_policy.name == policy
    assert loaded.decoder.layers[0].feed_forward.sublayer.inner.dtype_policy.name == policy
    assert [weight.dtype for weight in loaded.weights] == [weight.dtype for weight in model.weights]


@pytest.mark.portable
def test_parts_that_are_frozen_one_by_one_stay_frozen(tmp_path):
    """In any model. Keras itself saves the `trainable` of the outermost layers only."""
    tokens = keras.Input((None,), dtype="int32")
    encoder = kt.layers.Encoder(kt.layers.EncoderLayer(8, 2, 13, norm_first=True), num_layers=2)
    model = keras.Model(tokens, encoder(kt.layers.TokenEmbedding(11, 8)(tokens)))
    frozen = [encoder.norm, encoder.layers[0].feed_forward, encoder.layers[1].self_attention.sublayer.key_projection]
    for part in frozen:
        part.trainable = False
    loaded = saved_and_loaded(saved_and_loaded(model, tmp_path), tmp_path)
    trainable = {weight.path for weight in loaded.trainable_weights}
    assert trainable == {weight.path for weight in model.trainable_weights}
    assert len(loaded.non_trainable_weights) == 2 + (4 + 2) + 2  # Norm; feed-forward and its norm; projection.
    loaded.layers[-1].trainable = False  # On TensorFlow, Keras ignores an assignment of the same value.
    loaded.layers[-1].trainable = True
    assert len(loaded.trainable_weights) == len(loaded.weights)


def test_training_state_comes_back(tmp_path, few_steps):
    model = kt.Transformer(kt.TransformerConfig(**SIZES, dropout=0.0))
    model.compile(
        keras.optimizers.Adam(WarmupInverseSqrt(8, warmup_steps=10)),
        LabelSmoothedCrossEntropy(0.2),
        weighted_metrics=[TokenLoss(0.2, name="loss_over_tokens"), TokenAccuracy(), Perplexity()],
        **few_steps,
    )
    weights = (LABELS != 0).astype("float32")
    model.train_on_batch(INPUTS, LABELS, sample_weight=weights)
    loaded = saved_and_loaded(model, tmp_path)
    assert loaded.loss.get_config() == model.loss.get_config()
    assert type(loaded.loss) is LabelSmoothedCrossEntropy
    assert int(loaded.optimizer.iterations.value) == 1
    assert float(loaded.optimizer.learning_rate) == pytest.approx(float(model.optimizer.learning_rate))
    results = [m.evaluate(INPUTS, LABELS, sample_weight=weights, verbose=0, return_dict=True) for m in (model, loaded)]
    assert results[0].keys() == {"loss", "loss_over_tokens", "token_accuracy", "perplexity"}
    assert results[0] == pytest.approx(results[1], rel=1e-5)
    assert not saved_and_loaded(model, tmp_path, compile=False).compiled


def test_weights_alone_come_back(tmp_path, randomize):
    one, other = (kt.Transformer(kt.TransformerConfig(**SIZES)) for _ in range(2))
    randomize(one)
    one.save_weights(tmp_path / "all.weights.h5")
    other.load_weights(tmp_path / "all.weights.h5")
    np.testing.assert_allclose(to_numpy(other(INPUTS)), to_numpy(one(INPUTS)), atol=1e-6)


def test_a_clone_has_the_same_shape():
    model = kt.Transformer(kt.TransformerConfig(**SIZES))
    clone = kt.Transformer.from_config(model.get_config())
    assert [weight.shape for weight in clone.weights] == [weight.shape for weight in model.weights]


def test_layers_in_a_sequential_model_come_back(tmp_path, randomize):
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            kt.layers.TokenEmbedding(11, 8),
            kt.layers.PositionalEncoding(max_wavelength=100.0),
            kt.layers.LearnedPositionalEmbedding(max_length=7),
            kt.layers.Encoder(num_layers=2, d_model=8, num_heads=2, d_ff=13, final_norm=True),
            kt.layers.MultiHeadAttention(d_model=6, num_heads=3),
            kt.layers.ResidualConnection(kt.layers.FeedForward(6, 5, activation="tanh"), norm_first=True),
        ]
    )
    randomize(model)
    loaded = saved_and_loaded(model, tmp_path)
    np.testing.assert_allclose(to_numpy(loaded(INPUTS["source"])), to_numpy(model(INPUTS["source"])), atol=1e-6)


@keras.saving.register_keras_serializable(package="test_saving")
class Tagger(keras.Model):
    """A subclassed model that owns layers of the package."""

    def __init__(self, tags, **kwargs):
        super().__init__(**kwargs)
        self.tags = tags
        self.embedding = kt.layers.TokenEmbedding(11, 8)
        self.encoder = kt.layers.Encoder(num_layers=2, d_model=8, num_heads=2, d_ff=13)
        self.decoder = kt.layers.Decoder(num_layers=1, d_model=8, num_heads=2, d_ff=13)
        self.classifier = keras.layers.Dense(tags)

    def call(self, inputs):
        memory = self.encoder(self.embedding(inputs["source"]))
        return self.classifier(self.decoder(self.embedding(inputs["target"]), memory))

    def get_config(self):
        return {**super().get_config(), "tags": self.tags}


def test_layers_in_a_subclassed_model_come_back(tmp_path, randomize):
    model = Tagger(tags=5)
    model(INPUTS)
    randomize(model)
    loaded = saved_and_loaded(model, tmp_path)
    np.testing.assert_allclose(to_numpy(loaded(INPUTS)), to_numpy(model(INPUTS)), atol=1e-6)


def test_a_path_without_a_model_is_named(tmp_path):
    (tmp_path / "model.keras").write_bytes(b"PK\3\4 and no more")
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "empty").mkdir()
    for name, message in {
        "nothing.keras": r"nothing.keras \(no such file\)",
        "model.keras": r"model.keras \(.*truncated",
        "notes.txt": "`path`.*`model.save`.*Received: path=.*notes.txt",
        "empty": "`path`.*folder. Received: path=.*empty",
        "": "`path`.*folder.*/model.keras.*Received: path=",
    }.items():
        with pytest.raises(ValueError, match=message):
            kt.load_model(tmp_path / name)


@pytest.fixture
def places(monkeypatch):
    """Where Keras puts the weights together: the types of their files."""
    from keras.src.saving import saving_lib

    found = []

    class Recorded(saving_lib.H5IOStore):
        def __init__(self, path_or_io, archive=None, mode="r"):
            found.append("disk" if archive is None and not hasattr(path_or_io, "getvalue") else "memory")
            super().__init__(path_or_io, archive, mode)

    monkeypatch.setattr(saving_lib, "H5IOStore", Recorded)
    return found


@pytest.mark.parametrize(
    ("most", "is_writable", "expected"),
    [(10, True, ["disk", "disk"]), (10, False, ["disk", "memory"]), (10**6, True, ["memory", "memory"])],
)
def test_large_weights_are_not_copied_in_memory(most, is_writable, expected, places, tmp_path, monkeypatch, randomize):
    model, path = randomize(kt.Transformer(kt.TransformerConfig(**SIZES))), tmp_path / "model.keras"
    monkeypatch.setattr(saving, "_MOST_IN_MEMORY", most)
    monkeypatch.setattr(saving.os, "access", lambda folder, mode: is_writable)
    with saving.large_weights_on_disk():
        model.save(path)
    loaded = kt.load_model(path)
    assert places == expected and [*tmp_path.iterdir()] == [path]
    np.testing.assert_array_equal(to_numpy(loaded(INPUTS)), to_numpy(model(INPUTS)))
    model.save(path)
    assert places[-1] == "memory"  # Outside of the block, Keras decides.
