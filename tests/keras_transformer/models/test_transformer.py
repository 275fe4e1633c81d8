import keras
import numpy as np
import pytest

from keras_transformer import Transformer, TransformerConfig
from keras_transformer.losses import LabelSmoothedCrossEntropy
from keras_transformer.metrics import TokenLoss
from keras_transformer.training.checkpoints import seed_generators

to_numpy = keras.ops.convert_to_numpy
VOCAB, BATCH, SOURCE, TARGET = 19, 2, 7, 5
SIZES = {"num_layers": 1, "d_model": 22, "num_heads": 3, "d_k": 5, "d_v": 7, "d_ff": 13, "dropout": 0.1}
SOURCE_IDS = np.array([[4, 5, 6, 7, 8, 9, 3], [10, 11, 3, 0, 0, 0, 0]], "int32")
TARGET_IDS = np.array([[2, 12, 13, 14, 15], [2, 16, 17, 0, 0]], "int32")
LABELS = np.array([[12, 13, 14, 15, 3], [16, 17, 3, 0, 0]], "int32")
INPUTS = {"source": SOURCE_IDS, "target": TARGET_IDS}
HALF = ["mixed_float16", "mixed_bfloat16"]
VARIANTS = {
    "paper": {},
    "norm_first": {"norm_first": True},
    "final_norm": {"final_norm": True},
    "separate, shallow decoder": {"share_embeddings": False, "source_vocab_size": 23, "num_encoder_layers": 2},
    "learned": {"positions": "learned", "max_length": 11},
    "marian": {"position_layout": "halves", "scale_embedding": False, "logits_bias": True, "activation": "silu"},
    "no_bias": {"use_bias": False, "activation": "gelu"},
}


def make(randomize=None, dtype=None, **fields):
    model = Transformer(TransformerConfig(**{"vocab_size": VOCAB, **SIZES, **fields}), dtype=dtype)
    return model if randomize is None else randomize(model, scale=0.3)


#: The slow tests take the other variants.
QUICK = ("paper", "norm_first", "separate, shallow decoder", "marian")


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in VARIANTS],
)
def model(request, randomize):
    """One of the variants; the tests leave it as it is."""
    return make(randomize, **VARIANTS[request.param])


@pytest.mark.portable
def test_logits_are_the_composition(model):
    logits = model(INPUTS)
    assert logits.shape == (BATCH, TARGET, VOCAB)
    composed = model.decode(TARGET_IDS, *model.encode(SOURCE_IDS))
    np.testing.assert_allclose(to_numpy(composed), to_numpy(logits), atol=1e-5)
    mask = SOURCE_IDS != 0
    explicit = model.decode(TARGET_IDS, to_numpy(model.encode(SOURCE_IDS, source_mask=mask)[0]), memory_mask=mask)
    np.testing.assert_allclose(to_numpy(explicit), to_numpy(logits), atol=1e-5)
    np.testing.assert_allclose(model.predict(INPUTS, verbose=0), to_numpy(logits), atol=1e-4)


@pytest.mark.parametrize("norm_first", [False, True])
def test_logits_are_the_papers_formulas(norm_first, randomize, reference):
    model = make(randomize, norm_first=norm_first, num_layers=2)

    def embed(ids):
        table = model.target_embedding.embeddings.numpy().astype("float64")
        return table[ids] * np.sqrt(22) + reference.positional_encoding(ids.shape[1], 22)

    source_mask = (SOURCE_IDS != 0)[:, None]
    target_mask = (TARGET_IDS != 0)[:, None] & np.tri(TARGET, dtype=bool)
    memory, x = embed(SOURCE_IDS), embed(TARGET_IDS)
    for layer in model.encoder.layers:
        memory = reference.encoder_layer(layer, memory, source_mask)
    memory = reference.layer_norm(model.encoder.norm, memory) if norm_first else memory
    for layer in model.decoder.layers:
        x = reference.decoder_layer(layer, x, memory, target_mask, source_mask)
    x = reference.layer_norm(model.decoder.norm, x) if norm_first else x
    expected = x @ model.target_embedding.embeddings.numpy().T
    np.testing.assert_allclose(to_numpy(model(INPUTS)), expected, atol=1e-4)


