import html
import html.parser
import random
import re

import numpy as np
import pytest

from keras_transformer.apps.html.html_text import HtmlText
from keras_transformer.text.sentences import SentenceSplitter
from keras_transformer.translate.alignment import Alignment

SPLITTER = SentenceSplitter("en")
#: English and German words that correspond, for a translator that also moves the verb to the end.
WORDS = {"a": "ein", "dog": "Hund", "runs": "rennt", "red": "roter", "small": "kleiner", "now": "jetzt", "and": "und"}


def translate_words(sentence):
    """Translates word by word, and moves "runs" to the end. Returns the text and the true alignment."""
    source = [(match[0], match.span()) for match in re.finditer(r"\w+|[^\w\s]", sentence)]
    order = sorted(range(len(source)), key=lambda i: (source[i][0] in ".!?", source[i][0] == "runs"))
    text, target, weights = "", [], np.zeros((len(source), len(source)), "float32")
    for row, i in enumerate(order):
        word = WORDS.get(source[i][0], source[i][0])
        text += " " if text and word.isalnum() else ""
        target.append((len(text), len(text) + len(word)))
        text += word
        weights[row, i] = 1.0
    return text, Alignment([span for _, span in source], target, weights)


def translate(text):
    page = HtmlText(text, SPLITTER)
    found = [translate_words(sentence) for sentence in page.sentences]
    return page.join([text for text, _ in found], [alignment for _, alignment in found])


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("", ""),
        ("a dog runs", "ein Hund rennt"),
        ("<p>a <b>dog</b> runs now.</p>", "<p>ein <b>Hund</b> jetzt rennt.</p>"),
        ("a <b>dog runs now</b>", "ein <b>Hund jetzt rennt</b>"),
        ("<i>a <b>red</b> dog</i> runs.", "<i>ein <b>roter</b> Hund</i> rennt."),
        ("<b>a dog</b>", "<b>ein Hund</b>"),
        ("<b> a </b> dog", " <b>ein</b> Hund"),
        # An element over several sentences.
        ("<b>a dog. a small</b> dog.", "<b>ein Hund. ein kleiner</b> Hund."),
        ("a <b>dog. a</b> dog.", "ein <b>Hund. ein</b> Hund."),
        # Elements without words.
        ("a <img src=1> dog runs now", "ein <img src=1> Hund jetzt rennt"),
        ("a dog<img src=1> runs now", "ein Hund<img src=1> jetzt rennt"),
        ("a <b></b>dog runs", "ein <b></b>Hund rennt"),
        ("dog<sup>1</sup> runs now", "Hund<sup>1</sup> jetzt rennt"),
        ("dog<sup>[<a href=x>1</a>]</sup> runs", "Hund<sup>[<a href=x>1</a>]</sup> rennt"),
        # What is not translated.
        ("a <code>dog; small</code> now", "ein <code>dog; small</code> jetzt"),
        ("<code>foo()</code> now", "<code>foo()</code> jetzt"),
        ("<code>--flag</code> now", "<code>--flag</code> jetzt"),
        ("<code> dog</code> runs", " <code> dog</code> rennt"),
        ("a <code>int</code>s now", "ein <code>int</code>s jetzt"),
        (
            "<span translate=no><a>@<span>bob</span></a></span> and",
            "<span translate=no><a>@<span>bob</span></a></span> und",
        ),
        ("<b>$5</b> dog", "<b>$ 5</b> Hund"),
        ('a <span translate="no">dog</span> runs', 'ein <span translate="no">dog</span> rennt'),
        ("<p class='x notranslate'>a dog</p> a dog", "<p class='x notranslate'>a dog</p> ein Hund"),
        ("<script>a < dog</script><style>a{}</style>a dog", "<script>a < dog</script><style>a{}</style>ein Hund"),
        ("<div translate=no>a <div>dog</div> a</div> dog", "<div translate=no>a <div>dog</div> a</div> Hund"),
        ("a <svg/> dog", "ein <svg/> Hund"),
        ("<ul><li translate=no>a dog<li>a dog</ul>a", "<ul><li translate=no>a dog<li>ein Hund</ul>ein"),
        ("<p translate=no>a<div>a</div>", "<p translate=no>a<div>a</div>"),
        ("<!-- a dog --> a dog <?a dog?>", "<!-- a dog --> ein Hund <?a dog?>"),
        ("<!DOCTYPE html><title>a dog</title>", "<!DOCTYPE html><title>ein Hund</title>"),
        # Blocks, white space and entities.
        ("<ul>\n <li>a dog\n <li>a\n dog</ul>\n", "<ul>\n <li>ein Hund\n <li>ein Hund</ul>\n"),
        ("a dog<br>a dog<br/>a", "ein Hund<br>ein Hund<br/>ein"),
        ("<pre>a dog\n  dog\n</pre>", "<pre>ein Hund\n  Hund\n</pre>"),
        ("a &lt; dog &amp; a&nbsp;", "ein&lt; Hund&amp; ein&nbsp;"),
        ("a dog <3", "ein Hund&lt; 3"),
        # Invalid HTML.
        ("a <b>dog", "ein <b>Hund"),
        ("a <b", "ein&lt; b"),
        ("</b> a dog", "</b> ein Hund"),
        ("a </i> dog", "ein </i> Hund"),
        ("<a href=1><p>a dog</p></a>", "<a href=1><p>ein Hund</p></a>"),
        ("<b>" * 200 + "a dog" + "</b>" * 200, "<b>" * 200 + "ein Hund" + "</b>" * 200),
        ("<b>a <i>red</b> dog</i>", "<b>ein <i>roter</b> Hund</i>"),
    ],
)
def test_each_html_has_its_translation(source, target):
    assert translate(source) == target


