import dataclasses
import re
import shutil
import sys
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from keras_transformer import Transformer, TransformerConfig
from keras_transformer.config import EOS_ID
from keras_transformer.decoding import BeamSearch, Shortlist
from keras_transformer.export.ctranslate2.export import write_ctranslate2
from keras_transformer.export.ctranslate2.translator import CTranslate2Translator
from keras_transformer.export.format import Exported
from keras_transformer.export.verify.keras_search import KerasSearch
from keras_transformer.export.verify.search import check_search
from keras_transformer.storage.model_directory import ModelDirectory, ModelDirectoryError
from keras_transformer.text.tokenization import Tokenizer, TokenizerConfig, train_sentencepiece
from keras_transformer.translate.translation import Translation

GREEDY = BeamSearch(beam_size=1, length_penalty=0.0, extra_length=12)
#: Every exported option. Each model combines several, because compiling a search is slow.
CONFIGS = {
    "post-norm": {},
    "pre-norm, narrow heads, gelu, shallow decoder": {
        "norm_first": True,
        "d_k": 3,
        "d_v": 3,
        "activation": "gelu",
        "num_decoder_layers": 1,
    },
    "post-norm with final norms, learned positions, silu": {
        "final_norm": True,
        "positions": "learned",
        "max_length": 15,
        "activation": "silu",
    },
    "pre-norm without final norms, no biases, tanh": {
        "norm_first": True,
        "final_norm": False,
        "use_bias": False,
        "activation": "tanh",
    },
    "separate vocabularies, sigmoid": {"share_embeddings": False, "source_vocab_size": 272, "activation": "sigmoid"},
    "positions in halves, unscaled embeddings, biases of the logits": {
        "position_layout": "halves",
        "scale_embedding": False,
        "logits_bias": True,
    },
    "pre-norm of mBART: norms of embeddings, learned positions": {
        "norm_first": True,
        "embedding_norm": True,
        "positions": "learned",
        "max_length": 40,
    },
    "pre-norm of T5: RMS norms, relative positions, gates, scaled logits": {
        "norm_first": True,
        "norm": "rms",
        "use_bias": False,
        "positions": "relative",
        "scale_embedding": False,
        "feed_forward": "gated",
        "activation": "gelu_tanh",
        "logits_scale": 0.25,
        "tie_output": False,
    },
}


@pytest.fixture(scope="module")
def tokenizers():
    """Tokenizers with 272 and 270 subwords."""
    sizes = {"source": 272, "target": 270}
    return {
        side: Tokenizer(train_sentencepiece(["abc abd xyz"], TokenizerConfig(vocab_size=size)))
        for side, size in sizes.items()
    }


@pytest.fixture
def export(tmp_path, tokenizers, randomize):
    """Exports a model with random weights. Returns the model and the folder."""

    def export(shortlist=None, **options):
        sizes = {"vocab_size": 270, "num_layers": 2, "d_model": 16, "num_heads": 2, "d_ff": 24}
        model = randomize(Transformer(TransformerConfig(**{**sizes, **options})), scale=0.3)
        unlikely = keras.ops.convert_to_numpy(model.logits.embedding.embeddings).copy()
        # This package's searches exclude padding and the start token; CTranslate2 does not. Tokens that do not occur in
        # text would need a second search.
        target = tokenizers["target"]
        unlikely[[0, 2, *target.text_constraints.forbidden]] = 0
        model.logits.embedding.embeddings.assign(unlikely)
        pair = (tokenizers["source"] if "source_vocab_size" in options else target, target)
        directory = ModelDirectory(tmp_path / "model")
        directory.path.mkdir()
        directory.write_tokenizers(tuple(dict.fromkeys(tokenizer.model for tokenizer in pair)))
        write_ctranslate2(Exported(model, directory, pair, GREEDY, shortlist), tmp_path / "ctranslate2")
        return model, tmp_path / "ctranslate2"

    export.tokenizers = (tokenizers["target"], tokenizers["target"])
    return export


def write_again(export, model, path, shortlist=None):
    """Replaces the export of a model that has been changed."""
    shutil.rmtree(path)
    directory = ModelDirectory(path.parent / "model")
    write_ctranslate2(Exported(model, directory, export.tokenizers, GREEDY, shortlist), path)


def sources(vocab_size, rows=24):
    rng = np.random.default_rng(5)
    batch = rng.integers(4, vocab_size, (rows, 9)).astype("int32")
    batch[:, -1] = EOS_ID
    return batch


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        pytest.param(options, id=name, marks=() if name.startswith("pre-norm") else pytest.mark.nightly)
        for name, options in CONFIGS.items()
    ],
)
def test_greedy_is_equal(export, options):
    model, path = export(**options)
    source, translator = sources(model.config.source_vocabulary), CTranslate2Translator(path)
    agreement = check_search(KerasSearch(model, GREEDY), translator, [source])
    assert agreement.passed and agreement.equal + agreement.at_limit == agreement.sentences
    ours, theirs = model.generate(source, GREEDY).tokens, translator.search(source)[0]
    np.testing.assert_array_equal(
        ours[:, 0, :-1], theirs[:, 0, :-1]
    )  # Only this package forces the end token at the limit.


