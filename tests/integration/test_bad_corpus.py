"""Faulty corpora: unusable pairs are removed and counted, and the run succeeds."""

import random
import re

import pytest

from keras_transformer.cli import main

BRIEF = {"recipe.max_steps": 2, "recipe.validate_every": 2, "model.dropout": 0.0}

#: Faulty pairs of source and target lines, as bytes.
TROUBLES = {
    "NUL": (b"one\x00two", b"eins\x00zwei"),
    "empty source": (b"", b"eins"),
    "empty target": (b"one", b" \t"),
    "both empty": (b"", b""),
    "a megabyte": (b"one " * 262_144, b"eins"),
    "a megabyte without a space": (b"one", b"x" * (1 << 20)),
    "a byte order mark": (b"\xef\xbb\xbfone", b"eins"),
    "a carriage return": (b"one\r", b"eins\r"),
}


@pytest.fixture
def corpus(toy_files, tmp_path):
    """The training files with all faulty pairs and ten identical pairs mixed in."""
    sides = [(toy_files / f"train.{language}").read_bytes().splitlines() for language in ("en", "de")]
    pairs = [*zip(*sides, strict=True), *TROUBLES.values(), *[(b"same", b"same")] * 10]
    random.Random(1).shuffle(pairs)
    for side, language in enumerate(("en", "de")):
        (tmp_path / language).write_bytes(b"".join(pair[side] + b"\n" for pair in pairs))
    return {
        **{"source": tmp_path / "en", "target": tmp_path / "de"},
        **{"validation_source": toy_files / "test.en", "validation_target": toy_files / "test.de"},
    }


def prepare(output, options):
    """The command that counts as a training does."""
    options = {"output": output, "max_length": 40, **options}
    return ["prepare", *(f"--{name}={value}" for name, value in options.items())]


@pytest.mark.slow
def test_troubles_are_left_out_and_counted(corpus, arguments, tmp_path, capsys):
    assert main(arguments(tmp_path / "run", **BRIEF, **corpus)) == 0
    said = capsys.readouterr().err
    assert re.search(r"training.*: 313 of 318 pairs.* 3 with an empty side, 2 too long, 0 .*ratio", said)
    assert re.search(r"\b10 .*identical", said)
    assert re.search("validation.*: 20 of 20 pairs", said)


def test_a_line_that_one_side_lacks_shows_in_the_counts(tmp_path, capsys):
    """All later pairs are shifted, so short lines are paired with long ones."""
    lines = [" ".join(["one", "two"] * (8 if i % 2 else 1)) for i in range(200)]
    (tmp_path / "en").write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "de").write_text("".join(f"{line}\n" for line in lines[:100] + lines[101:] + lines[:1]))
    corpus = {"source": tmp_path / "en", "target": tmp_path / "de", "tokenizer.vocab_size": 270}
    assert main(prepare(tmp_path / "tokens", corpus)) == 0
    said = capsys.readouterr().err
    assert re.search(r"train.*: 99 of 198 pairs.* 0 with an empty side, 0 too long, 99 .*ratio", said)


def test_a_source_that_is_its_own_target_shows_in_the_counts(corpus, tmp_path, capsys):
    """The counts show that a run would train a copy task."""
    corpus["target"] = corpus["source"]
    assert main(prepare(tmp_path / "tokens", {**corpus, "tokenizer.vocab_size": 300})) == 0
    assert re.search(r"\b315 .*identical", capsys.readouterr().err)
