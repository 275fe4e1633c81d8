"""A user's subclass of `Seq2Seq`: an image in, tokens out, with our decoder; and one without any layer of ours."""

import itertools

import keras
import numpy as np
import pytest
from keras import ops

import keras_transformer as kt
from keras_transformer.decoding import BeamSearch, GreedySearch, Sampling, SpecialIds, length_penalty

to_numpy = keras.ops.convert_to_numpy
IMAGES = np.random.default_rng(1).random((3, 14, 7, 2), "float32")
TARGET = np.array([[2, 5, 6, 4], [2, 4, 0, 0], [2, 6, 6, 5]], "int32")


@keras.saving.register_keras_serializable(package="test_seq2seq")
class Captioner(kt.Seq2Seq):
    def __init__(self, vocab_size=7, dropout=0.0, pad_id=0, dense=False, **kwargs):
        super().__init__(keras.Input((14, 7, 2)), vocab_size, **kwargs)
        self.patches = kt.layers.PatchEmbedding(7, 12)
        self.dropout = keras.layers.Dropout(dropout, seed=1)
        self.embedding = kt.layers.TokenEmbedding(vocab_size, 12, pad_id=pad_id)
        self.positions = kt.layers.PositionalEncoding()
        self.decoder = kt.layers.Decoder(num_layers=2, d_model=12, num_heads=2, d_ff=13)
        self.logits = keras.layers.Dense(vocab_size) if dense else kt.layers.TiedLogits(self.embedding)

    def encode(self, images):
        return self.dropout(self.patches(images)), None

    def decode(self, tokens, memory, mask=None, cache=None, offset=0):
        x = self.positions(self.embedding(tokens), offset=offset)
        if cache is None:
            return self.logits(self.decoder(x, memory, memory_mask=mask))
        x, cache = self.decoder(x, memory, memory_mask=mask, cache=cache, offset=offset)
        return self.logits(x), cache


