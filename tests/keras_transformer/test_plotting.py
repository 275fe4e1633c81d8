import re
import struct
import sys

import numpy as np
import pytest

from keras_transformer.plotting import plot_attention

pytest.importorskip("matplotlib")
SOURCE, TARGET = ["$$", "\N{LOWER ONE EIGHTH BLOCK}a", "b$^$", "</s>"], ["x", "y", "</s>"]


def weights(heads=5):
    return np.random.default_rng(0).dirichlet(np.ones(4), (heads, 3))


@pytest.fixture
def figures(monkeypatch):
    """The figures that are saved."""
    from matplotlib.figure import Figure

    saved, save = [], Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *args, **kw: (saved.append(self), save(self, *args, **kw))[1])
    return saved


def test_every_head_is_drawn_with_its_weights_and_tokens(tmp_path, figures):
    scores = weights()
    plot_attention(scores, SOURCE, TARGET, tmp_path / "picture.png")
    (figure,) = figures
    heads = [ax for ax in figure.axes if ax.get_title()]
    assert [ax.get_title() for ax in heads] == [f"head {i}" for i in range(1, 6)]
    for ax, head in zip(heads, scores, strict=True):
        np.testing.assert_array_equal(ax.images[0].get_array(), head)
        assert ax.images[0].get_clim() == (0, 1)
    assert [label.get_text() for label in heads[4].get_xticklabels()] == SOURCE
    assert [label.get_text() for label in heads[0].get_yticklabels()] == TARGET
    assert not any(label.get_parse_math() for ax in heads for label in (*ax.get_xticklabels(), *ax.get_yticklabels()))
    png = (tmp_path / "picture.png").read_bytes()
    assert png.startswith(b"\x89PNG") and min(struct.unpack(">2I", png[16:24])) > 300
    assert [path.name for path in tmp_path.iterdir()] == ["picture.png"]


def test_a_long_sentence_makes_no_endless_picture(tmp_path, figures):
    """matplotlib refuses 2^16 dots, of which an inch has 150."""
    plot_attention(np.ones((1, 1, 150)) / 150, ["b"] * 150, ["a"], tmp_path / "long.png")
    assert figures[-1].get_size_inches()[0] == 21


@pytest.mark.parametrize("name", ["picture.svg", "picture.PDF"])
def test_the_suffix_says_the_format(tmp_path, name):
    plot_attention(weights(1), SOURCE, TARGET, tmp_path / name)
    assert (tmp_path / name).read_bytes()[:5] in (b"<?xml", b"%PDF-")


@pytest.mark.parametrize("shape", [(5, 4, 3), (3, 4), (0, 3, 4)])
def test_scores_of_other_tokens_are_refused(tmp_path, shape):
    with pytest.raises(ValueError, match=rf"`scores`.*\(num_heads, 3, 4\).*Received: shape={re.escape(str(shape))}"):
        plot_attention(np.zeros(shape), SOURCE, TARGET, tmp_path / "picture.png")


@pytest.mark.parametrize("name", ["picture", "picture.keras"])
def test_a_path_of_another_kind_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match=f"`path`.*png.*Received: path=.*{name}$"):
        plot_attention(weights(), SOURCE, TARGET, tmp_path / name)
    assert not any(tmp_path.iterdir())


def test_missing_matplotlib_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ValueError, match=r"matplotlib.*pip install 'keras-transformer-kit\[plot\]'"):
        plot_attention(weights(), SOURCE, TARGET, tmp_path / "picture.png")
