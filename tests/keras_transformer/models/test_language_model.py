import keras
import numpy as np
import pytest

from keras_transformer import LanguageModel, TransformerConfig
from keras_transformer.decoding import BeamSearch, GreedySearch, Sampling
from keras_transformer.losses import LabelSmoothedCrossEntropy

pytestmark = pytest.mark.portable

to_numpy = keras.ops.convert_to_numpy
VOCAB, BATCH, LENGTH = 19, 2, 5
SIZES = {"num_layers": 2, "d_model": 22, "num_heads": 3, "d_k": 5, "d_v": 7, "d_ff": 13}
IDS = np.array([[2, 12, 13, 14, 15], [2, 16, 17, 0, 0]], "int32")
PROMPT = np.array([[5, 6, 7], [8, 0, 0], [0, 0, 0]], "int32")
VARIANTS = {
    "post-norm": {},
    "pre-norm, learned": {"norm_first": True, "positions": "learned", "max_length": 11},
    "separate, biased": {"share_embeddings": False, "logits_bias": True},
}


def make(randomize, dtype=None, **fields):
    return randomize(
        LanguageModel(TransformerConfig(**{"vocab_size": VOCAB, **SIZES, **fields}), dtype=dtype), scale=0.3
    )


@pytest.fixture(
    scope="module",
    params=["post-norm", "pre-norm, learned", pytest.param("separate, biased", marks=pytest.mark.slow)],
)
def model(request, randomize):
    """One of the variants; the tests leave it as it is."""
    return make(randomize, **VARIANTS[request.param])


def test_logits_are_the_papers_formulas(randomize, reference):
    model = make(randomize)
    table = model.embedding.embeddings.numpy().astype("float64")
    x = table[IDS] * np.sqrt(22) + reference.positional_encoding(LENGTH, 22)
    for layer in model.decoder.layers:
        x = reference.encoder_layer(layer, x, (IDS != 0)[:, None] & np.tri(LENGTH, dtype=bool))
    np.testing.assert_allclose(to_numpy(model(IDS))[IDS != 0], (x @ table.T)[IDS != 0], atol=1e-3)


def test_later_tokens_never_matter(model):
    before, after = to_numpy(model(IDS)), to_numpy(model(np.where(IDS == 14, 18, IDS)))
    assert np.array_equal(before[:, :3], after[:, :3]) and not np.array_equal(before[0, 3], after[0, 3])


# The texts of IDS in one row, and another row.
PACKED = {
    "tokens": np.array([[2, 12, 13, 14, 15, 2, 16, 17, 0], [2, 5, 6, 2, 7, 0, 0, 0, 0]], "int32"),
    "segments": np.array([[1, 1, 1, 1, 1, 2, 2, 2, 0], [1, 1, 1, 2, 2, 0, 0, 0, 0]], "int32"),
}


def test_packed_logits_equal_those_of_separate_rows(model):
    packed, apart = to_numpy(model(PACKED)), to_numpy(model(IDS))
    np.testing.assert_allclose(packed[0, :5], apart[0], atol=1e-5)
    np.testing.assert_allclose(packed[0, 5:8], apart[1, :3], atol=1e-5)
    without = to_numpy(model({"tokens": PACKED["tokens"]}))
    np.testing.assert_array_equal(without, to_numpy(model(PACKED["tokens"])))
    assert np.abs(without - packed)[0, 5:8].max() > 1e-2


@pytest.mark.slow
def test_packed_loss_and_gradient_equal_those_of_separate_rows(randomize, few_steps):
    model = make(randomize, dropout=0.0)
    before, results = model.get_weights(), []
    labels = np.array([[12, 13, 14, 15, 3], [16, 17, 3, 0, 0]], "int32")
    packed = {name: ids[:1] for name, ids in PACKED.items()}
    for inputs, ids in ((IDS, labels), (packed, np.array([[12, 13, 14, 15, 3, 16, 17, 3, 0]], "int32"))):
        model.set_weights(before)
        model.compile(keras.optimizers.SGD(1.0), LabelSmoothedCrossEntropy(0.1), **few_steps)
        weights = (ids != 0) * (ids.size / (ids != 0).sum(dtype="float32"))
        results.append((float(model.train_on_batch(inputs, ids, sample_weight=weights)), model.get_weights()))
    (loss, one), (packed_loss, other) = results
    assert packed_loss == pytest.approx(loss, rel=1e-5)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    assert max(np.abs(a - b).max() for a, b in zip(one, before, strict=True)) > 0.01


