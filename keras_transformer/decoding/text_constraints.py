"""Constraints that keep generated tokens valid text. This module does not import Keras."""

import dataclasses
import functools
from collections.abc import Mapping

import numpy as np

#: Number of tokens that a forbidden token lacks: more than any hypothesis may have.
FORBIDDEN = 1 << 30
#: States: between two characters, and after the first bytes of a character, by the continuation bytes that may follow:
#: the number of those that the character lacks, and the range of the next one.
_STATES = {
    "": (0, 0, 0),
    "C2": (1, 0xA0, 0xBF),  # C2 80 to C2 9F are control characters.
    "1": (1, 0x80, 0xBF),
    "2": (2, 0x80, 0xBF),
    "E0": (2, 0xA0, 0xBF),  # Smaller ones would be longer than needed.
    "ED": (2, 0x80, 0x9F),  # Larger ones are surrogates.
    "3": (3, 0x80, 0xBF),
    "F0": (3, 0x90, 0xBF),
    "F4": (3, 0x80, 0x8F),  # Larger ones are beyond U+10FFFF.
}
_NAMES = [*_STATES]
#: The class of tokens that are not bytes, except forbidden ones. A byte has the class 2 + byte.
_OTHER, _FORBIDDEN = 0, 1


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

    >>> constraints = TextConstraints.of(300, [1], {4 + byte: byte for byte in range(256)})
    >>> [4 + 0x09 in constraints.forbidden, 4 + 0xC3 in constraints.forbidden]
    [True, False]

    Reference:
        The Unicode Standard, Table 3-7, "Well-Formed UTF-8 Byte Sequences".
    """

    vocab_size: int
    forbidden: tuple[int, ...] = ()
    bytes: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, vocab_size: int, forbidden, bytes: Mapping[int, int]) -> "TextConstraints":
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
        """The class of each token, int32 `(vocab_size,)`: an index of `lacking` and `following`."""
        classes = np.full(self.vocab_size, _OTHER, "int32")
        for i, byte in self.bytes:
            classes[i] = 2 + byte
        classes[[*self.forbidden]] = _FORBIDDEN
        return classes

    @functools.cached_property
    def lacking(self) -> np.ndarray:
        """Number of tokens that a new character lacks after a token, int32 `(states, classes)`; see `FORBIDDEN`."""
        lacking = np.full((len(_NAMES), 2 + 256), FORBIDDEN, "int32")
        for state, byte, after in _transitions():
            lacking[state, 2 + byte] = 0 if state else _STATES[_NAMES[after]][0]
        lacking[0, _OTHER] = 0
        return lacking

    @functools.cached_property
    def following(self) -> np.ndarray:
        """The state after a token, int32 `(states, classes)`. After a token that is not allowed: as in state 0."""
        following = np.zeros((len(_NAMES), 2 + 256), "int32")
        for state, byte, after in _transitions():  # Those of state 0 come first.
            following[state if state else slice(None), 2 + byte] = after
        return following

    @functools.cached_property
    def is_special(self) -> np.ndarray:
        """Whether the constraints may forbid a token between two characters, int32 `(vocab_size,)`."""
        return np.isin(np.arange(self.vocab_size), [*self.forbidden, *self._beyond_ascii]).astype("int32")

    @functools.cached_property
    def is_in_character(self) -> np.ndarray:
        """Whether a character may be incomplete after a token, int32 `(vocab_size,)`."""
        return np.isin(np.arange(self.vocab_size), self._beyond_ascii).astype("int32")

    @property
    def _beyond_ascii(self):
        return [i for i, byte in self.bytes if byte >= 0x80]


def _is_control(byte):
    return byte < 0x20 or byte == 0x7F


@functools.cache
def _transitions():
    """All `(state, byte, next state)` of valid text."""
    found = [(0, byte, 0) for byte in range(0x80) if not _is_control(byte)]
    for byte in range(0xC2, 0xF5):
        own = f"{byte:X}"
        found.append((0, byte, _NAMES.index(own if own in _STATES else "123"[(byte >= 0xE0) + (byte >= 0xF0)])))
    for state, (count, first, last) in enumerate(_STATES.values()):
        found += [(state, byte, (0, 2, 3)[count - 1]) for byte in range(first, last + 1) if count]
    return found