@pytest.mark.parametrize("text", ["a <![1]> dog", "a <![foo]> dog", "</> a", "a <a " * 20_000, "a <!--" * 9_000])
def test_invalid_html_is_text(text):
    page = HtmlText(text, SPLITTER)
    assert page.sentences and "<" in html.unescape(page.join(page.sentences, [None] * len(page.sentences)))


def test_an_attribute_with_quotes_and_brackets_stays():
    tag = """<a title='1 > 0 & "x"' HREF=/y?a&b onclick="f('<b>')">"""
    assert translate(f"a {tag}dog</a> runs") == f"ein {tag}Hund</a> rennt"


def test_a_full_stop_is_not_drawn_into_an_element():
    page = HtmlText("a <b>dog</b>.", SPLITTER)
    source, target = [(0, 1), (2, 5), (5, 6)], [(0, 3), (4, 8), (8, 9)]
    weights = np.array([[1, 0, 0], [0, 0.9, 0.1], [0, 0.6, 0.4]], "float32")
    assert page.join(["ein Hund."], [Alignment(source, target, weights)]) == "ein <b>Hund</b>."


@pytest.mark.parametrize("text", ["f()", "x.y", "a=b;", "{user}", "--f"])
@pytest.mark.parametrize("others", [0.0, 0.05])
def test_an_element_that_is_not_translated_takes_no_sign_and_no_other_word(text, others):
    """The full stop attends to it, and so does a word at most as much as to its own."""
    page = HtmlText(f"dog with <code>{text}</code>.", SPLITTER)
    begin = len("dog with ")
    source = [(0, 3), (4, 8), *((i, i + 1) for i in range(begin, begin + len(text) + 1))]
    words = ["Hund", "mit-mit"] if others else ["Hund"]
    translation = " ".join(words) + "."
    target = [match.span() for match in re.finditer(r"[\w-]+|\.", translation)]
    weights = np.full((len(target), len(source)), 0.01, "float32")
    weights[0, 0], weights[-1, 2:] = 1.0, 0.9
    if others:
        weights[1, 1], weights[1, 2:] = 0.5, others
    found = page.join([translation], [Alignment(source, target, weights)])
    assert found == translation[:-1] + f" <code>{text}</code>."


