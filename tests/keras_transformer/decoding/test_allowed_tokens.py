"""Searches with constraints of valid text, against Python's decoder and brute force."""

import functools
import itertools
import unicodedata

import keras
import numpy as np
import pytest

from keras_transformer import Transformer, TransformerConfig
from keras_transformer.decoding import BeamSearch, GreedySearch, Sampling, Shortlist, SpecialIds, TextConstraints
from keras_transformer.decoding.allowed_tokens import AllowedTokens

LIMIT, SENTENCES = 5, 10
IDS = SpecialIds(pad=0, bos=2, eos=3)
#: The tokens of a small vocabulary after the special ones: a word and bytes. 0x09 is a control character.
WORD, BYTES = 4, dict(enumerate((0xC3, 0xA2, 0xE2, 0x09, 0xC2), start=5))
CONSTRAINTS = TextConstraints.from_bytes(10, [1], BYTES)
ALL_BYTES = {4 + byte: byte for byte in range(256)}


def is_text(tokens, of_bytes=BYTES):
    """Whether tokens without special ones are valid UTF-8 without control characters. Words are spaces here."""
    try:
        text = b"".join(bytes([of_bytes[token]]) if token in of_bytes else b" " for token in tokens).decode()
    except UnicodeDecodeError:
        return False
    return 1 not in tokens and not any(unicodedata.category(character) == "Cc" for character in text)


def without_end(row):
    row = row.tolist()
    return tuple(row[: row.index(IDS.eos)])


@functools.cache
def beginnings(limit):
    """All beginnings of hypotheses that are text, with the end token."""
    tokens = (WORD, *BYTES)
    texts = [text for length in range(limit) for text in itertools.product(tokens, repeat=length) if is_text(text)]
    return {(*text, IDS.eos)[:length] for text in texts for length in range(1, len(text) + 2)}


def constrained(log_probs, limit):
    """The log probabilities without tokens that no text continues."""

    def allowed(prefix):
        is_allowed = [(*prefix, token) in beginnings(limit) for token in range(10)]
        return np.where(is_allowed, log_probs(prefix), -np.inf)

    return allowed


@pytest.fixture
def script(scripted):
    """Logits for a vocabulary with bytes, under which the unknown token and control bytes are likely."""
    script = scripted(SENTENCES, seed=14, limit=LIMIT, vocab=10)
    script.table[..., [1, 8]] += 3
    script.constraints = CONSTRAINTS
    return script


@pytest.mark.parametrize("beam_size", [1, 2, 3])
def test_searches_find_the_best_text(script, reference, beam_size):
    limits = [1 + i % LIMIT for i in range(SENTENCES)]
    tokens, scores = script.run(BeamSearch(beam_size=beam_size), limits, LIMIT)
    lengths = set()
    for sentence, limit in enumerate(limits):
        log_probs = constrained(script.log_probs(sentence, reference), limit)
        score, text = reference.beam_search(log_probs, limit, IDS, 0.6, "gnmt", beam_size)[0]
        assert (*without_end(tokens[sentence, 0]), IDS.eos) == text
        assert scores[sentence, 0] == pytest.approx(score, abs=1e-4)  # Normalized over all tokens.
        lengths.add(len(text))
    assert len(lengths) > 2


def test_a_beam_that_holds_everything_finds_all_texts(script, reference):
    tokens, scores = script.run(BeamSearch(beam_size=40, n_best=40), max_length=LIMIT, limits=[LIMIT] * SENTENCES)
    for sentence in range(SENTENCES):
        everything = reference.all_hypotheses(script.log_probs(sentence, reference), LIMIT, IDS, 0.6, "gnmt")
        expected = [(score, text) for score, text in everything if is_text(text[:-1])]
        exists = scores[sentence] > -1e8
        assert [(*without_end(row), IDS.eos) for row in tokens[sentence][exists]] == [text for _, text in expected]
        np.testing.assert_allclose(scores[sentence][exists], [score for score, _ in expected], atol=1e-4)


@pytest.mark.parametrize("options", [{}, {"top_k": 2}, {"top_p": 0.9}, {"no_repeat_ngram_size": 1}], ids=repr)
def test_samples_are_text(script, options):
    strategy = Sampling(seed=3, n_samples=10, **options)
    noise = keras.ops.convert_to_tensor(strategy.noise(SENTENCES, LIMIT))
    tokens, _ = script.run(strategy, [LIMIT] * SENTENCES, LIMIT, noise=noise)
    texts = {without_end(row) for row in tokens.reshape(-1, tokens.shape[-1])}
    assert all(map(is_text, texts)) and any(len(text) > 2 and text[0] != WORD for text in texts)


def test_a_prefix_may_end_within_a_character(script):
    prefix = keras.ops.convert_to_tensor([[7, 6]] * 4 + [[7, 0]] * 3 + [[1, 8]] * 3, "int32")
    tokens, _ = script.run(GreedySearch(), [LIMIT] * SENTENCES, LIMIT, prefix=prefix)
    texts = [without_end(row) for row in tokens[:, 0]]
    assert all(text[:2] == (7, 6) and is_text(text) for text in texts[:4])
    assert all(text[:1] == (7,) and is_text(text) for text in texts[4:7])
    assert all(text[:2] == (1, 8) and is_text(text[2:]) for text in texts[7:])


def test_tokens_that_may_be_forbidden_are_recognized():
    """A search masks nothing where this is missed."""
    allowed = AllowedTokens(CONSTRAINTS)
    ordinary = np.array([[WORD, IDS.eos], [IDS.bos, IDS.pad]])
    assert not allowed.may_forbid(np.array([WORD, IDS.bos]), ordinary)
    assert allowed.may_forbid(np.array([WORD, 6]), ordinary)  # After a byte, an ordinary token may be wrong.
    for special in (1, 5, 8):
        assert allowed.may_forbid(np.array([WORD, IDS.bos]), np.array([[WORD, IDS.eos], [WORD, special]]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "vocabulary",
    [
        pytest.param("everything", marks=[pytest.mark.portable, pytest.mark.nightly]),
        "shortlist",
        pytest.param("without bytes", marks=pytest.mark.portable),
    ],
)
def test_models_generate_text(randomize, vocabulary):
    """Searches of a model with random weights, without and with constraints."""
    config = TransformerConfig.preset("tiny", vocab_size=400, num_layers=1, logits_bias=True)
    model = randomize(Transformer(config), scale=1.0)
    model.logits.bias.assign(np.r_[np.zeros(1), 90.0, np.zeros(2), np.full(256, 20.0), np.zeros(140)])
    source = np.random.default_rng(3).integers(260, 400, (20, 7))
    of_bytes = {} if vocabulary == "without bytes" else ALL_BYTES
    shortlist = None
    if vocabulary == "shortlist":
        always = np.r_[:4, 4 + 0x70 : 260, 300:330]
        shortlist = Shortlist(np.full((400, 1), 350), always, vocab_size=400)
    strategy = BeamSearch(beam_size=3, n_best=3, extra_length=2)

    def texts(text_constraints=None):
        options = {"shortlist": shortlist, "text_constraints": text_constraints}
        tokens, scores = model.generate(source, strategy, **options)[:2]
        return [without_end(row) for row in tokens[scores > -1e8]]

    assert not all(is_text(text, of_bytes) for text in texts())
    found = texts(TextConstraints.from_bytes(400, [1], of_bytes))
    assert all(is_text(text, of_bytes) for text in found)
    if of_bytes:
        assert any(4 + 0x80 <= token < 260 for text in found for token in text)
