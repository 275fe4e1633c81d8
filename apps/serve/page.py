"""The page of the server, for people. It is made with Gradio."""

import asyncio
import html
import time
from collections.abc import AsyncIterator, Sequence

import gradio
from fastapi import FastAPI

from keras_transformer.apps.serve.batcher import QueueFull
from keras_transformer.apps.serve.config import ServeConfig
from keras_transformer.apps.serve.languages import Languages, name_of
from keras_transformer.apps.serve.pairs import LanguagePair
from keras_transformer.apps.serve.parameters import is_valid_key
from keras_transformer.plotting import attention_figure
from keras_transformer.storage.model_directory import ModelDirectoryError
from keras_transformer.translate.translator import TokenTranslator, Translation

#: Sentences whose other translations are shown.
_MAX_LISTED = 10
#: Subwords of a sentence, above which its attention is not drawn: the labels would be too small.
_MAX_DRAWN = 40
#: Seconds between two states of a translation that grows.
_SECONDS_BETWEEN = 0.2
#: Width in pixels below which the two texts are one below the other.
_MIN_WIDTH = 280
_CSS = """
.gradio-container {max-width: 60rem !important; margin: 0 auto !important}
#status p {opacity: 0.75}
#others {width: 100%; border-collapse: collapse}
#others th, #others td {padding: 0.3rem 0.6rem 0.3rem 0; text-align: left; vertical-align: top}
"""


def make_page(languages: Languages, config: ServeConfig) -> FastAPI:
    """Makes the page, as an application to mount at `/`.

    It uses no files of other hosts.

    Args:
        languages: the pairs of languages.
        config: the options.
    """
    choices = {f"{name_of(pair.source)} → {name_of(pair.target)}": pair for pair in languages.pairs.values()}
    page = _Page(choices, config)
    app = FastAPI()
    theme = gradio.themes.Default(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"])
    return gradio.mount_gradio_app(
        app, page.blocks(), path="/", theme=theme, css=_CSS, footer_links=[], run_history=False, ssr_mode=False
    )


class _Page:
    def __init__(self, choices: dict[str, LanguagePair], config: ServeConfig):
        self._choices, self._config = choices, config

    def blocks(self) -> gradio.Blocks:
        """The widgets and their events."""
        names = [*self._choices]
        with gradio.Blocks(title="Translation", analytics_enabled=False) as blocks:
            pair = gradio.Dropdown(names, value=names[0], label="Languages", visible=len(names) > 1)
            key = gradio.Textbox(label="API key", type="password", visible=self._config.api_key is not None)
            title = names[0].split(" → ")
            with gradio.Row():
                options = {"lines": 6, "min_width": _MIN_WIDTH}
                source = gradio.Textbox(label=title[0], autofocus=True, placeholder="Text to translate", **options)
                target = gradio.Textbox(label=title[1], buttons=["copy"], interactive=False, **options)
            button = gradio.Button("Translate", variant="primary")
            status = gradio.Markdown(elem_id="status")
            with gradio.Accordion("Other translations", open=False):
                others = gradio.HTML()
            with gradio.Accordion("Attention", open=False):
                attention = gradio.Plot(show_label=False)
                gradio.Markdown(
                    "Which words of the first sentence the model attends to (columns) when it writes each word of the "
                    "translation (rows)."
                )
            pair.change(self._labels, pair, [source, target], api_visibility="private")
            event = {
                "fn": self._translate,
                "inputs": [source, pair, key],
                "outputs": [target, status, others, attention],
                "concurrency_limit": None,
                "api_visibility": "private",
            }
            gradio.on([button.click, source.submit], **event)
        return blocks

    def _labels(self, name):
        return [gradio.update(label=label) for label in name.split(" → ")]

    async def _translate(self, text: str, name: str, key: str) -> AsyncIterator[tuple]:
        """Yields the translation as it grows, and what is known about it: status, hypotheses and attention."""
        if problem := self._problem(text, key):
            yield "", problem, None, None
            return
        pair = self._choices[name]
        started = shown = time.perf_counter()
        split = pair.split(text)
        count = len(split.sentences)
        found: list[Translation] = []
        try:
            async for translation in _in_order(pair, split.sentences):
                found.append(translation)
                if time.perf_counter() - shown > _SECONDS_BETWEEN:
                    shown = time.perf_counter()
                    so_far = [one.text for one in found] + [""] * (count - len(found))
                    yield split.join(so_far), f"{len(found)} of {count} sentences …", gradio.skip(), gradio.skip()
        except Exception as error:
            reason = "The server is busy. Try again in a moment." if isinstance(error, QueueFull) else str(error)
            yield "", f"**The text was not translated.** {reason}", None, None
            return
        seconds = time.perf_counter() - started
        status = f"{count} sentence{'' if count == 1 else 's'} in {seconds:.2f} s with {pair.runtime}."
        status = "\n\n".join([status, *(f"Note: {warning}" for warning in split.warnings)])
        picture = await asyncio.to_thread(_picture, pair, split.sentences, found)
        yield split.join(one.text for one in found), status, _table(found), picture

    def _problem(self, text, key) -> str | None:
        """Why a text is not translated, in words."""
        if not is_valid_key(key, self._config.api_key):
            return "**This server needs an API key.** The one above is not valid."
        if len(text) > self._config.max_characters:
            return (
                f"**The text is too long.** It has {len(text):,} characters. "
                f"At most {self._config.max_characters:,} are translated at a time."
            )
        return None if text.strip() else "Enter a text to translate."


async def _in_order(pair: LanguagePair, sentences: Sequence[str]) -> AsyncIterator[Translation]:
    """Yields the translation of each sentence as soon as it and those before it are translated."""
    tasks = [asyncio.ensure_future(pair.batcher.translate([one], pair.translator.max_n_best)) for one in sentences]
    try:
        for task in tasks:
            yield (await task)[0]
    finally:
        for task in tasks:
            task.cancel()


def _table(found: Sequence[Translation]) -> str:
    """The hypotheses of each sentence as HTML."""
    rows = "".join(
        f"<tr><td>{number}</td><td>{one.score:.3f}</td><td>{html.escape(one.text)}</td></tr>"
        for number, translation in enumerate(found[:_MAX_LISTED], 1)
        for one in translation.hypotheses
    )
    return f"<table id=others><tr><th>Sentence</th><th>Score</th><th>Translation</th></tr>{rows}</table>"


def _picture(pair: LanguagePair, sentences: Sequence[str], found: Sequence[Translation]):
    """The attention of the first sentence, or `None`."""
    if not found or not isinstance(pair.translator, TokenTranslator):
        return None
    try:
        weights, source, target = pair.translator.attention(sentences[0], found[0])
    except ModelDirectoryError:  # An ONNX export without `alignment.onnx`.
        return None
    return None if max(weights.shape) > _MAX_DRAWN else attention_figure(weights[None], source, target)
