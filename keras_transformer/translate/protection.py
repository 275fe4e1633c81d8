"""Decides which parts of a line a model does not translate."""

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence

from keras_transformer.storage.source_text import SourceText
from keras_transformer.text.translatable import TextPart, is_translatable, kept_parts, split_markers
from keras_transformer.translate.alignment import Alignment, Span
from keras_transformer.translate.protected_sentence import KeptText, ProtectedSentence
from keras_transformer.translate.translation import Translation

#: Characters that belong to the emoji before them: variation selectors, the keycap, skin tones and tags.
_MODIFIERS = re.compile("[\ufe00-\ufe0f\u20e3\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]")
#: A symbol of a target language in text for Marian models that older versions imported. Its signs may be unknown.
_LANGUAGE_CODE = re.compile(r">>[^\s<>]+<<")
_ZERO_WIDTH_JOINER = "\u200d"
#: Letters of scripts without spaces between words. A word cannot be found there.
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)


class Protection:
    """Keeps what is no language out of the sentences that a model gets, and puts it into the translations.

    Args:
        protect: `"auto"`, `"off"`, or a regular expression for parts that are kept like those of `"auto"`.
        source_text: what is known of the text that the model was trained on.
        spelled: returns the characters of the subwords of a character; `None` if the tokenizer lacks it. Default:
            the tokenizer is unknown.

    Raises:
        ValueError: if `protect` is not a valid regular expression.
    """

    def __init__(
        self,
        protect: str = "auto",
        source_text: SourceText | None = None,
        spelled: Callable[[str], str | None] | None = None,
    ):
        self._pattern = None if protect in ("auto", "off") else _compiled(protect)
        self.is_on = protect != "off"
        self._source_text = source_text or SourceText()
        self._spelled = spelled
        self._signs = None if self._source_text.signs is None else frozenset(self._source_text.signs)
        #: The characters that have been found to be known.
        self._known: set[str] = set()

    def split(self, line: str) -> "ProtectedLine | None":
        """Finds the parts of a line that are not translated.

        Args:
            line: the line.

        Returns:
            The parts, or `None` if the model gets the line as it is.
        """
        if not self.is_on or not line.strip():
            return None
        pieces = [*split_markers(line, self._source_text.language)]
        if not pieces[0].text.strip() and len(pieces) == 2:
            pieces = [TextPart(line, True)]  # White space is no marker.
        is_one_sentence = len(pieces) == 1 and pieces[0].is_sentence
        if is_one_sentence and self._is_translatable(line) and not any(True for _ in self._parts(line)):
            return None
        return ProtectedLine([self._protected(piece.text) if piece.is_sentence else piece.text for piece in pieces])

    def _is_translatable(self, sentence):
        return self._source_text.has_untranslatable_lines or not sentence.strip() or is_translatable(sentence)

    def _protected(self, sentence):
        if not self._is_translatable(sentence):
            return sentence
        return ProtectedSentence(sentence, self._parts(sentence))

    def _parts(self, sentence) -> Iterator[Span]:
        yield from kept_parts(sentence)
        if self._pattern:
            yield from (match.span() for match in self._pattern.finditer(sentence) if match[0].strip())
        if not self._known.issuperset(sentence) and (unknown := set(filter(self._is_unknown, set(sentence)))):
            codes = [code.span() for code in _LANGUAGE_CODE.finditer(sentence)]
            for span in _clusters(sentence):
                if any(begin <= span[0] < end for begin, end in codes):
                    continue
                cluster = sentence[slice(*span)]
                # A character may be known together with the next ones only, which are normalized together.
                if not unknown.isdisjoint(cluster) and self._is_unknown(cluster):
                    yield span

    def _is_unknown(self, text) -> bool:
        """Whether the training text never had one of the characters of a text."""
        if text in self._known:
            return False
        spelling = self._spelled(text) if self._spelled else text
        is_known = text.isspace() or (spelling is not None and all(map(self._is_in_text, spelling)))
        if is_known and len(text) == 1:
            self._known.add(text)
        return not is_known

    def _is_in_text(self, character):
        return self._signs is None or character.isalnum() or character.isspace() or character in self._signs


class ProtectedLine:
    """A line of which the model gets only a part.

    Args:
        pieces: sentences, and the texts between them, which are kept.

    Attributes:
        sentences: the sentences that the model translates.
    """

    def __init__(self, pieces: Sequence[str | ProtectedSentence]):
        self._pieces = pieces
        self.sentences = [piece for piece in pieces if isinstance(piece, ProtectedSentence) and piece.text]

    def joined(self, translations: Sequence[Translation], alignments: Sequence[Alignment | None]) -> Translation:
        """Puts one hypothesis of the line together.

        Args:
            translations: one hypothesis for each of `sentences`.
            alignments: their alignments, `None` where they are not needed.

        Returns:
            The hypothesis. Its score is the sum over the sentences. It has the tokens of a single sentence.
        """
        found = zip(translations, alignments, strict=True)
        result, place = KeptText(), 0
        for piece in self._pieces:
            if isinstance(piece, str):
                result.keep(piece, place)
                place += len(piece)
            else:
                translation, alignment = next(found) if piece.text else (None, None)
                result.add(piece.joined(translation.text if translation else "", alignment), place)
                place += piece.length
        score, kept = sum((one.score for one in translations), 0.0), tuple(result.kept)
        if len(translations) != 1:
            return Translation(result.text, score, kept=kept)
        return Translation(result.text, score, translations[0].tokens, kept=kept, written=translations[0].text)


def _compiled(protect: str) -> re.Pattern:
    try:
        return re.compile(protect)
    except re.error as error:
        raise ValueError(
            f'`protect` must be "auto", "off" or a regular expression. Received: protect={protect!r} ({error})'
        ) from error


def _clusters(sentence: str) -> Iterator[Span]:
    """The words of a sentence, and its signs, such as emoji, with all their characters.

    Example:

    >>> [*_clusters("It's 5 €.")]
    [(0, 4), (5, 6), (7, 8), (8, 9)]
    """
    begin = 0
    while begin < len(sentence):
        end = begin + 1
        while end < len(sentence) and _belongs(sentence, begin, end):
            end += 1
        if not sentence[begin].isspace():
            yield begin, end
        begin = end


def _belongs(sentence, begin, i) -> bool:
    """Whether the character i belongs to the word or sign that starts at `begin`."""
    character = sentence[i]
    if unicodedata.category(character)[0] == "M" or character == _ZERO_WIDTH_JOINER or _MODIFIERS.match(character):
        return True
    if not sentence[begin].isalnum():
        return sentence[i - 1] == _ZERO_WIDTH_JOINER
    if _UNSPACED.match(sentence[begin]) or _UNSPACED.match(character):
        return False
    return character.isalnum() or (character in "'’" and sentence[i + 1 : i + 2].isalnum())
