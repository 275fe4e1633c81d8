import re

import numpy as np
import pytest

from keras_transformer import Transformer, TransformerConfig
from keras_transformer.training.config import RecipeConfig
from keras_transformer.training.data.batches import Shape
from keras_transformer.training.flops import StepCost, flops_of_batch, peak_of, step_cost

CONFIG = TransformerConfig(
    vocab_size=19, num_layers=2, num_encoder_layers=3, d_model=22, num_heads=3, d_k=5, d_v=7, d_ff=13
)


def test_flops_are_those_of_every_matrix_at_every_position_and_of_attention():
    model, rows, source, target = Transformer(CONFIG), 5, 11, 8
    places = 0
    for weight in model.weights:
        if weight.name == "kernel":
            of_source = "encoder" in weight.path or re.search("cross_attention/.*/(key|value)/", weight.path)
            places += weight.shape[0] * weight.shape[1] * (source if of_source else target)
    scores = CONFIG.num_heads * (5 + 7) * (3 * source**2 + 2 * (target**2 + source * target))
    expected = 6 * rows * (places + scores + target * 22 * 19)
    assert flops_of_batch(CONFIG, Shape(rows, source, target)) == expected


@pytest.mark.nightly
def test_a_step_of_the_base_model_is_what_its_size_says():
    """For short rows, six FLOPs per parameter and token. The embedding is multiplied once, as the output layer."""
    config = TransformerConfig.preset("base", vocab_size=37000)
    parameters = sum(np.prod(weight.shape) for weight in Transformer(config).trainable_weights)
    assert flops_of_batch(config, Shape(1, 1, 1)) == pytest.approx(6 * parameters, rel=0.01)


def test_peaks_of_known_gpus_are_those_of_the_data_sheets():
    assert peak_of("NVIDIA H200", "float32") == 495e12
    assert peak_of("NVIDIA L40S", "mixed_bfloat16") == 362e12
    assert peak_of("Tesla T4", "mixed_float16") == 65e12
    assert peak_of("NVIDIA H100 PCIe", "float32") == 378e12
    assert [peak_of(kind, "float32") for kind in ("CPU", "NVIDIA RTX A1000", "NVIDIA L40", "T400")] == [None] * 4


def test_rates_are_per_second_with_padding_and_mfu():
    work = StepCost(tokens=50.0, padding=0.25, flops=3e12, peak=6e12)
    assert work.rates(4, 8.0) == {"tokens_per_second": 25.0, "padding": 0.25, "mfu": 0.25}
    assert re.search(r"50 .*tokens.*3,000\.0 GFLOPs.*60,000\.0 MFLOPs", str(work))
    assert "mfu" not in work._replace(peak=None).rates(4, 8.0)


def test_work_of_padded_batches():
    class Batches:
        tokens, steps, steps_each, padding, shapes = 600, 4, [1, 3], 0.25, [Shape(40, 5, 4), Shape(20, 10, 9)]

    class Devices:
        kind, count = "NVIDIA A100-SXM4-80GB", 2

    work = step_cost(Batches, CONFIG, RecipeConfig(), Devices)
    one, other = (flops_of_batch(CONFIG, shape) for shape in Batches.shapes)
    assert work == (150.0, 0.25, (one + 3 * other) / 4, 312e12)
    assert step_cost(Batches, CONFIG, RecipeConfig(r_drop=1.0), Devices).flops == 2 * work.flops
