"""A Griffe extension: the doctests of docstrings become blocks of code.

The docstrings write `Example:`, an empty line and then `>>>` at the margin, which Markdown would show as a quotation.
"""

import re

import griffe

#: Lines from `>>>` to the next empty line.
_DOCTEST = re.compile(r"^([ ]*)>>> .*(?:\n[ ]*\S.*)*", re.MULTILINE)
#: A section with the title and the indented text that the Google style asks for.
_HEADINGS = {"Example:": "**Example**", "Reference:": "**Reference**"}


class Doctests(griffe.Extension):
    """Fences doctests before the docstring is parsed."""

    def on_object(self, *, obj, **kwargs):
        """See `griffe.Extension`."""
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(docstring: str) -> str:
    """A docstring whose doctests are fenced.

    Args:
        docstring: in the Google style.

    Example:

    >>> print(fenced("Example:\\n\\n>>> 1 + 1\\n2"))
    **Example**
    <BLANKLINE>
    ```python
    >>> 1 + 1
    2
    ```
    """
    docstring = _DOCTEST.sub(lambda found: f"{found[1]}```python\n{found[0]}\n{found[1]}```", docstring)
    return re.sub(r"^Example:$(?=\n\n\S)", "**Example**", docstring, flags=re.MULTILINE)
