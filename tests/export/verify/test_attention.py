import numpy as np
import pytest

from keras_transformer import Transformer, TransformerConfig
from keras_transformer.decoding import BeamSearch
from keras_transformer.export.verify.attention import compare_attention
from keras_transformer.export.verify.equality import random_source_batches
from keras_transformer.export.verify.keras_search import KerasSearch


@pytest.fixture(scope="module")
def model():
    sizes = {"num_layers": 2, "d_model": 8, "num_heads": 2, "d_ff": 8}
    model = Transformer(TransformerConfig(vocab_size=12, source_vocab_size=20, share_embeddings=False, **sizes))
    draw = np.random.default_rng(1)
    model.set_weights([draw.normal(scale=3.0, size=weight.shape) for weight in model.get_weights()])
    return model


class Program:
    """Gives the attention of the model, with an error."""

    def __init__(self, model, error):
        self._model, self._error = model, error

    def mean_attention(self, source, target):
        weights = self._model.mean_attention(source, target)
        assert target.max() < 12 and weights.shape == (*target.shape, source.shape[1])
        return self._error(weights)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "passes", "is_approximate"),
    [
        (lambda weights: weights, True, False),
        pytest.param(lambda weights: weights, True, True, marks=pytest.mark.nightly),
        pytest.param(lambda weights: np.roll(weights, 1, axis=1), False, False, marks=pytest.mark.nightly),
        (lambda weights: np.roll(weights, 1, axis=1), False, True),
        pytest.param(lambda weights: weights[:, :, ::-1], False, False, marks=pytest.mark.nightly),
        (lambda weights: weights[:, :, ::-1], False, True),
        (lambda weights: weights * np.nan, False, False),
        pytest.param(lambda weights: weights * np.nan, False, True, marks=pytest.mark.nightly),
    ],
)
def test_only_the_attention_of_the_model_passes(model, error, passes, is_approximate):
    report = compare_attention(
        KerasSearch(model, BeamSearch()), Program(model, error), random_source_batches(20), is_approximate
    )
    assert report.passed == passes and report.tokens > 500


@pytest.mark.parametrize("num_parameters", [100, 10**9])
def test_small_errors_pass_in_approximate_programs_only(model, num_parameters):
    batches = random_source_batches(20, num_parameters=num_parameters)
    for is_approximate in (False, True):
        report = compare_attention(
            KerasSearch(model, BeamSearch()), Program(model, lambda weights: weights * 1.02), batches, is_approximate
        )
        assert report.passed == is_approximate and "difference of the attention" in str(report)
        assert report.tokens > 100
