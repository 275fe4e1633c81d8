"""Measures whether parts of sentences that are no language are kept, and whether they change the rest.

Puts one to three parts such as emoji, placeholders, tags and URLs into each sentence, and compares the translations
with those of the plain sentences.

    python benchmarks/protected.py runs/en-de val.en val.de --runtime onnx_int8
"""

import argparse
import random
import re
import time
from pathlib import Path

import sacrebleu

from keras_transformer.text.files import read_lines
from keras_transformer.translate import load_translator
from keras_transformer.translate.protected_text import ProtectedText

PARTS = (
    *(
        "🐶",
        "👍🏽",
        "❤️",
        "🇩🇪",
        "👨‍👩‍👧",
        "{name}",
        "{0}",
        "{{user.name}}",
        "%s",
        "%(count)d",
        "$1",
        '<x id="1"/>',
        "<br />",
    ),
    *("https://example.org/a?b=c", "www.example.org", "john@example.org", "@john_doe", "#dogs", ":blobcat:", "&nbsp;"),
    *("—", "→", "£", "♪", "**", "{\\an8}", "§", "€", "<i>", "</i>"),
)


def with_parts(line: str, draw: random.Random) -> tuple[str, list[str]]:
    """A sentence with different parts between its words, and the parts."""
    words, parts = line.split(), draw.sample(PARTS, draw.randint(1, 3))
    for part in parts:
        words.insert(draw.randint(0, len(words)), part)
    return " ".join(words), parts


def without_parts(text: str, parts: list[str]) -> str:
    """A translation without the parts."""
    for part in parts:
        text = text.replace(part, " ", 1)
    return re.sub(r"\s+([.,;:!?])", r"\1", " ".join(text.split()))


def is_kept(text: str, part: str, plain: str) -> tuple[bool, bool]:
    """Whether a part is lost, and whether there are several."""
    count = text.count(part) - plain.count(part)
    return count < 1, count > 1


def main(arguments: list[str] | None = None) -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("source")
    parser.add_argument("reference")
    parser.add_argument("--runtime", default="onnx_int8")
    parser.add_argument("--lines", type=int, default=2000)
    parser.add_argument("--show", type=int, default=5, help="number of translations to print")
    options = parser.parse_args(arguments)
    source, reference = (read_lines(path)[: options.lines] for path in (options.source, options.reference))
    draw = random.Random(1)
    changed, parts = zip(*(with_parts(line, draw) for line in source), strict=True)
    translator = load_translator(options.directory, options.runtime, parallel_batches=None)
    plain, seconds = _timed(lambda: [one.text for one in translator.translate(source)])
    found, seconds_with_parts = _timed(lambda: [one.text for one in translator.translate(changed)])
    lost = doubled = 0
    for line, others, clean in zip(found, parts, plain, strict=True):
        for part in others:
            is_lost, is_doubled = is_kept(line, part, clean)
            lost, doubled = lost + is_lost, doubled + is_doubled
    rest = [without_parts(line, others) for line, others in zip(found, parts, strict=True)]
    print(f"| sentences | parts | lost | doubled | BLEU without parts | BLEU of the rest | same rest |\n|{'---|' * 7}")
    scores = [sacrebleu.corpus_bleu(lines, [reference]).score for lines in (plain, rest)]
    same = sum(one == " ".join(other.split()) for one, other in zip(rest, plain, strict=True))
    print(
        f"| {len(source)} | {sum(map(len, parts))} | {lost} | {doubled} | {scores[0]:.2f} | {scores[1]:.2f} | {same} |"
    )
    if protection := getattr(translator, "protection", None):
        checks = min(_timed(lambda: ProtectedText(source, protection))[1] for _ in range(5))
        print(
            f"check: {checks / len(source) * 1e6:.1f} microseconds per line, {checks / seconds:.2%} of the translation"
        )
    print(f"seconds: {seconds:.1f} without parts, {seconds_with_parts:.1f} with parts")
    for line, translation in [*zip(changed, found, strict=True)][: options.show]:
        print(f"{line}\n  {translation}")


def _timed(function):
    begin = time.perf_counter()
    return function(), time.perf_counter() - begin


if __name__ == "__main__":
    main()
