import numpy as np
import pytest

from keras_transformer.training.data.mixture import Mixture, Stage, make_stages
from keras_transformer.training.mixture_config import StageConfig


def pairs_of(mixture, corpus, blocks, seed=1):
    return np.concatenate([mixture.pairs(seed, block)[corpus] for block in range(blocks)])


def test_each_epoch_of_one_corpus_has_each_pair_once_in_another_order():
    mixture = Mixture([10], [Stage((1.0,))], block_size=4)
    assert [mixture.parts(block) for block in range(3)] == [[range(4)], [range(4, 8)], [range(8, 12)]]
    epochs = pairs_of(mixture, 0, 5).reshape(2, 10)
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(10))
    assert epochs[0].tolist() != epochs[1].tolist()


def test_the_seed_and_the_corpus_decide_the_order():
    mixture = Mixture([50, 50], [Stage((0.5, 0.5))], block_size=100)
    one, other = mixture.pairs(1, 0)
    assert sorted(one) == sorted(other) == list(range(50)) and one.tolist() != other.tolist()
    assert one.tolist() == mixture.pairs(1, 0)[0].tolist() != mixture.pairs(2, 0)[0].tolist()


@pytest.mark.parametrize("weights", [(0.6, 0.4), (1 / 3, 2 / 3), (0.05, 0.95)])
def test_shares_follow_the_weights(weights):
    mixture = Mixture([7, 1000], [Stage(weights)], block_size=11)
    for block in range(40):
        taken = mixture.taken(block)
        assert np.allclose(taken, np.multiply(weights, 11 * block), atol=0.5)
        assert taken == tuple(part.start for part in mixture.parts(block))
        assert [len(pairs) for pairs in mixture.pairs(1, block)] == [len(part) for part in mixture.parts(block)]


def test_stages_follow_each_other():
    stages = [Stage((0.5, 0.5, 0.0), 30), Stage((0.0, 0.0, 1.0), 8), Stage((0.25, 0.0, 0.75))]
    mixture = Mixture([10, 20, 30], stages, block_size=20)
    assert [mixture.stage(block) for block in range(6)] == [0, 0, 1, 2, 2, 2]
    sizes = [[len(part) for part in mixture.parts(block)] for block in range(5)]
    assert sizes == [[10, 10, 0], [5, 5, 0], [0, 0, 8], [5, 0, 15], [5, 0, 15]]
    epochs = pairs_of(mixture, 0, 4)
    assert sorted(epochs[:10]) == list(range(10)) and sorted(epochs[10:20]) == list(range(10))
    assert sorted(pairs_of(mixture, 2, 5)[:30]) == list(range(30))


@pytest.mark.parametrize("pairs", range(1, 40))
@pytest.mark.parametrize("weights", [(0.5, 0.5, 0.0), (0.4, 0.3, 0.3), (0.05, 0.05, 0.9)])
def test_no_block_is_empty(weights, pairs):
    """Also if the stage ends with one pair, which is rounded to none of each corpus."""
    mixture = Mixture([50, 50, 50], [Stage(weights, pairs + 2), Stage((1.0, 0.0, 0.0))], block_size=12)
    sizes = [[len(part) for part in mixture.parts(block)] for block in range(6)]
    assert all(map(any, sizes))
    last = mixture.first_blocks[1]
    assert sizes[last] == [12, 0, 0] and abs(sum(map(sum, sizes[:last])) - pairs - 2) <= 1


def test_a_stage_has_pairs_even_if_it_is_short():
    stages = [StageConfig(weights={"a": 0.5, "b": 0.5}, epochs=1e-6, of="a"), StageConfig(weights={"b": 1})]
    sizes = {"train.a": 300, "train.b": 200}
    mixture = Mixture([300, 200], make_stages(stages, {}, sizes), block_size=100)
    assert [[len(part) for part in mixture.parts(block)] for block in range(2)] == [[1, 1], [0, 100]]
