"""The parameters of a request: from its query, its form or its JSON body."""

import asyncio
import json
import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from fastapi import Request
from starlette.exceptions import HTTPException

#: Characters of a parameter that is not the text to translate.
_LONGEST_CODE = 100
#: Seconds in which a request must arrive.
_SECONDS = 60
#: Fields of a query or a form. More would occupy the event loop for seconds.
_MAX_FIELDS = 10_000


async def read_parameters(request: Request, max_bytes: int) -> dict[str, Any]:
    """Reads the parameters of a request. Those of the body have precedence.

    Args:
        request: the request.
        max_bytes: maximum size of the body.

    Returns:
        Name -> value. A repeated parameter of a query or a form is a list.

    Raises:
        HTTPException: with status 400, if the body is too long, is not UTF-8, or is not a JSON object.
    """
    try:
        async with asyncio.timeout(_SECONDS):
            body = await _read_body(request, max_bytes)
    except TimeoutError as error:
        raise HTTPException(408, f"The request was not complete after {_SECONDS} seconds") from error
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        query = _values(_parse_query(request.url.query))
        if kind == "multipart/form-data":
            body.decode("utf-8")  # Starlette would read other bytes as Latin-1.
            return query | _values((await request.form()).multi_items())
        if kind == "application/json" or kind.endswith("+json"):
            return query | _object(body)
        return query | _values(_parse_query(body.decode("utf-8")))
    except UnicodeDecodeError as error:
        raise HTTPException(400, f"Invalid request: it is not UTF-8 ({error.reason})") from error


def text_parameter(parameters: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """A parameter that is a text. Raises an `HTTPException` if it is not, or is missing without a default."""
    value = parameters.get(name) or default
    if value is None:
        raise HTTPException(400, f"Invalid request: missing {name} parameter")
    if not isinstance(value, str):
        raise HTTPException(400, f"Invalid request: {name} parameter is not a text")
    if len(value) > _LONGEST_CODE:
        raise HTTPException(400, f"Invalid request: {name} parameter is too long")
    return value


def check_key(given: Any, expected: str | None) -> None:
    """Raises an `HTTPException` if the server has a key and the request has none (status 400) or another one (403)."""
    if expected is None:
        return
    if not given:
        raise HTTPException(400, "Please contact the server operator to get an API key")
    key = given if isinstance(given, str) else ""
    if not secrets.compare_digest(key.encode("utf-8", "replace"), expected.encode()):
        raise HTTPException(403, "Invalid API key")


def integer_parameter(parameters: Mapping[str, Any], name: str, largest: int) -> int:
    """A parameter that is an integer, at most `largest`. Default: 0, and so is a negative number."""
    value = parameters.get(name) or 0
    try:
        number = max(int(value), 0)
    except (TypeError, ValueError, OverflowError) as error:
        raise HTTPException(400, f"Invalid request: {name} parameter is not a number") from error
    if number > largest:
        raise HTTPException(400, f"Invalid request: {name} parameter must be <= {largest}")
    return number


async def _read_body(request, limit) -> bytes:
    """Reads the body, but not more than `limit` bytes."""
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise HTTPException(400, f"Invalid request: it has more than {limit} bytes")
        chunks.append(chunk)
    body = b"".join(chunks)
    request._body = body  # There is no public way to give `request.form()` a body that was read in parts.
    return body


def _parse_query(text):
    if text.count("&") >= _MAX_FIELDS:
        raise HTTPException(400, f"Invalid request: it has more than {_MAX_FIELDS} fields")
    return parse_qsl(text, keep_blank_values=True, encoding="utf-8", errors="strict")


def _values(items) -> dict[str, Any]:
    found: dict[str, list] = {}
    for name, value in items:
        found.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


def _object(body: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(body.decode("utf-8"))
    except UnicodeDecodeError:
        raise
    except ValueError as error:  # Not only `JSONDecodeError`: an integer may have too many digits.
        raise HTTPException(400, f"Invalid request: it is not JSON ({error})") from error
    except RecursionError as error:
        raise HTTPException(400, "Invalid request: it is nested too deeply") from error
    if not isinstance(parsed, dict):
        raise HTTPException(400, "Invalid JSON format")
    return parsed