@pytest.mark.slow
def test_a_shortlist_is_equal(export):
    """The list is the union of a whole batch in both."""
    table = np.random.default_rng(2).integers(128, 270, (270, 2))
    shortlist = Shortlist(table, np.arange(128), vocab_size=270)
    model, path = export(shortlist)
    source, translator = sources(270), CTranslate2Translator(path)
    for batch in (source[:2], source[2:9]):
        candidates = shortlist.candidates(batch)
        assert 140 < len(candidates) < 250
        found = translator.search(batch)[0]
        expected = model.generate(batch, GREEDY, shortlist=shortlist).tokens
        np.testing.assert_array_equal(found[:, 0, :-1], expected[:, 0, :-1])
        assert not np.isin(model.generate(batch, GREEDY).tokens, candidates).all()  # The list changes translations.


@pytest.mark.nightly
def test_the_report_says_why_hypotheses_are_not_equal(export):
    """With random weights all hypotheses reach the length limit."""
    model, path = export()
    agreement = check_search(KerasSearch(model, GREEDY), CTranslate2Translator(path), [sources(270)])
    assert agreement.equal == 0 and agreement.at_limit == 24
    assert re.search("24 of 24 .*0 equal.*24 .*limit", str(agreement))


@pytest.mark.slow
@pytest.mark.parametrize("search", [GREEDY, dataclasses.replace(GREEDY, beam_size=4)], ids=["greedy", "beam"])
def test_other_weights_are_not_sound(export, search):
    model, path = export()
    model.set_weights([weight * 1.1 for weight in model.get_weights()])
    agreement = check_search(KerasSearch(model, search), CTranslate2Translator(path, search), [sources(270)])
    assert agreement.sound < 24 and not agreement.passed


@pytest.mark.nightly
def test_the_length_penalty_is_of_the_kind_length(export):
    model, path = export(norm_first=True)
    search = BeamSearch(length_penalty=1.0, length_penalty_kind="length", extra_length=12)
    tokens, scores = CTranslate2Translator(path, search).search(sources(270))
    np.testing.assert_allclose(
        scores[:, 0], KerasSearch(model, search).forced_scores(sources(270), tokens[:, 0]), atol=1e-4
    )


OPTIONS = {
    "least length": {"min_length": 15},
    "no token twice": {"no_repeat_ngram_size": 1},
    "repetition penalty": {"repetition_penalty": 1.7},
    "repetition penalty, beam": {"repetition_penalty": 1.7, "no_repeat_ngram_size": 3, "beam_size": 4},
    "both": {"min_length": 5, "no_repeat_ngram_size": 2},
    "both, beam": {"min_length": 5, "no_repeat_ngram_size": 2, "beam_size": 4},
}


@pytest.mark.nightly
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_options_of_the_search_are_sound(likelier_end, options):
    model, path = likelier_end
    search, source = dataclasses.replace(GREEDY, **options), sources(270)
    agreement = check_search(KerasSearch(model, search), CTranslate2Translator(path, search), [source])
    assert agreement.passed and agreement.equal > 8
    without = dataclasses.replace(search, min_length=0, no_repeat_ngram_size=0, repetition_penalty=1.0)
    assert not check_search(KerasSearch(model, search), CTranslate2Translator(path, without), [source]).passed


def test_a_logits_processor_is_refused(export):
    _, path = export(norm_first=True)
    with pytest.raises(ValueError, match="`logits_processor`.*Received: logits_processor=<function"):
        CTranslate2Translator(path, BeamSearch(logits_processor=lambda logits, tokens, step: logits))


def test_no_hypothesis_is_longer_than_the_exported_positions(export):
    _, path = export(norm_first=True)
    (translation,) = CTranslate2Translator(path, BeamSearch(extra_length=2000)).translate(["abc"])
    assert len(translation.tokens) <= 513 + 12


def test_least_lengths_and_repeated_ngrams_are_the_runtimes(export):
    model, path = export(norm_first=True)
    source = sources(model.config.source_vocabulary)

    def found(**options):
        return CTranslate2Translator(path, BeamSearch(beam_size=1, extra_length=20, **options)).search(source)[0][:, 0]

    lengths = (found(min_length=25) != 0).sum(axis=1)
    assert lengths.min() >= 25
    assert found(min_length=1000).shape[1] == 29  # The length limit takes precedence.
    rows = found(no_repeat_ngram_size=1, min_length=10)
    assert all(len({*row.tolist()} - {0}) == (row != 0).sum() for row in rows)


@pytest.fixture
def likelier_end(export):
    """A model whose hypotheses end before the length limit, and the folder of its export."""
    model, path = export(norm_first=True)
    model.decoder.norm.beta.assign_add(4.0 * model.logits.embedding.embeddings[EOS_ID])
    write_again(export, model, path)
    return model, path


