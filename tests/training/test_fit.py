import re
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from keras_transformer import Transformer, TransformerConfig
from keras_transformer.optimizers import Adam
from keras_transformer.schedules import WarmupInverseSqrt
from keras_transformer.training.fit import _fit_calls, _print_resuming, _remat
from keras_transformer.training.recipe_config import RecipeConfig


def covered(parts):
    """The steps of these calls of `fit`, in order, and the steps that a validation follows."""
    steps, validations, epochs = [], [], []
    for part in parts:
        assert part.last > part.first and part.steps > 0
        for epoch in range(part.last - part.first):
            start = part.start + epoch * part.steps
            steps += range(start, start + part.steps)
            validations.append(start + part.steps)
            epochs.append(part.first + epoch)
    return steps, validations, epochs


@pytest.mark.parametrize("total", [1, 2, 6, 7, 12, 13])
@pytest.mark.parametrize("every", [1, 2, 3, 5, 12, 20])
def test_parts_cover_exactly_what_is_left(total, every):
    for step in range(total + 2):
        steps, validations, epochs = covered(_fit_calls(step, total, every))
        assert steps == list(range(step, total))
        expected = [*range(every, total, every), total]
        assert validations == [v for v in expected if v > step]
        assert epochs == sorted(set(epochs))
        assert epochs == [(v - 1) // every for v in validations]


@pytest.mark.parametrize("warmup", [4, 5])
def test_a_resumed_run_keeps_its_schedule_and_says_so(warmup, capsys):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(Adam(WarmupInverseSqrt(8, 4, 0.1)), "mse")
    run = SimpleNamespace(total=30, learning_rate=WarmupInverseSqrt(8, warmup, 0.1))
    _print_resuming(model, run, "step-00000012.keras", 12)
    message = capsys.readouterr().err
    assert re.search("step 12 .*30.*step-00000012.keras", message)
    assert ("learning rate" in message) == (warmup == 5)


@pytest.mark.parametrize("remat", [False, True])
def test_remat_concerns_the_layers_of_both_stacks_and_nothing_else(remat, monkeypatch):
    recomputed = []
    monkeypatch.setattr("keras.remat", lambda run: recomputed.append(run) or run)
    config = TransformerConfig(
        vocab_size=11, num_encoder_layers=3, num_decoder_layers=2, d_model=8, num_heads=2, d_ff=13
    )
    with _remat(RecipeConfig(remat=remat), config):
        model = Transformer(config)
    ids = np.array([[4, 5, 3]])
    model({"source": ids, "target": ids}, training=True)
    assert len(recomputed) == (3 + 2) * remat
    model({"source": ids, "target": ids}, training=False)
    assert len(recomputed) == (3 + 2) * remat
