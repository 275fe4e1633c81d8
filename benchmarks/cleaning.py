"""What the filters of `prepare --clean` find in a spoiled corpus: `python -m benchmarks.cleaning --help`.

The corpus is clean text, and as many spoiled copies of its pairs. The first table has the share of each kind of pairs
that is removed. Which of several duplicates is removed depends on their order, so a clean pair is lost only if none of
its duplicates is kept. The second table has the precision of each filter (the share of its removed pairs that are
spoiled) and its recall (the share of the spoiled pairs that it removes before the later filters see them).

Then the same tables follow for clean pairs with a number, price, date, time or address at the end of both sides, in the
notation of English and German. In half of the pairs, the target has another one, or no address.
"""

import argparse
import calendar
import collections
import random
import time
from collections.abc import Sequence
from pathlib import Path

Pair = tuple[str, str]


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cleaning", description=__doc__)
    parser.add_argument("--source", required=True, help="clean source text, one sentence per line, plain or .gz")
    parser.add_argument("--target", required=True, help="clean target text")
    parser.add_argument("--languages", default="en-de", help="source and target language")
    parser.add_argument("--lingua", action="store_true", help="also use the filter by language")
    parser.add_argument("--model", help="model directory for the filter by score")
    parser.add_argument("--reverse_model", help="model directory of the opposite direction")
    parser.add_argument("--min_score", type=float, help="pairs with a lower score are removed")
    parser.add_argument("--validation_source", help="source text of the pairs that give the default of --min_score")
    parser.add_argument("--validation_target", help="its translation")
    parser.add_argument("--write", help="folder for the spoiled text: source.txt, target.txt and kinds.txt")
    options = parser.parse_args()
    if not options.model and (options.reverse_model or options.min_score is not None or options.validation_source):
        parser.error("--reverse_model, --min_score and --validation_source require --model")
    if bool(options.validation_source) != bool(options.validation_target):
        parser.error("--validation_source and --validation_target must be given together")
    if options.model and options.min_score is None and not options.validation_source:
        parser.error("--model requires --min_score, or --validation_source and --validation_target")

    from keras_transformer.training.datasets import read_pairs

    text = list(read_pairs(options.source, options.target))
    pairs, kinds, origins = spoiled(text)
    if options.write:
        write(Path(options.write), pairs, kinds)
    validation = []
    if options.validation_source:
        validation = list(read_pairs(options.validation_source, options.validation_target))
    scoring = {name: getattr(options, name) for name in ("model", "reverse_model", "min_score")}
    codes = tuple(options.languages.split("-"))
    reasons, seconds = clean(pairs, codes, validation, languages=options.lingua, **scoring)
    print(f"{len(pairs):,} pairs in {seconds:.1f} s: {len(pairs) / seconds:,.0f} pairs/s")
    show(kinds, origins, reasons)
    pairs, kinds = numbered(text)
    show(kinds, range(len(pairs)), clean(pairs, codes)[0])


def spoiled(pairs: Sequence[Pair], seed: int = 1) -> tuple[list[Pair], list[str], list[int]]:
    """Adds as many spoiled pairs to a corpus, in random order.

    Returns:
        The pairs; the kind of each: `clean`, or how it is spoiled; and the index of the clean pair it comes from.
    """
    draw = random.Random(seed)
    spoilers = {
        "shuffled": lambda pair: (pair[0], draw.choice(pairs)[1]),
        "copy": lambda pair: (pair[0], pair[0]),
        "duplicate": lambda pair: pair,
        "cut": lambda pair: (pair[0], cut(pair[1], draw)),
        "language": lambda pair: (pair[1], pair[0]),
        "markup": lambda pair: markup(pair, draw),
        "mojibake": lambda pair: (pair[0], mojibake(pair[1])),
    }
    result = [(pair, "clean", i) for i, pair in enumerate(pairs)]
    for i, pair in enumerate(pairs):
        kind = [*spoilers][i % len(spoilers)]
        result.append((spoilers[kind](pair), kind, i))
    draw.shuffle(result)
    return tuple(map(list, zip(*result, strict=True)))


