import gzip

import numpy as np
import pytest

from keras_transformer import Transformer, TransformerConfig
from keras_transformer.cli import main
from keras_transformer.evaluation.scorer import LikelihoodScorer
from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.text.tokenization import TokenizerConfig, train_sentencepiece

SOURCE = ["one two three", "two", "", "three three two one", "one \ud800"]
TARGET = ["eins zwei", "zwei zwei drei", "drei", "", "drei \N{GRINNING FACE}"]

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


@pytest.fixture(scope="module")
def path(tmp_path_factory, randomize):
    """A model directory of random weights, with a tokenizer of each side."""
    directory = ModelDirectory(tmp_path_factory.mktemp("run"))
    sides = ["one two three", "eins zwei drei"]
    directory.write_tokenizers(tuple(train_sentencepiece([s], TokenizerConfig(vocab_size=270)) for s in sides))
    config = TransformerConfig(
        vocab_size=270, num_layers=1, d_model=8, num_heads=2, d_ff=12, positions="learned", max_length=30
    )
    randomize(Transformer(config), scale=0.3).save(directory.model_file)
    directory.write_record({}, finished=True)
    return directory.path


@pytest.fixture(scope="module")
def scorer(path):
    return LikelihoodScorer(path)


@pytest.fixture
def files(tmp_path):
    (tmp_path / "source").write_text("one two\r\ntwo\n\nthree one", encoding="utf-8")
    (tmp_path / "target.gz").write_bytes(gzip.compress(b"eins\nzwei zwei drei\ndrei\n\n"))
    (tmp_path / "short").write_text("eins\nzwei\n")
    return tmp_path


@pytest.mark.parametrize(("batch_size", "batch_tokens"), [(1, 100), (2, 100), (32, 30), (32, 4096)])
def test_pairs_are_scored_in_their_order(scorer, batch_size, batch_tokens):
    scores = scorer.score(SOURCE, TARGET, batch_size, batch_tokens)
    source, target = scorer.tokenizers
    for i, score in enumerate(scores):
        pair = source.encode([SOURCE[i].replace("\ud800", "?")]), target.encode([TARGET[i]])
        log_probs = scorer.model.token_log_probs(*pair)[0]
        assert score.num_tokens == len(pair[1][0])
        assert score.log_prob == pytest.approx(log_probs.sum(), abs=1e-3)
        assert score.mean_log_prob == pytest.approx(log_probs.mean(), abs=1e-3)
    assert len({score.log_prob for score in scores}) == 5
    assert scorer.score([], []) == []


@pytest.fixture
def shapes(scorer, monkeypatch):
    """The shapes of the batches that are scored."""
    shapes, score = [], scorer.model.token_log_probs

    def token_log_probs(source, target):
        shapes.append((source.shape, target.shape))
        return score(source, target)

    monkeypatch.setattr(scorer.model, "token_log_probs", token_log_probs)
    return shapes


def test_neither_side_of_a_batch_has_more_tokens_padding_counted(scorer, shapes):
    scorer.score(SOURCE, TARGET)
    ((_, source_length), (_, target_length)) = shapes.pop()
    most = 2 * max(source_length, target_length) - 1
    scorer.score(SOURCE, TARGET, batch_tokens=most)
    assert len(shapes) > 1 and sum(rows for (rows, _), _ in shapes) == 5
    assert all(np.prod(side) <= most for pair in shapes for side in pair)


def test_more_pairs_than_memory_holds(scorer, shapes):
    taken = []
    pairs = ((taken.append(i) or "one", "eins " * (1 + i % 2)) for i in range(130))
    stream = scorer.score_stream(pairs, batch_size=1)
    assert taken == []
    first = next(stream)
    assert len(taken) == 64
    scores = [first, *stream]
    assert len(scores) == 130 and len(shapes) == 130
    assert scores == scorer.score(["one"] * 2, ["eins ", "eins eins "], batch_size=1) * 65


def test_long_lines_are_cut_with_a_warning(scorer):
    source, target = "one " * 9, "eins " * 9
    with pytest.warns(UserWarning, match=r"line 1 .*subwords.*\b29: ") as caught:
        (score,) = scorer.score([source], [target])
    assert [warning.filename for warning in caught] == [__file__] * 2
    assert score.num_tokens == 30 and np.isfinite(score.log_prob)


def test_the_command_prints_a_row_for_each_pair(path, scorer, files, capsys):
    capsys.readouterr()
    options = [f"--source={files / 'source'}", f"--target={files / 'target.gz'}", "--batch_size=3", "--batch_tokens=20"]
    assert main(["score", str(path), *options]) == 0
    expected = scorer.score(["one two", "two", "", "three one"], ["eins", "zwei zwei drei", "drei", ""])
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    found = [(float(total), int(count), float(mean)) for total, count, mean in lines]
    np.testing.assert_allclose(found, [(s.log_prob, s.num_tokens, s.mean_log_prob) for s in expected], atol=1e-3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--source=source", "--target=short"], "4 lines in source, 2 in short"),
        (["--source=source", "--target=none"], "none: No such file"),
        (["--source=source", "--target=target.gz", "--batch_size=0"], "Received: batch_size=0"),
        (["--source=source", "--target=target.gz", "--batch_tokens=0"], "Received: batch_tokens=0"),
        (["--source=source"], "--target"),
    ],
)
def test_the_command_refuses_bad_options(path, files, options, message, capsys, monkeypatch):
    monkeypatch.chdir(files)
    capsys.readouterr()
    assert main(["score", str(path), *options]) == 2
    captured = capsys.readouterr()
    assert message in captured.err and captured.out == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["one"], ["eins", "zwei"]), "`source` and `target`.*Received: 1 and 2"),
        ((["one"], ["eins"], 0), "`batch_size`.*Received: batch_size=0"),
        ((["one"], ["eins"], 1, -1), "`batch_tokens`.*Received: batch_tokens=-1"),
        (("one", ["eins"]), "`source`.*list.*Received: 'one'"),
        ((["one"], [None]), "`target`.*strings.*Received: None"),
    ],
)
def test_bad_lists(scorer, arguments, message):
    with pytest.raises(ValueError, match=message):
        scorer.score(*arguments)
