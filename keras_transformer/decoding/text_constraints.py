"""Constraints that keep generated tokens valid text. This module does not import Keras."""

import dataclasses
import functools
from collections.abc import Mapping

import numpy as np

#: States of the text of a hypothesis: between two characters, or after the first bytes of a character, by the
#: continuation bytes that may follow: their number, and the range of the next one.
_INSIDE = {
    "C2": (1, 0xA0, 0xBF),  # C2 80 to C2 9F are control characters.
    "1": (1, 0x80, 0xBF),
    "2": (2, 0x80, 0xBF),
    "E0": (2, 0xA0, 0xBF),  # Smaller ones would be longer than needed.
    "ED": (2, 0x80, 0x9F),  # Larger ones are surrogates.
    "3": (3, 0x80, 0xBF),
    "F0": (3, 0x90, 0xBF),
    "F4": (3, 0x80, 0x8F),  # Larger ones are beyond U+10FFFF.
}
#: Between two characters, the state is 0, or 1 to `LAST_STEPS` if so many of the last steps of a hypothesis have begun.
#: Then no character begins that has more bytes than tokens are left.
LAST_STEPS = 4
_NAMES = [*[""] * (LAST_STEPS + 1), *_INSIDE]
#: Classes of tokens: whole characters, among them the bytes of ASCII; tokens that are never generated; and after these
#: one class for each byte from 0x80.
_WHOLE, _FORBIDDEN, _BYTES = 0, 1, 2
_NUM_CLASSES = _BYTES + 0x80


@dataclasses.dataclass(frozen=True)
class TextConstraints:
    """Which target tokens may follow which, so that they form valid text.

    The unknown token is forbidden. In a vocabulary with bytes, those of a hypothesis form valid UTF-8 without control
    characters: a character that begins is completed before another token, and before the length limit.

    Args:
        vocab_size: size of the target vocabulary.
        forbidden: ids of tokens that are never generated, such as the unknown token.
        bytes: pairs of the id of a token and its byte, for a vocabulary with byte fallback.

    Example:

    >>> constraints = TextConstraints.from_bytes(300, [1], {4 + byte: byte for byte in range(256)})
    >>> [4 + 0x09 in constraints.forbidden, 4 + 0xC3 in constraints.forbidden]
    [True, False]

    Reference:
        The Unicode Standard, Table 3-7, "Well-Formed UTF-8 Byte Sequences".
    """

    vocab_size: int
    forbidden: tuple[int, ...] = ()
    bytes: tuple[tuple[int, int], ...] = ()

    @classmethod
    def from_bytes(cls, vocab_size: int, forbidden, bytes: Mapping[int, int]) -> "TextConstraints":
        """Makes the constraints of a vocabulary. Bytes that never occur in text are forbidden, too.

        Args:
            vocab_size: size of the target vocabulary.
            forbidden: ids of tokens that are never generated.
            bytes: bytes by id.
        """
        invalid = {i for i, byte in bytes.items() if _is_control(byte) or 0xC0 <= byte <= 0xC1 or byte >= 0xF5}
        return cls(vocab_size, tuple(sorted({*forbidden} | invalid)), tuple(sorted(bytes.items())))

    @functools.cached_property
    def classes(self) -> np.ndarray:
        """The class of each token, int32 `(vocab_size,)`: an index of `following` and `allowed`."""
        classes = np.full(self.vocab_size, _WHOLE, "int32")
        for i, byte in self.bytes:
            classes[i] = _byte_class(byte)
        classes[[*self.forbidden]] = _FORBIDDEN
        return classes

    @functools.cached_property
    def following(self) -> np.ndarray:
        """The state after a token, int32 `(states, classes)`. After a token that is not allowed: as in state 0."""
        following = np.zeros((len(_NAMES), _NUM_CLASSES), "int32")
        for state, byte, after in _transitions():  # Those of state 0 come first.
            following[state or slice(None), _byte_class(byte)] = after
        return following

    @functools.cached_property
    def allowed(self) -> np.ndarray:
        """Whether a token may come next, bool `(states, classes)`."""
        allowed = np.zeros((len(_NAMES), _NUM_CLASSES), bool)
        allowed[: LAST_STEPS + 1, _WHOLE] = True
        for state, byte, after in _transitions():
            rows = state or [late for late in range(LAST_STEPS + 1) if _INSIDE[_NAMES[after]][0] + late < LAST_STEPS]
            allowed[rows, _byte_class(byte)] = True
        return allowed


def _byte_class(byte):
    return _WHOLE if byte < 0x80 else _BYTES + byte - 0x80


def _is_control(byte):
    return byte < 0x20 or byte == 0x7F


@functools.cache
def _transitions():
    """All `(state, byte, next state)` of bytes beyond ASCII in valid text, those of state 0 first."""
    found = []
    for byte in range(0xC2, 0xF5):
        own = f"{byte:X}"
        found.append((0, byte, _NAMES.index(own if own in _INSIDE else "123"[(byte >= 0xE0) + (byte >= 0xF0)])))
    for name, (count, first, last) in _INSIDE.items():
        after = _NAMES.index(str(count - 1)) if count > 1 else 0
        found += [(_NAMES.index(name), byte, after) for byte in range(first, last + 1)]
    return found