def cut(line: str, draw: random.Random) -> str:
    """The first words of a line, at most half of them."""
    words = line.split()
    return " ".join(words[: draw.randint(1, max(len(words) // 2, 1))])


def markup(pair: Pair, draw: random.Random) -> Pair:
    """Tags and attributes around the text of one or both sides."""
    open_tag = draw.choice(['<div class="text">', "<p>", "<li><a href='/index.php?id=7'>", "<br/>"])
    both = draw.random() < 0.5
    return f"{open_tag}{pair[0]}</div>", f"{open_tag}{pair[1]}</div>" if both else pair[1]


def mojibake(line: str) -> str:
    """UTF-8 that was read as cp1252. A line in ASCII is unchanged."""
    return line.encode("utf-8").decode("cp1252", errors="replace")


def numbered(pairs: Sequence[Pair], seed: int = 1) -> tuple[list[Pair], list[str]]:
    """Adds a number, price, date, time or address to both sides of each pair, in every other pair another one.

    Returns:
        The pairs, and the kind of each: `clean`, or what differs.
    """
    draw, result, kinds = random.Random(seed), [], []
    for i, (source, target) in enumerate(pairs):
        additions = notations(draw)
        kind = [*additions][i // 2 % len(additions)]
        english, german, other = additions[kind]
        result.append((f"{source} ({english})", f"{target} ({other if i % 2 else german})"))
        kinds.append(kind if i % 2 else "clean")
    return result, kinds


def notations(draw: random.Random) -> dict[str, tuple[str, str, str]]:
    """English text with random numbers, the same in German, and another one in German, by what differs."""

    def german(number, form=","):
        return f"{number:{form}}".translate(str.maketrans(",.", ".,"))

    number, price, year = draw.randint(13, 2_000_000), draw.randint(101, 999_999) / 100, draw.randint(1801, 2030)
    day, month, hour, minute = draw.randint(1, 28), draw.randint(1, 12), draw.randint(13, 22), draw.randint(0, 5) * 10
    date = f"{day} {calendar.month_name[month]} {year}", f"{day:02}.{month:02}.{year}", f"{day + 1}.{month}.{year}"
    time_of_day = f"{hour - 12}:{minute:02} p.m.", f"{hour}:{minute:02} Uhr" if minute else f"{hour} Uhr"
    address = f"see http://www.site{number}.org/", f"siehe www.site{number}.org"
    return {
        "number": (f"{number:,} times", f"{german(number)} Mal", f"{german(number + 1)} Mal"),
        "decimal point": (f"${price:,.2f}", f"{german(price, ',.2f')} $", f"{german(price * 10, ',.2f')} $"),
        "date": date,
        "time": (*time_of_day, f"{hour + 1}:{minute:02} Uhr"),
        "address": (*address, "siehe oben"),
    }


def clean(pairs, codes, validation=(), **options):
    """The filter that removes each pair, and the duration.

    Args:
        pairs: the pairs.
        codes: source and target language.
        validation: pairs for the default of `min_score`.
        **options: options of `CleaningConfig`.
    """
    from keras_transformer.training.cleaning.clean import Cleaner
    from keras_transformer.training.cleaning.config import CleaningConfig
    from keras_transformer.training.datasets import Pairs

    cleaner = Cleaner(CleaningConfig(**options), codes, validation)
    started = time.perf_counter()
    reasons = [reason for chunk in cleaner.examine(Pairs(lambda: iter(pairs), len(pairs))) for reason in chunk.reasons]
    return reasons, time.perf_counter() - started


def show(kinds, origins, reasons):
    from rich.console import Console
    from rich.table import Table

    rows = list(zip(kinds, origins, reasons, strict=True))
    kept = {origin for kind, origin, reason in rows if not reason and kind in ("clean", "duplicate", "mojibake")}
    table = Table("kind", "pairs", "removed", "by")
    for kind in dict.fromkeys(["clean", *kinds]):
        removed = collections.Counter(reason for k, _, reason in rows if k == kind and reason)
        by = ", ".join(f"{name} {number:,}" for name, number in removed.most_common(4))
        table.add_row(kind, f"{kinds.count(kind):,}", f"{removed.total() / kinds.count(kind):.2%}", by)
    Console().print(table)
    clean_count = kinds.count("clean")
    print(f"clean pairs lost: {1 - len(kept) / clean_count:.2%}")
    table = Table("filter", "removed", "precision", "recall")
    for name, number in collections.Counter(filter(None, reasons)).most_common():
        right = sum(reason == name and (kind != "clean" or origin in kept) for kind, origin, reason in rows)
        spoiled_count = sum(reason == name and kind != "clean" for kind, _, reason in rows)
        recall = spoiled_count / (len(kinds) - clean_count)
        table.add_row(name, f"{number:,}", f"{right / number:.1%}", f"{recall:.1%}")
    Console().print(table)


def write(folder, pairs, kinds):
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in (("source", [s for s, _ in pairs]), ("target", [t for _, t in pairs]), ("kinds", kinds)):
        (folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
