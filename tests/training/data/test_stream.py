import collections
import contextlib
import dataclasses
import itertools
import re

import numpy as np
import pytest

from keras_transformer.config import EOS_ID
from keras_transformer.storage.token_directory import TokenDirectory
from keras_transformer.text.tokenization import Tokenizer, TokenizerConfig
from keras_transformer.training.config import TrainConfig
from keras_transformer.training.data.mixture import Mixture, Stage
from keras_transformer.training.data.prepare import write_tokens
from keras_transformer.training.data.processes import WorkerStopped
from keras_transformer.training.data.stream import BlockMaker, StreamedBatches, make_stream
from keras_transformer.training.data.tokenizer import train_tokenizers
from keras_transformer.training.data_config import AugmentationConfig, BatchConfig, DataConfig
from keras_transformer.training.datasets import Corpus, Pairs, chained
from keras_transformer.training.mixture_config import CorpusConfig, StageConfig

WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
LINES = [" ".join(WORDS[int(digit)] for digit in str(number)) for number in range(100, 400)]
PAIRS = [(line, line.replace("e", "E")) for line in LINES]
SAMPLING = AugmentationConfig(source_sampling=0.2, target_sampling=0.2)
LONG = 64, 64


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    directory = TokenDirectory(tmp_path_factory.mktemp("tokens"))
    pairs = Pairs(lambda: iter(PAIRS), len(PAIRS))
    models = train_tokenizers(PAIRS, TokenizerConfig(vocab_size=300))
    write_tokens(directory, Corpus(pairs, pairs), models, DataConfig())
    return directory


@pytest.fixture
def maker(tokens):
    def maker(augmentation=SAMPLING, prefixes=((), ()), block_size=100):
        mixture = Mixture([len(PAIRS)], [Stage((1.0,))], block_size)
        return BlockMaker(str(tokens.path), {"train": prefixes}, mixture, augmentation)

    return maker


@pytest.fixture
def stream(tokens):
    """Makes streams, and closes them after the test."""
    made = []

    def stream(augmentation=SAMPLING, tokens_per_batch=600, multiple=1, max_length=None):
        @dataclasses.dataclass(frozen=True, kw_only=True)
        class Config(BatchConfig):
            augmentation: object = dataclasses.field(default_factory=lambda: augmentation)

        made.append(make_stream(tokens, Config(tokens_per_batch=tokens_per_batch), multiple, max_length=max_length))
        return made[-1]

    yield stream
    for batches in made:
        batches.close()


def text_of(tokens, sides):
    tokenizer = Tokenizer(tokens.tokenizer_models()[0])
    return list(zip(*(tokenizer.decode(side.lists()) for side in sides), strict=True))


def test_an_epoch_of_blocks_has_each_pair_once(maker, tokens):
    pairs = [pair for number in range(3) for pair in text_of(tokens, maker().sentences(1, number, LONG))]
    assert sorted(pairs) == sorted(PAIRS)


def test_subwords_differ_in_each_epoch_and_the_text_does_not(maker, tokens):
    best = maker(AugmentationConfig()).sentences(1, 0, LONG)
    one, again = (maker().sentences(1, 0, LONG) for _ in range(2))
    for before, first, second in zip(best, one, again, strict=True):
        assert first.lists() == second.lists() != before.lists()
        assert first.lengths.sum() > 1.05 * before.lengths.sum()
        assert set(first.ids[np.cumsum(first.lengths) - 1]) == {EOS_ID}
    assert text_of(tokens, one) == text_of(tokens, best)
    seeds = [maker().sentences(seed, number, LONG)[0].lists() for seed, number in ((1, 0), (1, 3), (2, 0))]
    assert len({str(seed) for seed in seeds}) == 3


def test_only_the_chosen_side_is_sampled(maker):
    best = maker(AugmentationConfig()).sentences(1, 0, LONG)
    source, target = maker(AugmentationConfig(target_sampling=0.2)).sentences(1, 0, LONG)
    assert source.lists() == best[0].lists() and target.lists() != best[1].lists()


def words_of(tokens, sides):
    return collections.Counter(" ".join(source for source, _ in text_of(tokens, sides)).split())


def test_merged_pairs_have_the_same_words(maker, tokens):
    best = maker(AugmentationConfig()).sentences(1, 0, LONG)
    merged = maker(AugmentationConfig(merge=0.9)).sentences(1, 0, LONG)
    assert 50 <= len(merged[0].lengths) < 60
    assert words_of(tokens, merged) == words_of(tokens, best)


def test_changed_pairs_that_are_too_long_are_unchanged(maker, tokens):
    best = maker(AugmentationConfig()).sentences(1, 0, LONG)
    longest = tuple(int(side.lengths.max()) for side in best)
    changed = maker(AugmentationConfig(merge=0.9, source_sampling=0.3)).sentences(1, 0, longest)
    assert all(side.lengths.max() <= length for side, length in zip(changed, longest, strict=True))
    assert words_of(tokens, changed) == words_of(tokens, best)
    assert len(changed[0].lengths) > 80
    unchanged = {str(row) for row in best[0].lists()} & {str(row) for row in changed[0].lists()}
    assert len(unchanged) > 20


