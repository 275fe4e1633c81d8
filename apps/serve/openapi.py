"""Descriptions of the endpoints for the OpenAPI page. The endpoints read their parameters themselves."""

from typing import Any


def _object(**properties):
    return {"type": "object", "properties": properties}


def _array(items):
    return {"type": "array", "items": items}


def _text(description):
    return {"type": "string", "description": description}


_TEXT = {"type": "string"}
_TEXTS = {"oneOf": [_TEXT, _array(_TEXT)]}
_Q = {**_TEXTS, "description": "Text, or a list of texts."}
_KEY = _text("API key, if the server asks for one.")
_DETECTED = _object(language=_TEXT, confidence={"type": "number", "minimum": 0, "maximum": 100})


def _body(required, **properties):
    schema = {"schema": {**_object(**properties), "required": required}}
    kinds = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data")
    return {"requestBody": {"required": True, "content": dict.fromkeys(kinds, schema)}}


def _response(description, schema):
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _answer(description, schema):
    return {"responses": {"200": _response(description, schema)}}


#: The errors of all endpoints.
ERRORS: dict[int | str, dict[str, Any]] = {
    status: _response(description, _object(error=_TEXT))
    for status, description in (
        (400, "Unknown pair of languages; no API key; malformed, not UTF-8 or too long"),
        (403, "Invalid API key"),
        (429, "Too many requests"),
        (503, "The queue is full. The header Retry-After gives the seconds to wait"),
    )
}
_SOURCE = (
    "Code of the source language, or auto: the language of each text is detected. Text in the target language is "
    "returned as it is."
)
_SCORES = "The score of the translation and those of the alternatives."
TRANSLATE: dict[str, Any] = {
    "summary": "Translate text",
    "openapi_extra": _body(
        ["q", "source", "target"],
        q=_Q,
        source=_text(_SOURCE),
        target=_text("Code of the target language."),
        format={**_TEXT, "enum": ["text", "html"], "default": "text"},
        alternatives={"type": "integer", "default": 0, "description": "Maximum number of other translations."},
        scores={"type": "boolean", "default": False, "description": "Whether to add `scores` to the answer."},
        api_key=_KEY,
    )
    | _answer(
        "The translation. For a list of texts, each value is a list",
        _object(
            translatedText=_TEXTS,
            alternatives=_array(_TEXTS),
            scores={**_array({"type": "number"}), "description": _SCORES},
            detectedLanguage={"oneOf": [_DETECTED, _array(_DETECTED)]},
            warnings={**_array(_TEXT), "description": "Sentences that were cut; texts that were not translated."},
        ),
    ),
}
DETECT: dict[str, Any] = {
    "summary": "Detect the language of a text",
    "openapi_extra": _body(["q"], q=_Q, api_key=_KEY)
    | _answer(
        "The languages, the most likely one first. For a list, those of all its texts together", _array(_DETECTED)
    ),
}
ATTENTION: dict[str, Any] = {
    "summary": "Show to which subwords the model attends when it translates a sentence",
    "openapi_extra": _body(["q", "source", "target"], q=_text("A sentence."), source=_TEXT, target=_TEXT, api_key=_KEY)
    | _answer(
        "The mean weights of all heads and layers: a row for each target subword",
        _object(source=_array(_TEXT), target=_array(_TEXT), weights=_array(_array({"type": "number"}))),
    ),
}
LANGUAGES: dict[str, Any] = {"summary": "List the languages, and to which languages each is translated"}
SETTINGS: dict[str, Any] = {"summary": "Limits and default languages"}
HEALTH: dict[str, Any] = {"summary": "Whether the server is up"}
