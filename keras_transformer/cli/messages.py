"""Error messages for users: rewrites errors of jsonargparse and the operating system."""

import difflib
import errno
import os
import re
from collections.abc import Collection

from keras_transformer.cli.kinds import describe_kind, with_article

_TYPES = {kind.__name__: with_article(describe_kind(kind)) for kind in (int, float, bool, str, dict)}


def describe_option_error(message: str, options: Collection[str]) -> str:
    r"""Rewrites an error message of jsonargparse.

    Args:
        message: the error message of jsonargparse.
        options: names of the options of the parser, with dashes.

    Returns:
        The rewritten message. Unknown messages are returned unchanged.

    Example:

    >>> describe_option_error('Parser key "epochs":\n  Expected a <class \'int\'>. Got value: x', ["--epochs"])
    '`--epochs` must be an integer. Received: x'
    """
    if found := re.match(r'Parser key "([^"]+)":\s*(.*)', message, re.DOTALL):
        return _describe_value_error(*found.groups(), options)
    if found := re.match(r"(?:Unexpected config|Problems parsing config): *(.*)", message, re.DOTALL):
        return f"The file of `--config` must hold a mapping of options. Received: {found[1]}"
    if found := re.match(r"Key must be a string, got: (.*)\.", message):
        return f"Names of options must be text. Received: {found[1]}"
    if found := re.match(r"the following arguments are required: (.*)", message):
        names = [f"--{name}" if f"--{name}" in options else name for name in found[1].split(", ")]
        return f"missing required arguments: {', '.join(names)}"
    if found := re.match(r"unrecognized arguments: (--[^\s=]+)", message):
        return message + did_you_mean(found[1], options)
    if found := re.match(r"(?:Group '(.+)' does not accept option|Option) '([^']+)'", message):
        name = ".".join(filter(None, found.groups()))
        return f"unknown option: {name}{did_you_mean(f'--{name}', options)}"
    return message


def _describe_value_error(key, detail, options):
    """Rewrites an error message for the value of an option, or for an entry of `corpora` or `stages`."""
    name = f"--{key}" if f"--{key}" in options else key
    if restricted := re.search(r": (\S+) does not conform to restriction v>(=?)(\d+)", detail):
        least = int(restricted[3]) + (not restricted[2])
        return f"`{name}` must be an integer of at least {least}. Received: {restricted[1]}"
    value = re.search(r"(?:Got|Given) value: (.*)\Z", detail)
    if "Unable to load config" in detail:
        return f"`{name}` must be a mapping of options, or a YAML file with them. Received: {_quoted(detail)}"
    if unknown := re.search(r"Option '(\S+)' is not accepted", detail):
        return f"unknown option in `{name}`: {unknown[1]}"
    if missing := re.search(r"arguments are required: (.*)", detail):
        return f"`{name}` requires {missing[1]}"
    if inner := re.search(r'Parser key "([^"]+)":', detail):
        name = f"{key}.….{inner[1]}"
    elif entries := re.search(r"Subtypes: \[(dict|list)\[.*Config", detail):
        kind = {"dict": "a mapping of names to options", "list": "a list of mappings of options"}[entries[1]]
        return f"`{name}` must be {kind}. Received: {value[1]}"
    expected = _expected(detail)
    if expected and value:
        return f"`{name}` must be {expected}. Received: {value[1]}"
    return f"`{name}`: {detail}"


def _quoted(detail):
    return re.search(r"Unable to load config ['\"](.*?)['\"]\n", detail, re.DOTALL)[1]


def _expected(detail):
    """Describes the expected values in words. Returns an empty string if the message has another form."""
    detail = detail.partition("Given value type:")[0]
    choices = re.findall(r"Literal\[(.*?)\]", detail)
    kinds = [f"one of {choices[0]}"] if choices else []
    kinds += [_TYPES[name] for name in dict.fromkeys(re.findall(r"<class '(\w+)'>", detail)) if name in _TYPES]
    return " or ".join(kinds)


def did_you_mean(name: str, known: Collection[str]) -> str:
    """Returns a question with a known name in place of an unknown one; empty if no known name is similar.

    Example:

    >>> did_you_mean("trian", ["train", "translate"])
    '. Did you mean train?'
    """
    close = difflib.get_close_matches(name, known, n=1)
    return f". Did you mean {close[0]}?" if close else ""


def describe_os_error(error: OSError) -> str:
    """Describes an error of the operating system for a file.

    Example:

    >>> describe_os_error(PermissionError(13, "Permission denied", "runs/x"))
    'Cannot write runs/x: permission denied'
    """
    if error.filename is None or not error.strerror:
        return str(error)
    unreadable = os.path.isfile(error.filename) and not os.access(error.filename, os.R_OK)
    verb = "read" if unreadable else "open" if error.errno == errno.ENOENT else "write"
    return f"Cannot {verb} {error.filename}: {error.strerror[:1].lower()}{error.strerror[1:]}"