@pytest.mark.nightly
def test_empty_hypotheses_are_replaced(export, likelier_end):
    model, path = likelier_end
    model.decoder.norm.beta.assign_sub(model.logits.embedding.embeddings[EOS_ID])
    write_again(export, model, path)
    search, source = BeamSearch(length_penalty=0.0, extra_length=12), sources(270, rows=100)
    translator = CTranslate2Translator(path, search)
    is_empty = translator.search(source, 1)[0][:, 0, 0] == EOS_ID
    assert is_empty.any() and not is_empty.all()
    assert check_search(KerasSearch(model, search), translator, [source]).passed

    def best_only(source, n_best):
        return translator.search(source, 1)

    never_replaced = SimpleNamespace(search=best_only, target_tokenizer=translator.target_tokenizer)
    assert check_search(KerasSearch(model, search), never_replaced, [source]).sound == (~is_empty).sum()


@pytest.mark.parametrize(
    "shortlist", [None, Shortlist(np.zeros((270, 1), int), np.r_[:4, 64:131, 132:194], vocab_size=270)]
)
def test_forbidden_tokens_are_not_generated(export, shortlist):
    model, path = export(logits_bias=True)
    forbidden, bias = export.tokenizers[1].text_constraints.forbidden, np.zeros(270, "float32")
    bias[[*forbidden]] = 4.0
    model.logits.bias.assign(bias)
    write_again(export, model, path, shortlist)
    for beam_size in (1, 3):
        search = BeamSearch(beam_size=beam_size, n_best=beam_size, extra_length=2)
        tokens, _ = CTranslate2Translator(path, search).search(sources(270))
        assert tokens.any() and not np.isin(tokens, forbidden).any()


def test_empty_translations_are_aligned(export):
    _, path = export()
    alignments = CTranslate2Translator(path).align(["abc"] * 2, [Translation("", 0.0, (EOS_ID,)), Translation("", 0.0)])
    assert [one.weights.shape[0] for one in alignments] == [0, 0]


@pytest.mark.nightly
@pytest.mark.parametrize("beam_size", [1, 4])
def test_scores_are_log_probabilities(likelier_end, beam_size):
    model, path = likelier_end
    search = BeamSearch(beam_size=beam_size, n_best=beam_size, length_penalty=0.0, extra_length=12)
    source = sources(270)
    tokens, scores = CTranslate2Translator(path, search).search(source)
    assert tokens.shape[:2] == scores.shape == (24, beam_size)
    has_ended = (tokens == EOS_ID).any(axis=2)
    assert 0.3 < has_ended.mean()
    agreement = check_search(KerasSearch(model, search), CTranslate2Translator(path, search), [source])
    assert agreement.passed and agreement.equal > 12
    for rank in range(beam_size):
        forced = KerasSearch(model, search).forced_scores(source, tokens[:, rank])
        np.testing.assert_allclose(scores[:, rank], forced, atol=1e-3)


def test_texts_are_translated_as_by_keras(export, tokenizers):
    _, path = export(share_embeddings=False, source_vocab_size=272)
    lines = ["abc", "", "abd xyw \N{GRINNING FACE}"]
    translator = CTranslate2Translator(path, protect="off")
    translations = translator.translate(lines)
    assert [t.text for t in translations] == tokenizers["target"].decode([t.tokens for t in translations])
    assert translations[1].text == ""
    (alone,) = translator.translate(lines[:1])  # Alone in its batch, the line has its own length limit.
    assert 3 < len(alone.tokens) < len(translations[0].tokens)
    assert translations[0].tokens[: len(alone.tokens)] == alone.tokens


def test_all_options_that_it_cannot_run_are_named_at_once(export, tmp_path):
    with pytest.raises(ValueError) as error:
        export(d_k=4, d_v=8, activation="mish")
    assert re.search("`d_k` and `d_v` .*Received: d_k=4, d_v=8", str(error.value))
    assert "Received: activation='mish'" in str(error.value)
    assert not (tmp_path / "ctranslate2").exists()


def test_a_broken_export_is_refused(export):
    _, path = export()
    whole = (path / "model.bin").read_bytes()
    (path / "model.bin").write_bytes(whole[:500])
    with pytest.raises(ModelDirectoryError, match=f"CTranslate2 .*{path} "):
        CTranslate2Translator(path)
    (path / "model.bin").write_bytes(whole)
    other = train_sentencepiece(["abc abd xyz xyw xyw xyw"], TokenizerConfig(vocab_size=270))
    ModelDirectory(path).write_tokenizers((other,))
    with pytest.raises(ModelDirectoryError, match=f"tokenizers? in {path} "):
        CTranslate2Translator(path)


def test_a_missing_library_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    (tmp_path / "model.bin").touch()
    with pytest.raises(
        ValueError, match=r"ctranslate2 is not installed: pip install 'keras-transformer-kit\[ctranslate2\]'"
    ):
        CTranslate2Translator(tmp_path)


def test_the_client_needs_neither_tensorflow_nor_keras(export, run_python):
    _, path = export()
    program = """
import sys
from keras_transformer.export import CTranslate2Translator
print(CTranslate2Translator(sys.argv[1]).translate(["abc"])[0].score)
assert not {"keras", "tensorflow"} & set(sys.modules)
"""
    assert float(run_python(program, path)) < 0
