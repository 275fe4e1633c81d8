import numpy as np
import pytest

from keras_transformer import Ensemble, Transformer, TransformerConfig
from keras_transformer.decoding import BeamSearch, GreedySearch, Sampling, Shortlist

VOCAB = 300
SOURCE = np.array([[5, 6, 7, 3], [8, 9, 3, 0], [290, 3, 0, 0]])
PREFIX = np.array([[297], [298], [299]])
SHORTLIST = Shortlist(np.random.default_rng(1).integers(128, VOCAB, (VOCAB, 9)), np.arange(128), VOCAB)


@pytest.fixture(scope="module")
def model(randomize):
    config = TransformerConfig(
        vocab_size=VOCAB, num_layers=1, d_model=16, num_heads=2, d_ff=12, dropout=0.0, logits_bias=True
    )
    return randomize(Transformer(config))


@pytest.fixture
def only(model):
    """Makes the logits of all other tokens very small."""
    before = model.logits.bias.numpy() if hasattr(model.logits.bias, "numpy") else np.array(model.logits.bias)

    def only(candidates):
        model.logits.bias.assign(np.where(np.isin(np.arange(VOCAB), candidates), before, -1e9))
        return model

    yield only
    model.logits.bias.assign(before)


STRATEGIES = {
    "greedy": GreedySearch(extra_length=6, token_scores=True),
    "beam": BeamSearch(beam_size=3, n_best=2, extra_length=6, no_repeat_ngram_size=2, min_length=3),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "prefix"),
    [
        pytest.param("greedy", None, marks=pytest.mark.portable),
        ("beam", PREFIX),
        pytest.param("greedy", PREFIX, marks=pytest.mark.nightly),
        pytest.param("beam", None, marks=pytest.mark.nightly),
    ],
    ids=["greedy-free", "beam-prefix", "greedy-prefix", "beam-free"],
)
def test_a_search_finds_what_it_finds_if_other_tokens_are_impossible(model, only, strategy, prefix):
    strategy = STRATEGIES[strategy]
    free = model.generate(SOURCE, strategy, prefix)
    found = model.generate(SOURCE, strategy, prefix, shortlist=SHORTLIST)
    candidates = np.union1d(SHORTLIST.candidates(SOURCE), [] if prefix is None else prefix)
    expected = only(candidates).generate(SOURCE, strategy, prefix)
    np.testing.assert_array_equal(found.tokens, expected.tokens)
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-4)
    np.testing.assert_allclose(found.token_scores, expected.token_scores, atol=1e-4)
    assert not np.isin(free.tokens, candidates).all()  # Otherwise the list would change nothing.


def test_candidates_are_those_of_all_source_tokens_and_the_frequent_ones():
    shortlist = Shortlist([[200, 0], [201, 202], [203, 0]], range(128), vocab_size=300)
    assert shortlist.candidates([[0, 2]]).tolist() == [*range(128), 200, 203]
    assert shortlist.candidates([[1], [1]]).tolist() == [*range(128), 201, 202]
    assert shortlist.candidates([[1]]).dtype == np.int32 and shortlist.table.dtype == np.uint16
    assert Shortlist([[70_000]], range(128), vocab_size=1 << 17).candidates([[0]])[-1] == 70_000


@pytest.mark.slow
@pytest.mark.portable
def test_log_probs_are_those_among_the_candidates(model, only):
    candidates = SHORTLIST.candidates(SOURCE)
    outside = np.setdiff1d(np.arange(VOCAB), candidates)[0]
    target = np.array([[candidates[130], 7, 3], [8, 3, 0], [outside, 3, 0]])
    found = model.token_log_probs(SOURCE, target, candidates)
    assert found[2, 0] == np.float32(-1e9) and found[1, 2] == 0
    expected = only(candidates).token_log_probs(SOURCE, target)
    np.testing.assert_allclose(found[:2], expected[:2], atol=1e-5)


@pytest.mark.nightly
@pytest.mark.portable
def test_an_ensemble_has_a_shortlist(model):
    ensemble, alone = (
        one.generate(SOURCE, STRATEGIES["greedy"], shortlist=SHORTLIST) for one in (Ensemble([model, model]), model)
    )
    np.testing.assert_array_equal(ensemble.tokens, alone.tokens)


def test_a_saved_shortlist_is_loaded_again(tmp_path):
    SHORTLIST.save(tmp_path / "shortlist.npz")
    loaded = Shortlist.load(tmp_path / "shortlist.npz")
    np.testing.assert_array_equal(loaded.candidates(SOURCE), SHORTLIST.candidates(SOURCE))
    whole = (tmp_path / "shortlist.npz").read_bytes()
    np.save(tmp_path / "array.npy", np.arange(3))
    damaged = whole[:80] + bytes(byte ^ 255 for byte in whole[80:100]) + whole[100:]
    array = (tmp_path / "array.npy").read_bytes()
    for name, damage in (("empty.npz", b""), ("text.npz", b"text"), ("array.npz", array), ("changed.npz", damaged)):
        (tmp_path / name).write_bytes(damage)
        with pytest.raises(ValueError, match=f"Not a shortlist: .*{name}"):
            Shortlist.load(tmp_path / name)


@pytest.mark.parametrize(
    ("table", "always", "message"),
    [
        ([[300]], range(128), r"`table` must contain ids in \[0, 300\). Received: 300 to 300"),
        ([[5]], [*range(127), -1], r"`always` must contain ids.*-1 to 126"),
        ([[5]], range(127), "at least 128 tokens. Received: 127"),
        ([5], range(128), r"`table` must be an int array. Received: shape=\(1,\)"),
        ([[0.5]], range(128), "`table` must be an int array.*float64"),
    ],
)
def test_bad_lists(table, always, message):
    with pytest.raises(ValueError, match=message):
        Shortlist(table, always, vocab_size=300)


@pytest.mark.parametrize(
    ("shortlist", "strategy", "message"),
    [
        (
            Shortlist([[5]], range(128), VOCAB),
            GreedySearch(),
            r"vocabulary sizes, \(300, 300\). Received: \(1, 300\)",
        ),
        (Shortlist(SHORTLIST.table, range(1, 129), VOCAB), GreedySearch(), "must contain the ids 0 to 3"),
        (SHORTLIST, Sampling(), "Received: strategy=Sampling"),
        (SHORTLIST, BeamSearch(beam_size=65), "at most 64 beams. Received: 65"),
    ],
)
def test_lists_that_do_not_suit(model, shortlist, strategy, message):
    with pytest.raises(ValueError, match=message):
        model.generate(SOURCE, strategy, shortlist=shortlist)
