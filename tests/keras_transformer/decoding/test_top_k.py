import numpy as np
import pytest
from keras import ops

from keras_transformer.decoding import top_k as module
from keras_transformer.decoding.top_k import top_k


@pytest.mark.parametrize(
    ("n", "k", "grouped"), [(8000, 6, True), (8000, 1, True), (2304, 3, True), (2503, 3, False), (300, 4, False)]
)
def test_values_and_indices_equal_those_of_a_sort(n, k, grouped, monkeypatch):
    x = np.random.default_rng(n).permutation(7 * n).reshape(7, n).astype("float32")
    longest = []
    plain = ops.top_k
    monkeypatch.setattr(module.ops, "top_k", lambda x, k: longest.append(x.shape[-1]) or plain(x, k))
    values, indices = top_k(ops.convert_to_tensor(x), k)
    np.testing.assert_array_equal(values, -np.sort(-x)[:, :k])
    np.testing.assert_array_equal(indices, np.argsort(-x)[:, :k])
    assert (max(longest) < n) == grouped


def test_the_largest_values_may_be_in_one_group():
    """All of them next to each other, at the end."""
    x = np.zeros((2, 4000), "float32")
    x[0, -3:], x[1, :3] = (1, 3, 2), (5, 6, 4)
    values, indices = top_k(ops.convert_to_tensor(x), 3)
    np.testing.assert_array_equal(values, [[3, 2, 1], [6, 5, 4]])
    np.testing.assert_array_equal(indices, [[3998, 3999, 3997], [1, 0, 2]])


def test_impossible_values_have_valid_indices():
    x = np.full((1, 2048), -1e9, "float32")
    x[0, 5] = -2.0
    values, indices = top_k(ops.convert_to_tensor(x), 2)
    np.testing.assert_array_equal(values, [[-2.0, -1e9]])
    assert indices[0, 0] == 5 and indices[0, 1] != 5
