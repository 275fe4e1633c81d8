"""Sets of texts seen before, in 8 bytes per text."""

import hashlib

import numpy as np

from keras_transformer.training.cleaning.rules import near


def hash_of(similarity: str, *texts: str) -> int:
    """A 64-bit hash of a text, or of the two sides of a pair, that is equal for duplicates."""
    if similarity == "near":
        # A text without letters is compared as it is.
        texts = tuple(near(text) or text for text in texts)
    digest = hashlib.blake2b("\0".join(texts).encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), "little")


class SeenHashes:
    """A set of 64-bit hashes in sorted arrays.

    With n hashes of 64 bits, the probability that a text is taken for another one is below n / 2^64.
    """

    def __init__(self):
        self._arrays: list[np.ndarray] = []

    def add(self, hashes: np.ndarray) -> np.ndarray:
        """Adds uint64 `(count,)`. Returns bool `(count,)`: whether each hash was in the set, or earlier in `hashes`."""
        if not len(hashes):
            return np.zeros(0, bool)
        unique, first = np.unique(hashes, return_index=True)
        is_seen = np.ones(len(hashes), bool)
        is_seen[first] = False
        for array in self._arrays:
            places = np.minimum(np.searchsorted(array, hashes), len(array) - 1)
            is_seen |= array[places] == hashes
        self._arrays.append(unique)
        # Each array is at least twice as large as the next one, so there are few.
        while len(self._arrays) > 1 and len(self._arrays[-2]) < 2 * len(self._arrays[-1]):
            self._arrays.append(np.union1d(self._arrays.pop(), self._arrays.pop()))
        return is_seen
