import numpy as np
import pytest

from keras_transformer import Transformer, TransformerConfig
from keras_transformer.cli import main
from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.text.tokenization import TokenizerConfig, train_sentencepiece
from keras_transformer.translate.finished_model import load_finished

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


@pytest.fixture(scope="module")
def path(tmp_path_factory, randomize):
    """A model directory of random weights, with a tokenizer of each side."""
    directory = ModelDirectory(tmp_path_factory.mktemp("run"))
    sides = ["one two three", "eins zwei drei"]
    directory.write_tokenizers(tuple(train_sentencepiece([s], TokenizerConfig(vocab_size=270)) for s in sides))
    config = TransformerConfig(vocab_size=270, num_layers=2, d_model=8, num_heads=2, d_ff=12)
    randomize(Transformer(config), scale=0.3).save(directory.model_file)
    directory.write_record({}, finished=True)
    return directory.path


@pytest.fixture
def drawn(monkeypatch):
    """What is drawn."""
    drawn = []

    def plot_attention(*arguments):
        drawn.append(arguments[:-1])
        arguments[-1].write_bytes(b"picture")

    monkeypatch.setattr("keras_transformer.cli.attention_plot.plot_attention", plot_attention)
    return drawn


def expected_scores(path, target):
    model, (of_source, of_target) = load_finished(ModelDirectory(path))
    return model.attention_scores(of_source.encode(["one two"]), of_target.encode([target]))


@pytest.mark.nightly
@pytest.mark.parametrize(("option", "at"), [pytest.param([], -1, marks=pytest.mark.nightly), (["--layer=1"], 0)])
def test_a_given_pair_is_drawn(path, tmp_path, drawn, capsys, option, at):
    arguments = [
        "plot-attention",
        str(path),
        "one two",
        "--output",
        str(tmp_path / "picture.png"),
        "--target=zwei drei",
    ]
    assert main([*arguments, *option]) == 0
    assert capsys.readouterr().out == "zwei drei\n"
    ((scores, source, target),) = drawn
    assert "".join(source) == "\N{LOWER ONE EIGHTH BLOCK}one\N{LOWER ONE EIGHTH BLOCK}two</s>"
    assert "".join(target) == "\N{LOWER ONE EIGHTH BLOCK}zwei\N{LOWER ONE EIGHTH BLOCK}drei</s>"
    np.testing.assert_allclose(scores, expected_scores(path, "zwei drei")[at][0], atol=1e-6)
    assert scores.shape == (2, len(target), len(source)) and (tmp_path / "picture.png").read_bytes() == b"picture"


@pytest.mark.nightly
def test_the_models_own_translation_is_drawn(path, tmp_path, capsys):
    assert main(["plot-attention", str(path), "one", f"--output={tmp_path}/picture.png"]) == 0
    assert capsys.readouterr().out.count("\n") == 1
    assert (tmp_path / "picture.png").stat().st_size > 1000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["one", "--layer=3"], "Received: layer=3"),
        (["one", "--layer=0"], "Received: layer=0"),
        ([" "], "Received: sentence=' '"),
        (["one", "--output=picture.txt"], "Received: path=picture.txt"),
    ],
)
def test_bad_arguments_are_refused_without_a_picture(path, tmp_path, capsys, arguments, message):
    assert main(["plot-attention", str(path), "--output", str(tmp_path / "picture.png"), *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not any(tmp_path.iterdir())
