"""Descriptions of the endpoints for the OpenAPI page. The endpoints read their parameters themselves."""

from typing import Any

_TEXT = {"type": "string"}
_Q = {"oneOf": [_TEXT, {"type": "array", "items": _TEXT}], "description": "Text, or a list of texts."}
_KEY = {**_TEXT, "description": "API key, if the server asks for one."}
_DETECTED = {
    "type": "object",
    "properties": {"language": _TEXT, "confidence": {"type": "number", "minimum": 0, "maximum": 100}},
}
_TEXTS = {"oneOf": [_TEXT, {"type": "array", "items": _TEXT}]}


def _body(properties, required):
    schema = {"schema": {"type": "object", "properties": properties, "required": required}}
    kinds = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data")
    return {"requestBody": {"required": True, "content": dict.fromkeys(kinds, schema)}}


def _answer(description, schema):
    return {"responses": {"200": {"description": description, "content": {"application/json": {"schema": schema}}}}}


def _reason(description):
    schema = {"type": "object", "properties": {"error": _TEXT}}
    return {"description": description, "content": {"application/json": {"schema": schema}}}


#: The errors of all endpoints.
ERRORS: dict[int | str, dict[str, Any]] = {
    400: _reason("Unknown pair of languages; no API key; malformed, not UTF-8 or too long"),
    403: _reason("Invalid API key"),
    429: _reason("Too many requests"),
    503: _reason("The queue is full. The header Retry-After gives the seconds to wait"),
}
TRANSLATE: dict[str, Any] = {
    "summary": "Translate text",
    "openapi_extra": _body(
        {
            "q": _Q,
            "source": {
                **_TEXT,
                "description": "Code of the source language, or auto: the language of each text is detected. Text in "
                "the target language is returned as it is.",
            },
            "target": {**_TEXT, "description": "Code of the target language."},
            "format": {**_TEXT, "enum": ["text", "html"], "default": "text"},
            "alternatives": {"type": "integer", "default": 0, "description": "Maximum number of other translations."},
            "scores": {"type": "boolean", "default": False, "description": "Whether to add `scores` to the answer."},
            "api_key": _KEY,
        },
        ["q", "source", "target"],
    )
    | _answer(
        "The translation. For a list of texts, each value is a list",
        {
            "type": "object",
            "properties": {
                "translatedText": _TEXTS,
                "alternatives": {"type": "array", "items": _TEXTS},
                "scores": {
                    "type": "array",
                    "items": {"type": "number"},
                    "description": "The score of the translation and those of the alternatives.",
                },
                "detectedLanguage": {"oneOf": [_DETECTED, {"type": "array", "items": _DETECTED}]},
                "warnings": {
                    "type": "array",
                    "items": _TEXT,
                    "description": "Sentences that were cut; texts that were not translated.",
                },
            },
        },
    ),
}
DETECT: dict[str, Any] = {
    "summary": "Detect the language of a text",
    "openapi_extra": _body({"q": _Q, "api_key": _KEY}, ["q"])
    | _answer(
        "The languages, the most likely one first. For a list, those of all its texts together",
        {"type": "array", "items": _DETECTED},
    ),
}
ATTENTION: dict[str, Any] = {
    "summary": "Show to which subwords the model attends when it translates a sentence",
    "openapi_extra": _body(
        {"q": {**_TEXT, "description": "A sentence."}, "source": _TEXT, "target": _TEXT, "api_key": _KEY},
        ["q", "source", "target"],
    )
    | _answer(
        "The mean weights of all heads and layers: a row for each target subword",
        {
            "type": "object",
            "properties": {
                **dict.fromkeys(("source", "target"), {"type": "array", "items": _TEXT}),
                "weights": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
            },
        },
    ),
}
LANGUAGES: dict[str, Any] = {"summary": "List the languages, and to which languages each is translated"}
SETTINGS: dict[str, Any] = {"summary": "Limits and default languages"}
HEALTH: dict[str, Any] = {"summary": "Whether the server is up"}
