import types

import pytest
import tensorflow as tf

from keras_transformer.config import EOS_ID
from keras_transformer.decoding import BeamSearch, Hypotheses
from keras_transformer.export.format import Exported
from keras_transformer.export.saved_model.export import write_saved_model
from keras_transformer.export.saved_model.translator import SavedModelTranslator
from keras_transformer.text.tokenization import Tokenizer, TokenizerConfig, train_sentencepiece


def tokenizer(text):
    return Tokenizer(train_sentencepiece([text], TokenizerConfig(vocab_size=266)))


def echo(source, strategy, **options):
    """A search whose hypotheses are the source ids."""
    tokens = tf.repeat(source[:, None], strategy.n_best, axis=1)
    return Hypotheses(tokens, tf.fill(tf.shape(tokens)[:2], -1.5))


@pytest.fixture
def model():
    """A model without weights whose search returns the source."""
    config = types.SimpleNamespace(max_length=None)
    return types.SimpleNamespace(variables=[], search=echo, config=config)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # From TensorFlow.
def test_each_side_has_its_own_tokenizer_once_loaded(model, tmp_path):
    source, target = tokenizer("abc abd"), tokenizer("xyz xyw")
    write_saved_model(Exported(model, None, (source, target), BeamSearch(n_best=2)), tmp_path / "saved_model")
    lines = ["abc", "", "abd abd \N{GRINNING FACE}"]
    found = SavedModelTranslator(tmp_path / "saved_model").translate(lines)
    assert [translation.text for translation in found] == target.decode(source.encode(lines))
    assert found[0].text.startswith("xy")
    assert [translation.score for translation in found] == [-1.5, 0.0, -1.5]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_a_line_is_cut_where_the_learned_positions_end(model, tmp_path):
    model.config.max_length = 5
    both = tokenizer("abc abd")
    write_saved_model(Exported(model, None, (both, both), BeamSearch()), tmp_path / "saved_model")
    loaded = SavedModelTranslator(tmp_path / "saved_model")
    (whole,) = both.encode(["abc abd abc"])
    assert len(whole) > 5
    with pytest.warns(UserWarning, match=f"line 1 .*{len(whole) - 1} .* 4: abc abd abc") as caught:
        (translation,) = loaded.translate(["abc abd abc"])
    assert [warning.filename for warning in caught] == [__file__]
    assert translation.text == both.decode([[*whole[:4], EOS_ID]])[0]
