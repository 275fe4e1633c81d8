"""Sentences of running text: splits text for a model of sentences, and puts the translations together again.

Splitting needs sentencex: install the extra `serve`.
"""

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from keras_transformer.checks import needs
from keras_transformer.text.languages import parse_language
from keras_transformer.text.translatable import TextPart, kept_parts, split_markers, writes_ordinals

#: A text that ends in an ordinal number. sentencex ends a sentence there.
_ORDINAL = re.compile(r"(?:.*\s)?(?:\d{1,2}|[IVX]{2,})\.\s*", re.DOTALL)
#: A part of a line up to a tab, as in a table.
_CELLS = re.compile(r"[^\t]+|\t+")
#: The places to cut a long sentence, the best kind first. A cut is at the end of a match.
_CUTS = (re.compile(r"[;:。；：…—]\s*"), re.compile(r"[,，、،)\]]\s*"), re.compile(r"\s+"), re.compile(r"\S"))


class SplitText(NamedTuple):
    """A text, split into sentences.

    Attributes:
        pieces: the parts of the text, in order.
        warnings: one message for each sentence that was cut.
    """

    pieces: tuple[TextPart, ...]
    warnings: tuple[str, ...] = ()

    @property
    def sentences(self) -> list[str]:
        """The sentences to translate."""
        return [piece.text for piece in self.pieces if piece.is_sentence]

    def join(self, translations: Iterable[str]) -> str:
        """Replaces the sentences with their translations.

        Args:
            translations: one text for each of `sentences`.

        Returns:
            The text. White space is that of the original. Translated sentences that had no white space between them,
            as in Chinese, are separated by a space if they end in Latin punctuation.
        """
        remaining = iter(translations)
        result, follows_sentence = "", False
        for piece in self.pieces:
            text = next(remaining) if piece.is_sentence else piece.text
            if follows_sentence and piece.is_sentence and result[-1:] in (".", "!", "?") and text[:1].isalnum():
                result += " "
            result += text
            follows_sentence = piece.is_sentence
        return result


class SentenceSplitter:
    r"""Splits text into sentences with the rules of sentencex, and cuts sentences that are too long for a model.

    The end of a line, a tab and the bar of a table are also the end of a sentence. White space, list markers and parts
    without a letter or digit are not translated; see `keras_transformer.text.translatable.split_markers`.

    Args:
        language: code of the language, such as `"en"`. Languages without rules of their own use those of English.
        count_tokens: returns the number of subwords of each sentence, not counting the end token. Default: no sentence
            is cut.
        max_tokens: maximum number of subwords per sentence. Longer sentences are cut at the end of a clause, or else
            between words.
        splits_lines: whether to split lines into sentences. Otherwise each line is one sentence.

    Raises:
        ValueError: if sentencex is not installed.

    Example:

    >>> splitter = SentenceSplitter("en")
    >>> text = splitter.split("Dr. Smith is here. Come in!\n\n- Now")
    >>> text.sentences
    ['Dr. Smith is here.', 'Come in!', 'Now']
    >>> text.join(["A.", "B!", "C"])
    'A. B!\n\n- C'
    """

    def __init__(
        self,
        language: str | None = None,
        count_tokens: Callable[[Sequence[str]], Sequence[int]] | None = None,
        max_tokens: int | None = None,
        splits_lines: bool = True,
    ):
        with needs("serve"):
            from sentencex import segment
        self._segment = segment
        self._marker_language, self._writes_ordinals = language, bool(language) and writes_ordinals(language)
        self._language = parse_language(language or "en").base
        self._count_tokens = count_tokens or (lambda sentences: [0] * len(sentences))
        self._max_tokens = sys.maxsize if max_tokens is None else max_tokens
        self._splits_lines = splits_lines

    def split(self, text: str) -> SplitText:
        """Splits a text.

        Args:
            text: any text.

        Returns:
            `SplitText`, whose pieces make up the text.
        """
        lines = [part for line in text.splitlines(keepends=True) for part in _CELLS.findall(line)]
        pieces = [piece for line in lines for piece in self._split_line(line)]
        return self._cut_long(pieces)

    def _split_line(self, line):
        for piece in split_markers(line, self._marker_language):
            if piece.is_sentence:
                yield from self._split_sentences(piece.text)
            else:
                yield piece

    def _split_sentences(self, text):
        for part in self._segments(text):
            sentence = part.strip()
            if not any(map(str.isalnum, sentence)):
                yield TextPart(part, False)
                continue
            begin = part.index(sentence)
            for piece in (part[:begin], sentence, part[begin + len(sentence) :]):
                if piece:
                    yield TextPart(piece, piece == sentence)

    def _segments(self, line) -> list[str]:
        """The segments of sentencex. It gets plain spaces only, because it panics on others in some places.

        No sentence ends inside a part that is not translated, such as a URL.
        """
        if not self._splits_lines:
            return [line]
        plain = "".join(" " if character.isspace() else character for character in line)
        for begin, end in kept_parts(line):
            plain = plain[:begin] + "x" * (end - begin) + plain[end:]
        try:
            ends = [len(segment) for segment in self._segment(self._language, plain)]
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # Of a Rust extension. It has no public class.
                raise
            return [line]
        begin, segments = 0, [""]
        for length in ends:
            if self._writes_ordinals and _ORDINAL.fullmatch(segments[-1]):  # As in "2. Weltkrieg".
                segments[-1] += line[begin : begin + length]
            else:
                segments.append(line[begin : begin + length])
            begin += length
        return segments[1:]

    def _cut_long(self, pieces):
        lengths = iter(self._count_tokens([piece.text for piece in pieces if piece.is_sentence]))
        result, warnings = [], []
        for piece in pieces:
            length = next(lengths) if piece.is_sentence else 0
            if length > self._max_tokens:
                parts = [*self._cut(piece.text)]
                count = sum(part.is_sentence for part in parts)
                warnings.append(
                    f"a sentence has {length} subwords, more than {self._max_tokens}, and is translated in {count} "
                    f"parts: {piece.text[:60]}…"
                )
                result += parts
            else:
                result.append(piece)
        return SplitText(tuple(result), tuple(warnings))

    def _cut(self, sentence):
        """Cuts a long sentence in two near its middle, until each part is short enough."""
        if self._count_tokens([sentence])[0] <= self._max_tokens or len(sentence) < 2:
            yield TextPart(sentence, True)
            return
        cut = _middle_cut(sentence)
        left, right = sentence[:cut].rstrip(), sentence[cut:].lstrip()
        space = sentence[len(left) : len(sentence) - len(right)]
        yield from self._cut(left)
        if space:
            yield TextPart(space, False)
        yield from self._cut(right)


def _middle_cut(sentence: str) -> int:
    """The best place to cut a sentence: the best kind of place in its middle half, as near to the middle as possible.

    Example:

    >>> text = "one two three, four five six seven"
    >>> text[_middle_cut(text):]
    'four five six seven'
    """
    length = len(sentence)
    for kind in _CUTS:
        places = [match.end() for match in kind.finditer(sentence) if length / 4 <= match.end() <= 3 * length / 4]
        if places:
            return min(places, key=lambda place: abs(place - length / 2))
    return length // 2
