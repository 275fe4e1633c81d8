import dataclasses

import pytest

from keras_transformer.cli.options import make_config


@dataclasses.dataclass(frozen=True)
class Inner:
    """The inner options.

    Args:
        size: a size.
    """

    size: int | None = None


@dataclasses.dataclass(frozen=True)
class Outer:
    """The outer options.

    Args:
        rate: a rate.
        count: a count. Default: computed.
        inner: inner options
    """

    rate: float = 0.5
    count: int | None = None
    inner: Inner = dataclasses.field(default_factory=Inner)


def command():
    """Does nothing."""


def test_a_default_of_none_is_left_to_the_words(capsys):
    with pytest.raises(SystemExit):
        make_config(command, Outer, ["--help"], overwrite="replace it")
    shown = " ".join(capsys.readouterr().out.split())
    assert "a rate. (type: number, default: 0.5)" in shown
    assert "a count. Default: computed. (type: integer)" in shown
    assert "YAML file with the options `inner.…`" in shown and "Path to" not in shown
    assert "default: null" not in shown
