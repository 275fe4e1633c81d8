"""A Griffe extension: docstrings of the house, made ready for Griffe's parser of the Google style.

- Doctests stand at the margin, where Markdown shows `>>>` as a quotation: they become blocks of code.
- `Call arguments:`, the section that Keras has, becomes a list.
- Names that share one description may go over several lines, which Griffe does not know.
"""

import re

import griffe

_DOCTEST = re.compile(r"^([ ]*)>>> .*(?:\n[ ]*\S.*)*", re.MULTILINE)
_CALL_ARGUMENTS = re.compile(r"^(Call arguments:)\n((?:[ ]{4}.*\n?)+)", re.MULTILINE)
_SHARED = re.compile(r"^([ ]+(?:\w+, )+\w+,)\n[ ]+", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Rewrites each docstring before it is parsed."""

    def on_object(self, *, obj, **kwargs):
        """See `griffe.Extension`."""
        if obj.docstring:
            obj.docstring.value = rewritten(obj.docstring.value)


def rewritten(docstring: str) -> str:
    r"""A docstring for Griffe.

    Args:
        docstring: in the style of this package.

    Example:

    >>> rewritten("Call arguments:\n    query: a tensor,\n        of floats.\n    mask: boolean.")
    'Call arguments:\n    - query: a tensor,\n        of floats.\n    - mask: boolean.'
    >>> rewritten(">>> 1 + 1\n2")
    '```python\n>>> 1 + 1\n2\n```'
    """
    docstring = _SHARED.sub(r"\1 ", docstring)
    docstring = _CALL_ARGUMENTS.sub(_listed, docstring)
    docstring = _DOCTEST.sub(r"\1```python\n\g<0>\n\1```", docstring)
    return re.sub(r"^Example:$(?=\n\n\S)", "**Example**", docstring, flags=re.MULTILINE)


def _listed(found):
    return f"{found[1]}\n" + re.sub(r"^    (?=\S)", "    - ", found[2], flags=re.MULTILINE)
