"""Smoke tests of the library on the PyTorch backend, in separate processes."""

import pytest

pytestmark = pytest.mark.torch_parity
pytest.importorskip("torch")

PROGRAM = """
import keras, numpy
import keras_transformer as kt
from keras_transformer.decoding import BeamSearch, GreedySearch, Sampling

assert keras.backend.backend() == "torch"
keras.utils.set_random_seed(1)
model = kt.Transformer(kt.TransformerConfig(vocab_size=19, num_layers=2, d_model=12, num_heads=3, d_ff=17))
source = numpy.array([[4, 5, 6, 3], [7, 3, 0, 0]], "int32")
target = numpy.array([[2, 8, 9], [2, 10, 0]], "int32")
logits = keras.ops.convert_to_numpy(model({"source": source, "target": target}))
assert logits.shape == (2, 3, 19) and numpy.isfinite(logits).all()
changed = keras.ops.convert_to_numpy(model({"source": source, "target": numpy.where(target == 9, 11, target)}))
assert numpy.array_equal(logits[:, :2], changed[:, :2]) and not numpy.array_equal(logits, changed)
sampling = Sampling(top_k=7, top_p=0.9, temperature=1.5, seed=3, n_samples=5, extra_length=3)
for strategy in (BeamSearch(beam_size=2, n_best=2, extra_length=3), GreedySearch(extra_length=3), sampling):
    tokens, scores, _ = model.generate(source, strategy)
    assert tokens.shape[:2] == scores.shape == (2, strategy.n_best) and numpy.isfinite(scores).all()
    assert (tokens == 3).any(-1).all()
greedy, beam = (model.generate(source, s) for s in (
    GreedySearch(extra_length=3), BeamSearch(beam_size=1, length_penalty=0, extra_length=3)))
assert (greedy.tokens == beam.tokens).all()
one, same = (model.generate(source, sampling) for _ in range(2))
assert (one.tokens == same.tokens).all() and len(numpy.unique(one.tokens[0], axis=0)) > 1
likeliest = model.generate(source, Sampling(top_k=1, extra_length=3))
assert (likeliest.tokens == greedy.tokens).all() and numpy.allclose(likeliest.scores, greedy.scores, atol=1e-5)
model.compile("sgd", kt.losses.LabelSmoothedCrossEntropy(0.1, pad_id=0))
assert numpy.isfinite(model.train_on_batch({"source": source, "target": target}, target))
language_model, classifier = kt.LanguageModel(model.config), kt.SentenceClassifier(model.config, 3)
tokens = language_model.generate([[5, 6], [7, 0]], BeamSearch(beam_size=2, extra_length=3)).tokens
assert (tokens[:, 0, 0] == [5, 7]).all() and (tokens == 3).any(-1).all()
assert classifier(source).shape == (2, 3)
print("whole")
"""


def test_forward_generate_and_one_step(run_python):
    assert run_python(PROGRAM, KERAS_BACKEND="torch").split()[-1] == "whole"