@pytest.mark.parametrize("policy", ["float32", *HALF])
@pytest.mark.portable
def test_logits_carry_no_mask(policy):
    model = make(dtype=policy)
    assert getattr(model(INPUTS), "_keras_mask", None) is None
    assert getattr(model.output, "_keras_mask", None) is None
    assert getattr(model.decode(TARGET_IDS, *model.encode(SOURCE_IDS)), "_keras_mask", None) is None


def test_the_loss_keras_computes_is_the_one_of_the_weights(randomize, reference):
    """With a mask on the logits Keras would rescale it."""
    model = make(randomize, dropout=0.0)
    weights = (LABELS != 0).astype("float32")
    weights *= weights.size / weights.sum()
    model.compile(loss=LabelSmoothedCrossEntropy(0.1), weighted_metrics=[TokenLoss(0.1)])
    results = model.evaluate(INPUTS, LABELS, sample_weight=weights, verbose=0, return_dict=True)
    tokens = reference.smoothed_cross_entropy(LABELS, to_numpy(model(INPUTS)), 0.1)
    assert results["loss"] == pytest.approx(tokens[LABELS != 0].mean(), rel=1e-5)
    assert results["token_loss"] == pytest.approx(tokens[LABELS != 0].mean(), rel=1e-5)


@pytest.mark.portable
def test_more_padding_changes_nothing(model):
    wider = {name: np.pad(ids, ((0, 0), (0, 3))) for name, ids in INPUTS.items()}
    np.testing.assert_allclose(to_numpy(model(wider))[:, :TARGET], to_numpy(model(INPUTS)), atol=1e-5)


def test_later_tokens_change_nothing(model):
    changed = TARGET_IDS.copy()
    changed[:, 3:] = [[5, 6], [7, 8]]
    before, after = to_numpy(model(INPUTS)), to_numpy(model({**INPUTS, "target": changed}))
    np.testing.assert_array_equal(before[:, :3], after[:, :3])
    assert np.abs(before - after).max() > 1e-3


@pytest.mark.parametrize("policy", ["float32", *HALF])
def test_a_source_of_padding_alone_is_finite(policy):
    logits = make(dtype=policy)({"source": np.zeros((BATCH, SOURCE), int), "target": TARGET_IDS})
    assert np.isfinite(to_numpy(keras.ops.cast(logits, "float32"))).all()