def test_changed_pairs_have_room_in_the_model(stream, tokens):
    """The model may have fewer positions than a row."""
    longest = max(int(side.lengths.max()) for side in tokens.sides("train"))
    batches = stream(AugmentationConfig(merge=0.5, source_sampling=0.3), max_length=longest + 3)
    sides = batches._maker.sentences(1, 0, LONG)
    assert longest < max(side.lengths.max() for side in sides) <= longest + 3


def test_a_tag_starts_each_source_sentence(maker, tokens):
    """The first id of each source is taken as its tag: it is neither changed nor decoded."""
    changed, _ = maker(AugmentationConfig(upper_case=0.999), prefixes=((7,), ())).sentences(1, 0, LONG)
    assert {row[0] for row in changed.lists()} == {7}


def test_batches_have_one_shape_and_all_pairs(stream, maker, tokens):
    batches = stream(tokens_per_batch=600, multiple=4)
    (shape,) = batches.shapes
    found = [batches.training_batch(1, step) for step in range(batches.steps + 20)]
    rows = batches.filled(shape).rows
    assert rows % 4 == 0 and {labels.shape for _, labels, _ in found} == {(rows, shape.target)}
    steps = batches.position(len(found))
    block = maker(block_size=batches._maker.mixture.block_size).block(1, 0, (shape.source, shape.target))
    ours = np.sort(np.concatenate([labels.ravel() for _, labels, _ in found[: steps[0]]]))
    assert ours[ours != 0].tolist() == np.sort(block.target.ids).tolist()
    for inputs, labels, weights in found:
        assert weights.sum() == pytest.approx(weights.size, rel=1e-5)
        np.testing.assert_array_equal(weights > 0, inputs["target_segments"] > 0)
        np.testing.assert_array_equal(labels[:, :-1][labels[:, :-1] != 3], inputs["target"][:, 1:][labels[:, :-1] != 3])


def test_the_estimates_are_close(stream):
    batches = stream()
    steps = 0
    while len(batches.position(steps + 1)) < 5:
        batches.training_batch(1, steps)
        steps += 1
    pairs = batches._maker.mixture.taken(4)[0]
    assert batches.steps == pytest.approx(steps * len(PAIRS) / pairs, rel=0.1)
    tokens = sum(np.count_nonzero(batches.training_batch(2, step)[1]) for step in range(batches.steps))
    assert batches.tokens == pytest.approx(tokens, rel=0.1)


@pytest.mark.parametrize("step", [1, 7, 40])
def test_a_resumed_stream_continues_with_the_same_batches(stream, step):
    one, other = stream(), stream()
    expected = [one.training_batch(1, i) for i in range(step + 5)]
    position = one.position(step)
    other.resume(position)
    for i in range(step, step + 5):
        for a, b in zip(flat(expected[i]), flat(other.training_batch(1, i)), strict=True):
            np.testing.assert_array_equal(a, b)
    assert other.position(step + 5)[: len(position)] == position
    assert len(position) <= 1 + step // min(position)


def flat(batch):
    inputs, *others = batch
    return [*inputs.values(), *others]


