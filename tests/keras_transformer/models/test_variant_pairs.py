"""Parts together: each pair in continuous integration, and at night all parts of attention with each other.

Cached steps, one full pass, and a packed row give the same logits.
"""

import itertools

import keras
import numpy as np
import pytest

import keras_transformer as kt

to_numpy = keras.ops.convert_to_numpy
SIZES = {
    "vocab_size": 17,
    "num_layers": 1,
    "d_model": 12,
    "num_heads": 6,
    "d_ff": 7,
    "d_k": 2,
    "d_v": 3,
    "dropout": 0.0,
}
POSITIONS = ("sinusoidal", "learned", "rotary", "alibi", "relative", "none")
ATTENTION = {
    "positions": POSITIONS,
    "num_kv_heads": (None, 1, 2),
    "qk_norm": (False, True),
    "soft_cap": (None, 2.0),
    "window": (None, 2),
}
OTHERS = {
    "norm": ("layer", "rms"),
    "norm_first": (False, True),
    "feed_forward": ("plain", "gated"),
    "use_bias": (True, False),
    "embedding_norm": (False, True),
    "logits_scale": (None, 0.3),
}
FIELDS = {**ATTENTION, **OTHERS}
SOURCE = np.array([[5, 6, 7, 3], [8, 3, 0, 0]], "int32")
TARGET = np.array([[2, 9, 10, 11], [2, 12, 0, 0]], "int32")
#: The same two pairs in one row.
PACKED = {
    "source": np.array([[5, 6, 7, 3, 8, 3]], "int32"),
    "source_segments": np.array([[1, 1, 1, 1, 2, 2]], "int32"),
    "target": np.array([[2, 9, 10, 11, 2, 12]], "int32"),
    "target_segments": np.array([[1, 1, 1, 1, 2, 2]], "int32"),
}


def pairs_of(parts):
    """Each two fields with their values."""
    return {*itertools.combinations(parts.items(), 2)}


def covering():
    """Few combinations of all fields that have each pair of values. Each has the most new pairs of 200 random ones."""
    missing = {
        ((one, a), (other, b))
        for one, other in itertools.combinations(FIELDS, 2)
        for a, b in itertools.product(FIELDS[one], FIELDS[other])
    }
    rng, found = np.random.default_rng(0), []
    while missing:
        drawn = [
            {
                **{name: values[rng.integers(len(values))] for name, values in FIELDS.items()},
                **dict(min(missing, key=str)),
            }
            for _ in range(200)
        ]
        found.append(max(drawn, key=lambda parts: len(pairs_of(parts) & missing)))
        missing -= pairs_of(found[-1])
    return found


def assert_consistent(parts, randomize):
    """Builds a model with these parts, and compares the three ways to compute its logits."""
    learned = {"max_length": 11} if parts["positions"] == "learned" else {}
    model = randomize(kt.Transformer(kt.TransformerConfig(**SIZES, **parts, **learned)), scale=0.3)
    full = to_numpy(model({"source": SOURCE, "target": TARGET}))
    packed = to_numpy(model(PACKED))
    np.testing.assert_allclose(packed[0], np.concatenate([full[0], full[1, :2]]), atol=1e-4, err_msg=f"packed {parts}")
    memory = model.project_memory(model.encode(SOURCE)[0])
    cache = model.decoder.empty_cache(2, TARGET.shape[1])
    for offset in range(2):  # Row 1 has two tokens; a cache has no padding.
        step, cache = model.decode(TARGET[:, offset], memory, SOURCE != 0, cache=cache, offset=offset)
        np.testing.assert_allclose(to_numpy(step), full[:, offset], atol=1e-4, err_msg=f"cached {parts}")
    cache = tuple(kt.cache.KeyValue(*(part[:1] for part in layer)) for layer in cache)
    memory = tuple(kt.cache.KeyValue(*(part[:1] for part in layer)) for layer in memory)
    for offset in range(2, 4):
        step, cache = model.decode(TARGET[:1, offset], memory, SOURCE[:1] != 0, cache=cache, offset=offset)
        np.testing.assert_allclose(to_numpy(step), full[:1, offset], atol=1e-4, err_msg=f"cached {parts}")


def test_each_pair_is_covered():
    combinations = covering()
    found = set().union(*map(pairs_of, combinations))
    values = sum(len(a) * len(b) for a, b in itertools.combinations(FIELDS.values(), 2))
    assert len(found) == values and len(combinations) < 30


@pytest.mark.slow
def test_each_pair_of_parts_is_consistent(randomize):
    for parts in covering():
        assert_consistent(parts, randomize)


@pytest.mark.nightly
@pytest.mark.parametrize("num_kv_heads", ATTENTION["num_kv_heads"])
@pytest.mark.parametrize("positions", POSITIONS)
def test_all_parts_of_attention_are_consistent_with_each_other(positions, num_kv_heads, randomize):
    """With each kind and place of the norms, and with the other parts in turn."""
    names = ("qk_norm", "soft_cap", "window", "norm", "norm_first")
    others = ("feed_forward", "use_bias", "embedding_norm", "logits_scale")
    turns = itertools.cycle(itertools.product(*(FIELDS[name] for name in others)))
    for values in itertools.product(*(FIELDS[name] for name in names)):
        parts = dict(zip((*names, *others), (*values, *next(turns)), strict=True))
        assert_consistent({"positions": positions, "num_kv_heads": num_kv_heads, **parts}, randomize)