def test_an_element_without_a_counterpart_gets_one_word():
    page = HtmlText("a <b>dog</b> runs.", SPLITTER)
    source, target = [(0, 1), (2, 5), (6, 10), (10, 11)], [(0, 3), (4, 9), (9, 10)]
    weights = np.array([[0.9, 0.2, 0.1, 0], [0.1, 0.3, 0.9, 0], [0, 0.5, 0, 1]], "float32")
    assert page.join(["ein Hirsch."], [Alignment(source, target, weights)]) == "ein <b>Hirsch</b>."


class Tags(html.parser.HTMLParser):
    """The tree of tags, and whether each end tag closes the open element."""

    def __init__(self, text):
        super().__init__()
        self.open, self.found, self.is_nested = [], [], True
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.open.append((tag, dict(attrs).get("id")))
        self.found.append("/".join(f"{name} {number}" for name, number in self.open))

    def handle_endtag(self, tag):
        self.is_nested &= bool(self.open) and self.open.pop()[0] == tag


#: Elements whose content is not translated.
KEPT = ["<code id=1>f(x); y.</code>", "<span translate=no id=2> @x</span>", "<kbd id=3> </kbd>", '<svg id="4"/>']


def text_of(found):
    """The text without tags and white space."""
    return re.sub(r"<[^>]*>|\s", "", html.unescape(found))


def random_html(draw, depth=3):
    """Random HTML: valid, with nested inline elements over words and sentences."""
    parts = []
    for _ in range(draw.randrange(1, 5)):
        kind = draw.random()
        if kind < 0.1:
            parts.append(draw.choice(KEPT))
        elif depth and kind < 0.45:
            tag = draw.choice(["b", "i", "a", "span", "p" if depth == 3 else "em"])
            parts.append(f"<{tag} id={draw.randrange(10**9)}>{random_html(draw, depth - 1)}</{tag}>")
        else:
            parts.append(draw.choice(["a dog", "runs.", " ", "red ", "  now!", "\n", " and ", "&amp;", ". ", "small"]))
    return "".join(parts)


@pytest.mark.parametrize("seed", range(4))
def test_a_translation_that_changes_nothing_gives_the_text(seed):
    draw = random.Random(seed)
    for _ in range(250):
        source = random_html(draw)
        page = HtmlText(source, SPLITTER)
        alignments = []
        for sentence in page.sentences:
            spans = [(i, i + 1) for i in range(len(sentence))]
            alignments.append(Alignment(spans, spans, np.eye(len(sentence), dtype="float32")))
        found = page.join(page.sentences, alignments)
        assert text_of(found) == text_of(source), (source, found)
        assert sorted(Tags(found).found) == sorted(Tags(source).found), (source, found)


@pytest.mark.parametrize("seed", range(4))
def test_no_alignment_breaks_the_tags(seed):
    draw, numbers = random.Random(seed), np.random.default_rng(seed)
    for _ in range(250):
        source = random_html(draw)
        page = HtmlText(source, SPLITTER)
        translations = [
            " ".join(draw.choices([*WORDS.values(), ",", "."], k=draw.randrange(9))) for _ in page.sentences
        ]
        alignments = []
        for sentence, text in zip(page.sentences, translations, strict=True):
            spans = [[match.span() for match in re.finditer(r"\S+", line)] for line in (sentence, text)]
            alignments.append(Alignment(*spans, numbers.random((len(spans[1]), len(spans[0])), "float32")))
        found = page.join(translations, alignments)
        before, after = Tags(source), Tags(found)
        assert before.is_nested and after.is_nested and not after.open, (source, found)
        assert sorted(after.found) == sorted(before.found), (source, found)
