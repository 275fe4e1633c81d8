import numpy as np
import pytest

from keras_transformer import Ensemble, Transformer, TransformerConfig
from keras_transformer.decoding import BeamSearch, GreedySearch, Sampling

pytestmark = pytest.mark.portable

CONFIG = {"vocab_size": 20, "d_model": 16, "num_heads": 2, "d_ff": 16, "dropout": 0.0}
SOURCE = np.array([[5, 6, 7, 8, 3], [9, 4, 3, 0, 0]])


@pytest.fixture(scope="module")
def models(randomize):
    """Two models of unlike sizes, with random weights."""
    models = [Transformer(TransformerConfig(num_layers=n, **CONFIG)) for n in (1, 2)]
    for seed, model in enumerate(models):
        randomize(model, seed)
    return models


@pytest.mark.slow
@pytest.mark.parametrize(
    "strategy",
    [
        BeamSearch(beam_size=3, n_best=2),
        pytest.param(GreedySearch(), marks=pytest.mark.nightly),
        pytest.param(Sampling(seed=4, n_samples=3), marks=pytest.mark.nightly),
    ],
)
def test_equal_models_translate_like_one(models, strategy):
    one, both = (model.generate(SOURCE, strategy) for model in (models[0], Ensemble([models[0], models[0]])))
    np.testing.assert_array_equal(one.tokens, both.tokens)
    np.testing.assert_allclose(one.scores, both.scores, rtol=1e-4)


@pytest.mark.slow
def test_scores_are_those_of_the_mean_of_the_probabilities(models):
    found = Ensemble(models).generate(SOURCE, BeamSearch(beam_size=4, length_penalty=0.0))
    best = found.tokens[:, 0]
    target = np.concatenate([np.full((2, 1), 2), best[:, :-1]], axis=1)
    logits = [np.array(model({"source": SOURCE, "target": target})) for model in models]
    probabilities = np.mean([np.exp(x) / np.exp(x).sum(-1, keepdims=True) for x in logits], axis=0)
    chosen = np.log(np.take_along_axis(probabilities, best[..., None], axis=-1))[..., 0]
    np.testing.assert_allclose(found.scores[:, 0], (chosen * (best != 0)).sum(axis=1), rtol=1e-4)


@pytest.mark.nightly
def test_attention_scores_are_those_of_all_layers_of_all_models(models):
    ensemble, target = Ensemble(models), np.array([[4, 5, 3], [6, 3, 0]])
    scores = ensemble.attention_scores(SOURCE, target)
    assert [x.shape for x in scores] == 3 * [(2, 2, 3, 5)]
    np.testing.assert_allclose(ensemble.mean_attention(SOURCE, target), np.mean(scores, axis=(0, 2)), rtol=1e-6)


def test_models_must_share_a_vocabulary(models):
    other = Transformer(TransformerConfig(**{**CONFIG, "vocab_size": 21}))
    with pytest.raises(ValueError, match=r"vocab_size.*20.*21"):
        Ensemble([models[0], other])
    with pytest.raises(ValueError, match="at least one"):
        Ensemble([])


@pytest.mark.nightly
def test_the_smallest_number_of_positions_counts(models):
    positions = {"positions": "learned", "num_layers": 1}
    few = [Transformer(TransformerConfig(max_length=n, **positions, **CONFIG)) for n in (12, 8)]
    assert Ensemble(few).config.max_length == 8
    assert Ensemble([few[0], models[0]]).config.max_length == 12
    assert Ensemble(few).generate(SOURCE, GreedySearch(extra_length=50)).tokens.shape[2] <= 8


@pytest.mark.nightly
def test_a_seed_per_sentence_makes_samples_independent_of_the_batch(models):
    both = models[0].generate(SOURCE, Sampling(seed=[7, 8], n_samples=2)).tokens
    for i in range(2):
        alone = models[0].generate(SOURCE[i : i + 1], Sampling(seed=[7 + i], n_samples=2)).tokens[0]
        length = min(alone.shape[1], both.shape[2])
        np.testing.assert_array_equal(both[i, :, :length], alone[:, :length])
        assert not both[i, :, length:].any() and not alone[:, length:].any()
    with pytest.raises(ValueError, match="1 seed for 2 sentences"):
        models[0].generate(SOURCE, Sampling(seed=[7]))
    with pytest.raises(ValueError, match="seed=-1"):
        Sampling(seed=[3, -1])