@keras.saving.register_keras_serializable(package="test_seq2seq")
class Recurrent(kt.Seq2Seq):
    """A recurrent network: its cache is the state, and its memory a structure."""

    def __init__(self, **kwargs):
        super().__init__(
            {"size": keras.Input((2,)), "ids": keras.Input((None,), dtype="int32")}, 7, SpecialIds(0, 0, 1)
        )
        self.embedding = keras.layers.Embedding(9, 5)
        self.size = keras.layers.Dense(5)
        self.cell = keras.layers.GRUCell(5)
        self.network = keras.layers.RNN(self.cell, return_sequences=True)
        self.output_layer = keras.layers.Dense(7)

    def encode(self, source):
        mask = source["ids"] != 0
        embedded = ops.where(mask[..., None], self.embedding(source["ids"]), 0.0)
        return {"state": self.size(source["size"]) + ops.sum(embedded, axis=1)}, mask

    def decode(self, tokens, memory, mask=None, cache=None, offset=0):
        if cache is not None:
            rows, sentences = ops.shape(tokens)[0], ops.shape(memory["state"])[0]
            first = ops.repeat(memory["state"], rows // sentences, axis=0)
            state = ops.where(offset == 0, first, cache)
            state, _ = self.cell(self.embedding(tokens), [state])
            return self.output_layer(state), state
        return self.output_layer(self.network(self.embedding(tokens), initial_state=[memory["state"]]))

    def project_memory(self, memory):
        return memory

    def empty_cache(self, batch_size, max_length):
        return ops.zeros((batch_size, 5))

    def build(self, input_shape=None):
        for layer, shape in (
            (self.embedding, None),
            (self.size, (None, 2)),
            (self.cell, (None, 5)),
            (self.output_layer, (None, 5)),
        ):
            layer.build(shape)


SIZES = {"size": np.array([[0.5, 2.0], [-1.0, 0.3]]), "ids": np.array([[3, 8, 0], [4, 5, 6]])}


@pytest.fixture(scope="module")
def captioner(randomize):
    model = Captioner()
    model.build()
    return randomize(model, scale=0.4)


@pytest.fixture(scope="module")
def recurrent(randomize):
    model = Recurrent()
    model.build()
    return randomize(model, scale=0.8)


@pytest.mark.portable
@pytest.mark.parametrize("strategy", [GreedySearch(extra_length=4), Sampling(seed=3, n_samples=2, extra_length=4)])
@pytest.mark.parametrize("name, source", [("captioner", IMAGES), ("recurrent", SIZES)])
def test_a_stream_is_what_it_generates(request, name, source, strategy):
    model = request.getfixturevalue(name)
    expected = model.generate(source, strategy).tokens
    assert expected.any()
    np.testing.assert_array_equal(np.stack([*model.stream(source, strategy)], axis=-1), expected)


def test_it_generates_before_its_first_call():
    assert Captioner().generate(IMAGES, GreedySearch(extra_length=3)).tokens.shape[:2] == (3, 1)


def test_fit_applies_dropout(randomize):
    """On JAX, Keras runs `call` outside of `__call__`, which would otherwise not tell layers that it trains."""
    losses = []
    for dropout in (0.0, 0.9):
        model = Captioner(dropout=dropout)
        model.build()
        randomize(model, scale=0.4)
        model.compile("sgd", kt.losses.LabelSmoothedCrossEntropy(0.1))
        history = model.fit({"source": IMAGES, "target": TARGET}, np.roll(TARGET, -1, 1), verbose=0)
        losses.append(history.history["loss"][0])
    assert abs(losses[0] - losses[1]) > 1e-3


def test_it_is_saved_and_loaded(captioner, tmp_path):
    captioner.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.get_config()["vocab_size"] == 7
    inputs = {"source": IMAGES, "target": TARGET}
    np.testing.assert_array_equal(to_numpy(loaded(inputs)), to_numpy(captioner(inputs)))
    captioner.summary(print_fn=lambda line, **options: None)


@pytest.mark.parametrize("name", ["captioner", "recurrent"])
def test_beam_search_finds_the_best_of_all_hypotheses(name, request):
    model = request.getfixturevalue(name)
    source, ids = (IMAGES, model.special_ids) if name == "captioner" else (SIZES, model.special_ids)
    strategy = BeamSearch(beam_size=60, extra_length=3 if name == "captioner" else 0)
    limits = [3, 3, 3] if name == "captioner" else [2, 3]
    found = model.generate(source, strategy)
    words = [i for i in range(7) if i not in ids]
    for row, limit in enumerate(limits):
        hypotheses = [
            (*words_before, ids.eos) for n in range(limit) for words_before in itertools.product(words, repeat=n)
        ]
        target = np.array([(*h, *[ids.pad] * (limit - len(h))) for h in hypotheses], "int32")
        rows = np.full(len(target), row)
        repeated = keras.tree.map_structure(lambda x, rows=rows: x[rows], source)
        scores = model.token_log_probs(repeated, target).sum(axis=1)
        scores /= to_numpy(length_penalty(np.array([len(h) for h in hypotheses]), 0.6, "gnmt"))
        assert tuple(found.tokens[row, 0][: len(hypotheses[scores.argmax()])]) == hypotheses[scores.argmax()]
        np.testing.assert_allclose(found.scores[row, 0], scores.max(), rtol=1e-4)


def test_samples_of_equal_seeds_are_equal(recurrent):
    first, second = (recurrent.generate(SIZES, Sampling(seed=5, n_samples=3, extra_length=4)) for _ in range(2))
    np.testing.assert_array_equal(first.tokens, second.tokens)


def test_a_shortlist_is_refused(captioner):
    shortlist = kt.decoding.Shortlist(np.zeros((7, 1), "int32"), range(7), vocab_size=7)
    with pytest.raises(ValueError, match="`shortlist` requires a Transformer of token ids.*Received: Captioner"):
        captioner.generate(IMAGES, shortlist=shortlist)


@pytest.mark.parametrize("ids", [SpecialIds(1, 2, 0), SpecialIds(0, 0, 1)], ids=str)
def test_scores_equal_those_of_one_full_pass_with_any_ids(ids, randomize, tmp_path):
    model = Captioner(pad_id=None if ids.bos == ids.pad else ids.pad, special_ids=ids)
    model.build()
    randomize(model, scale=0.4)
    found = model.generate(IMAGES, BeamSearch(beam_size=3, n_best=2, length_penalty=0.0, extra_length=5))
    for best in range(2):
        log_probs = model.token_log_probs(IMAGES, found.tokens[:, best])
        np.testing.assert_allclose(log_probs.sum(axis=1), found.scores[:, best], atol=1e-4)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.special_ids == ids
    np.testing.assert_array_equal(loaded.generate(IMAGES).tokens, model.generate(IMAGES).tokens)


def test_logits_have_no_mask():
    model = Captioner(dense=True)
    assert getattr(model({"source": IMAGES, "target": TARGET}), "_keras_mask", None) is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"vocab_size": 0}, "`vocab_size` must be at least 1"),
        ({"special_ids": (0, 2, 2)}, "`special_ids` must be .*Received: SpecialIds"),
        ({"special_ids": (0, 2, 7)}, r"`special_ids` must be in \[0, 7\)"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Captioner(**arguments)


def test_a_source_that_is_not_symbolic_is_refused():
    with pytest.raises(ValueError, match=r"`source` must be a keras.Input.*Received: source=\(28, 28\)"):
        kt.Seq2Seq((28, 28), 7)


def test_encode_must_return_a_mask_or_none():
    class NoMask(Captioner):
        def encode(self, images):
            return self.patches(images)

    with pytest.raises(ValueError, match="`encode` must return a tuple of the memory and its mask.*NoMask.encode"):
        NoMask().generate(IMAGES)


def test_a_model_without_a_decoder_must_have_a_cache():
    class NoDecoder(kt.Seq2Seq):
        def __init__(self):
            super().__init__(keras.Input((3,)), 7)

        def encode(self, source):
            return source, None

        def decode(self, tokens, memory, mask=None, cache=None, offset=0):
            return ops.one_hot(tokens, 7) if cache is None else (ops.one_hot(tokens, 7), cache)

    with pytest.raises(ValueError, match="must override `project_memory` and `empty_cache`. Received: NoDecoder"):
        NoDecoder().search(np.ones((2, 3), "float32"), GreedySearch())
