"""HTML: splits it into sentences, and carries the inline tags to the words of the translation."""

import html
from collections.abc import Iterable

from keras_transformer.apps.html.blocks import Block, Sentence
from keras_transformer.apps.html.tokens import BLOCKS, read_tokens
from keras_transformer.text.sentences import SentenceSplitter
from keras_transformer.translate.alignment import Alignment


class HtmlText:
    """An HTML text, split into sentences.

    Tags, attributes, comments and white space stay as they are. Each block, such as `<p>`, is split into sentences. The
    tags of inline elements, such as `<b>`, `<a>` and `<img>`, are put around or between the words of the translation
    that correspond to theirs. The content of elements such as `<code>` and `<script>`, and of elements with
    `translate="no"` or the class `notranslate`, is not translated. Tags that are not closed or not opened are kept too.

    Args:
        text: the HTML: a document or a part of one.
        splitter: splits the text of a block into sentences.

    Attributes:
        sentences: the sentences to translate.
        needs_alignment: for each sentence, whether it contains inline tags, so that `join` needs its alignment.
        warnings: one message for each sentence that was cut.

    Example:

    >>> page = HtmlText('<p>A <b>dog</b> runs. <br> It &amp; I play.</p>', SentenceSplitter("en"))
    >>> page.sentences, page.needs_alignment
    (['A dog runs.', 'It & I play.'], [True, False])
    """

    def __init__(self, text: str, splitter: SentenceSplitter):
        self._parts: list[str | Sentence] = []
        self.warnings: list[str] = []
        run, depth_of_pre = [], 0
        for token in read_tokens(text):
            if token.tag not in BLOCKS:
                run.append(token)
                continue
            self._add_run(run, splitter, depth_of_pre > 0)
            self._parts.append(token.raw)
            run = []
            if token.tag == "pre":
                depth_of_pre += {"start": 1, "end": -1}.get(token.kind, 0)
        self._add_run(run, splitter, depth_of_pre > 0)
        sentences = [part for part in self._parts if isinstance(part, Sentence)]
        self.sentences = [sentence.text for sentence in sentences]
        self.needs_alignment = [bool(sentence.elements) for sentence in sentences]

    def join(self, translations: Iterable[str], alignments: Iterable[Alignment | None]) -> str:
        """Replaces the sentences with their translations.

        Args:
            translations: one text for each of `sentences`.
            alignments: the alignment of each sentence with its translation; `None` where `needs_alignment` is false.

        Returns:
            The HTML.
        """
        found = zip(translations, alignments, strict=True)
        return "".join(part.translated(*next(found)) if isinstance(part, Sentence) else part for part in self._parts)

    def _add_run(self, run, splitter, is_preformatted):
        parts, warnings = Block(run).split(splitter, is_preformatted)
        self._parts += parts
        self.warnings += warnings


def plain_text(text: str) -> str:
    r"""The text of HTML that is translated, without tags and entities, one block on each line.

    Example:

    >>> plain_text("<p>Gr&uuml;&szlig;e <b>a</b>us</p><script>let the = 1</script><p>Bonn</p>")
    'Gr\xfc\xdfe aus\nBonn'
    """
    parts = []
    for token in read_tokens(text):
        if token.kind == "text":
            parts.append(html.unescape(token.raw))
        elif token.tag in BLOCKS or token.kind == "kept":
            parts.append("\n")
    return "\n".join(line.strip() for line in "".join(parts).splitlines() if line.strip())