@pytest.mark.slow
def test_greedy_is_the_likeliest_token_of_the_uncached_model(model):
    tokens, scores, token_scores = model.generate(PROMPT, GreedySearch(extra_length=6, token_scores=True))
    ids = np.zeros((1, PROMPT.shape[1] + 7), "int32")  # Of one shape, which each backend compiles once.
    for row, prompt in enumerate(PROMPT):
        made = [i for i in prompt if i]
        ids[:] = 0
        limit = len(made) + 6
        while made[-1:] != [3]:
            ids[0, : len(made) + 1] = [2, *made]
            logits = to_numpy(model(ids))[0, len(made)]
            logits[[0, 2]] = -np.inf
            made.append(3 if len(made) == limit - 1 else int(logits.argmax()))
        assert np.trim_zeros(tokens[row, 0], "b").tolist() == made
    log_probs = model.token_log_probs(tokens[:, 0])
    np.testing.assert_allclose(token_scores[:, 0], log_probs, atol=1e-4)
    np.testing.assert_allclose(scores[:, 0], log_probs.sum(axis=1), atol=1e-4)


@pytest.mark.nightly
def test_a_prompt_alone_is_continued_as_among_others(model):
    search = BeamSearch(beam_size=3, n_best=3, extra_length=4)
    tokens, scores, _ = model.generate(PROMPT, search)
    for row, prompt in enumerate(PROMPT):
        alone = model.generate([np.trim_zeros(prompt).tolist()], search)
        length = alone.tokens.shape[2]
        np.testing.assert_array_equal(tokens[row, :, :length], alone.tokens[0])
        assert not tokens[row, :, length:].any()
        np.testing.assert_allclose(scores[row], alone.scores[0], atol=1e-4)


@pytest.mark.slow
def test_samples_repeat_with_their_seed_and_begin_with_the_prompt(model):
    one, same, other = (
        model.generate(PROMPT, Sampling(seed=seed, n_samples=4, extra_length=5)).tokens for seed in (1, 1, 2)
    )
    assert np.array_equal(one, same) and not np.array_equal(one[..., :6], other[..., :6])
    assert (one[0, :, :3] == PROMPT[0]).all() and (one[1, :, 0] == 8).all()
    assert len(np.unique(one[2], axis=0)) > 1


def test_the_token_log_probs_are_of_the_shifted_logits(model):
    texts = np.array([[12, 13, 14, 15, 3], [16, 17, 3, 0, 0]], "int32")
    log_probs = model.token_log_probs(texts)
    expected = keras.ops.log_softmax(model(IDS))
    for row, text in enumerate(texts):
        for at, token in enumerate(text):
            assert log_probs[row, at] == pytest.approx(float(expected[row, at, token]) if token else 0, abs=1e-4)
    assert model.token_log_probs(np.zeros((2, 0), "int32")).shape == (2, 0)


def test_an_empty_batch_and_an_empty_prompt_are_allowed(model):
    assert model.generate(np.zeros((0, 3), "int32")).tokens.shape == (0, 1, 0)
    (tokens,) = model.generate([[]], GreedySearch(extra_length=3)).tokens[:, 0]
    assert 1 <= len(tokens) <= 3 and tokens[-1] == 3


def test_learned_positions_are_the_limit(randomize):
    model = make(randomize, **VARIANTS["pre-norm, learned"])
    tokens = model.generate([[5] * 10, [6] + [0] * 9]).tokens
    assert tokens.shape[2] <= 11
    with pytest.raises(ValueError, match="`prompt`.*`max_length`=11.*Received: prompt_length=11"):
        model.generate([[5] * 11])


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([[5, 3]], "`prompt`.*`eos_id`.*Received: eos_id=3"),
        ([[2, 5]], "`prompt`.*`bos_id`.*Received: bos_id=2"),
        ([[5, 0, 6]], r"`prompt`.*padding.*Received: prompt\[0\]=\[5, 0, 6\]"),
        ([[19]], r"`prompt`.*\[0, 19\).*Received: id=19"),
        ([5, 6], r"`prompt`.*\(batch, prompt_length\).*Received: shape=\(2,\)"),
    ],
)
def test_bad_prompts_are_refused(randomize, prompt, message):
    with pytest.raises(ValueError, match=message):
        make(randomize).generate(prompt)


def test_a_saved_model_is_equal(randomize, tmp_path):
    model = make(randomize, dtype="mixed_bfloat16", logits_bias=True)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.config == model.config and loaded.dtype_policy.name == "mixed_bfloat16"
    np.testing.assert_array_equal(*(to_numpy(keras.ops.cast(m(IDS), "float32")) for m in (model, loaded)))


@pytest.mark.slow
def test_fit_lowers_the_loss(randomize, few_steps):
    model = make(randomize)
    model.compile(keras.optimizers.Adam(0.01), LabelSmoothedCrossEntropy(0.0, pad_id=0), **few_steps)
    labels = np.array([[12, 13, 14, 15, 3], [16, 17, 3, 0, 0]], "int32")
    losses = [float(model.train_on_batch(IDS, labels)) for _ in range(5)]
    assert losses[-1] < losses[0]


def test_another_configuration_is_refused():
    with pytest.raises(ValueError, match="`config`.*Received: config=8000"):
        LanguageModel(8000)