@pytest.mark.parametrize("policy", [pytest.param("mixed_float16", marks=pytest.mark.portable), "mixed_bfloat16"])
def test_a_mixed_precision_step_has_a_finite_loss_and_trains(policy, few_steps):
    model = make(dtype=policy)
    assert keras.backend.standardize_dtype(model(INPUTS).dtype) == policy.removeprefix("mixed_")
    assert {weight.dtype for weight in model.trainable_weights} == {"float32"}
    before = model.get_weights()
    model.compile("adam", LabelSmoothedCrossEntropy(0.1), **few_steps)
    history = model.fit(INPUTS, TARGET_IDS, sample_weight=np.ones((BATCH, TARGET)), verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    after = model.get_weights()
    assert all(np.isfinite(weight).all() for weight in after)
    assert any(np.abs(one - other).max() > 0 for one, other in zip(before, after, strict=True))


def test_training_lowers_the_loss(few_steps):
    model = make(dropout=0.0)
    model.compile(keras.optimizers.Adam(0.02), LabelSmoothedCrossEntropy(0.0, pad_id=0), **few_steps)
    losses = [float(model.train_on_batch(INPUTS, LABELS)) for _ in range(8)]
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.portable
def test_shared_embeddings_are_one_matrix():
    shared, separate = make(), make(share_embeddings=False, source_vocab_size=23)
    assert shared.source_embedding is shared.target_embedding is shared.logits.embedding
    assert separate.count_params() - shared.count_params() == (VOCAB + 23) * 22
    assert separate.source_embedding.vocab_size == 23
    assert separate.logits.embedding is not separate.target_embedding
    tied = make(share_embeddings=False, source_vocab_size=23, tie_output=True)
    assert tied.source_embedding is not tied.target_embedding is tied.logits.embedding
    untied = make(tie_output=False)
    assert untied.source_embedding is untied.target_embedding is not untied.logits.embedding
    assert untied.count_params() - shared.count_params() == VOCAB * 22
    logits = separate({"source": np.full((1, 3), 22), "target": TARGET_IDS[:1]})
    assert logits.shape == (1, TARGET, VOCAB)


@pytest.mark.parametrize(
    ("fields", "normed"), [({}, False), ({"norm_first": True}, True), ({"final_norm": True}, True)]
)
def test_final_norms_follow_the_configuration(fields, normed):
    model = make(**fields)
    assert (model.encoder.norm is not None) == (model.decoder.norm is not None) == normed
    memory = to_numpy(model.encode(SOURCE_IDS)[0])
    assert (np.abs(memory.std(-1) - 1).max() < 1e-2) == (normed or not fields)


def test_learned_positions_matter_and_have_their_own_tables():
    model = make(positions="learned", max_length=11)
    assert model.source_positions.embeddings.shape == model.target_positions.embeddings.shape == (11, 22)
    assert model.source_positions.embeddings is not model.target_positions.embeddings
    flipped = {**INPUTS, "source": SOURCE_IDS[:, ::-1]}
    assert np.abs(to_numpy(model(INPUTS)) - to_numpy(model(flipped)))[0].max() > 1e-4


def test_options_reach_the_layers():
    model = make(activation="gelu", use_bias=False, layer_norm_epsilon=1e-3, dropout=0.3, attention_dropout=0.2)
    options = {"activation": "gelu", "use_bias": False, "dropout": 0.3, "attention_dropout": 0.2}
    for layer in (*model.encoder.layers, *model.decoder.layers):
        assert layer.get_config().items() >= {**options, "layer_norm_epsilon": 1e-3}.items()


def test_embeddings_are_dropped_out():
    """§5.4: the sums of embeddings and positions, on both sides."""
    model = make(dropout=0.5)
    assert {"source_dropout", "target_dropout"} <= {layer.name for layer in model.layers}
    assert model.source_dropout.rate == model.target_dropout.rate == 0.5


def test_dropout_is_on_in_training_only():
    model = make(dropout=0.5)
    still = to_numpy(model(INPUTS))
    np.testing.assert_allclose(to_numpy(model(INPUTS, training=False)), still, atol=1e-6)
    assert np.abs(to_numpy(model(INPUTS, training=True)) - still).max() > 1e-2


@pytest.mark.portable
def test_freezing_the_encoder_trains_the_rest(few_steps):
    model = make(dropout=0.0)
    model.encoder.trainable = False
    frozen = [weight.numpy() for weight in model.encoder.weights]
    rest = [weight.numpy() for weight in model.decoder.trainable_weights]
    model.compile(keras.optimizers.SGD(1.0), LabelSmoothedCrossEntropy(0.1), **few_steps)
    model.train_on_batch(INPUTS, TARGET_IDS)
    same = [np.array_equal(old, new.numpy()) for old, new in zip(frozen, model.encoder.weights, strict=True)]
    assert all(same)
    same = [np.array_equal(old, new.numpy()) for old, new in zip(rest, model.decoder.trainable_weights, strict=True)]
    assert np.mean(same) < 0.2


def test_the_configuration_must_be_one():
    with pytest.raises(ValueError, match="`config`.*Received: config={'vocab_size': 11}"):
        Transformer({"vocab_size": 11})


def test_summary_shows_the_parts(capsys):
    make().summary()
    printed = capsys.readouterr().out
    assert all(name in printed for name in ("embedding", "encoder", "decoder", "logits"))


@pytest.mark.parametrize("is_packed", [False, True])
def test_a_training_step_draws_new_masks_for_each_dropout(is_packed, few_steps):
    """On JAX, layers know that they train only if the model tells them."""
    model = Transformer(TransformerConfig(vocab_size=19, num_layers=1, d_model=8, num_heads=2, d_ff=8, dropout=0.5))
    model.compile("sgd", LabelSmoothedCrossEntropy(0.1), **few_steps)
    ids = np.array([[4, 5, 3], [6, 7, 3]])
    inputs = {"source": ids, "target": ids}
    if is_packed:
        inputs |= {"source_segments": np.ones_like(ids), "target_segments": np.ones_like(ids)}
    drawn = [to_numpy(state)[1] for state in seed_generators(model)]
    for _ in range(2):
        model.train_on_batch(inputs, ids)
    assert len(drawn) == 7  # Source, target, and each of the five residual connections.
    assert [to_numpy(state)[1] for state in seed_generators(model)] == [count + 2 for count in drawn]