def test_a_step_may_be_repeated(stream):
    """A new call of `fit` starts before the batches that the previous one has prefetched."""
    batches = stream()
    expected = [batches.training_batch(1, step) for step in range(12)]
    for step in (10, 8, 11, 9):
        for a, b in zip(flat(batches.training_batch(1, step)), flat(expected[step]), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """Three corpora with a sentence number each; the second one is tagged."""
    directory = TokenDirectory(tmp_path_factory.mktemp("three"))
    parts = {"a": PAIRS[:50], "b": PAIRS[50:150], "c": PAIRS[150:]}
    parts = {name: Pairs(lambda pairs=pairs: iter(pairs), len(pairs)) for name, pairs in parts.items()}
    files = {"source": "unused", "target": "unused"}
    corpora = {"a": CorpusConfig(**files), "b": CorpusConfig(**files, tag="<bt>"), "c": CorpusConfig(**files)}
    models = train_tokenizers(PAIRS, TokenizerConfig(vocab_size=320), ["<bt>"])
    corpus = Corpus(chained([*parts.values()]), parts["a"], parts=parts)
    write_tokens(directory, corpus, models, DataConfig(corpora=corpora))
    return directory


STAGES = [StageConfig(weights={"a": 0.25, "b": 0.75}, epochs=2, of="a"), StageConfig(weights={"c": 1.0})]


@pytest.fixture
def mixed(three):
    made = []

    def mixed(stages=STAGES, augmentation=SAMPLING):
        config = TrainConfig(output="unused", prepared=str(three.path), tokens_per_batch=300, stages=stages)
        made.append(make_stream(three, dataclasses.replace(config, augmentation=augmentation)))
        return made[-1]

    yield mixed
    for batches in made:
        batches.close()


@pytest.mark.parametrize("augmentation", [AugmentationConfig(), SAMPLING, AugmentationConfig(upper_case=0.5)])
def test_corpora_follow_the_stages_with_their_tags(mixed, three, augmentation):
    batches, tokenizer = mixed(augmentation=augmentation), Tokenizer(three.tokenizer_models()[0])
    tag = tokenizer.pieces.index("<bt>")
    known = {source.upper(): name for name, part in (("a", PAIRS[:50]), ("b", PAIRS[50:150])) for source, _ in part}
    counts, steps = collections.Counter(), 0
    while len(batches.position(steps + 1)) < 8:
        inputs, _, _ = batches.training_batch(1, steps)
        for row, segments in zip(inputs["source"], inputs["source_segments"], strict=True):
            for segment in range(1, segments.max(initial=0) + 1):
                ids = row[segments == segment].tolist()
                name = known.get(tokenizer.decode([ids[ids[0] == tag :]])[0].upper(), "c")
                assert (ids[0] == tag) is (name == "b")
                counts[name] += 1
                assert name == "c" or not counts["c"]
        steps += 1
    assert abs(counts["a"] - 100) <= 1 and abs(counts["b"] - 300) <= 1 and counts["c"] > 100
    assert re.search(r"a 100 \(\d+%, 2.00 epochs\), b 300 \(\d+%, 3.00 epochs\), c \d+", batches.sources(steps))


def test_an_epoch_has_the_tokens_of_all_corpora(tmp_path):
    """Also if the first stage has shorter sentences than the others."""
    parts = {"short": 60 * [(word, word) for word in WORDS], "long": 2 * PAIRS}
    splits = {name: Pairs(lambda part=part: iter(part), len(part)) for name, part in parts.items()}
    corpora = {name: CorpusConfig(source="unused", target="unused") for name in parts}
    directory = TokenDirectory(tmp_path)
    models = train_tokenizers(PAIRS, TokenizerConfig(vocab_size=300))
    corpus = Corpus(chained([*splits.values()]), splits["short"], parts=splits)
    write_tokens(directory, corpus, models, DataConfig(corpora=corpora))
    stages = [StageConfig(weights={"short": 1.0}, epochs=1), StageConfig(weights={"long": 1.0})]
    options = {"output": "unused", "prepared": str(tmp_path), "tokens_per_batch": 300}
    with contextlib.closing(make_stream(directory, TrainConfig(**options, stages=stages))) as batches:
        maker = batches._maker
        first, second = (batches._steps_of(maker.block(1, number, batches._lengths)) for number in (0, 1))
    assert maker.mixture.taken(2) == (600, 1200)  # A pass over the short sentences, and two over the long ones.
    assert batches.stage_starts == (0, pytest.approx(first, rel=0.1))
    assert batches.steps == pytest.approx(first + second / 2, rel=0.1) and second > 3 * first


def test_rows_have_room_for_the_sentences_of_later_stages(tmp_path):
    """The first block has none of the long targets."""
    parts = {
        "a": [(f"{line} {line}", line.split()[0]) for line in LINES],
        "b": [(line.split()[0], " ".join([line] * 8)) for line in LINES],
    }
    pairs = {name: Pairs(lambda part=part: iter(part), len(part)) for name, part in parts.items()}
    corpora = {name: CorpusConfig(source="unused", target="unused") for name in parts}
    models = train_tokenizers(parts["a"] + parts["b"], TokenizerConfig(vocab_size=300))
    directory = TokenDirectory(tmp_path)
    corpus = Corpus(chained([*pairs.values()]), pairs["a"], parts=pairs)
    write_tokens(directory, corpus, models, DataConfig(corpora=corpora, max_length_ratio=100))
    stages = [StageConfig(weights={"a": 1.0}, epochs=1), StageConfig(weights={"b": 1.0})]
    batches = make_stream(directory, TrainConfig(output="x", prepared="x", tokens_per_batch=2000, stages=stages))
    assert batches.shapes[0].target >= directory.sides("train.b")[1].lengths.max() > 50
    with contextlib.closing(batches):
        assert len(batches.training_batch(1, 4)[1]) == batches.shapes[0].rows


def test_without_stages_the_shares_are_those_of_the_pairs(mixed):
    batches = mixed(stages=None)
    assert batches._maker.mixture.stages[0].weights == pytest.approx((1 / 6, 1 / 3, 1 / 2))


def test_one_corpus_has_no_shares(stream):
    batches = stream()
    batches.training_batch(1, 3)
    assert batches.sources(3) is None


def test_the_longest_sentence_must_fit(tokens, maker):
    with pytest.raises(ValueError, match=r"tokens_per_batch=5"):
        StreamedBatches(maker(), BatchConfig(tokens_per_batch=5))


def test_a_killed_worker_is_named(stream):
    batches = stream()
    batches.training_batch(1, 0)
    for process in list(batches._workers._pool._processes.values()):
        process.kill()
    with pytest.raises(WorkerStopped, match="has stopped"):
        for step in itertools.count(1):
            batches.training_batch(1, step)
