"""Counter-based random bits: the XXH32 hash of a position, keyed by a seed and a call counter, in `keras.ops`.

Compilers fuse the integer arithmetic with the surrounding operations, unlike the generators of the backends. Under XLA
on CPUs it is a hundred times faster than these.
"""

from keras import ops

#: The five primes of XXH32.
_PRIMES = (2654435761, 2246822519, 3266489917, 668265263, 374761393)
#: The primes as int32: some backends lack unsigned integers, and int32 arithmetic wraps around in the same way.
_PRIME_1, _PRIME_2, _PRIME_3, _PRIME_4, _PRIME_5 = (p - 2**32 if p >= 2**31 else p for p in _PRIMES)


def random_bits(shape, seed, call):
    """Makes random bits for each position of a tensor, independent between calls and seeds.

    bits[n] = XXH32((n, k_1); k_0) with k_i = XXH32((seed, call); i)

    Both words of the 64-bit key (k_0, k_1) depend on `seed` and `call`, and they enter the hash in different rounds.
    The bits of two keys are therefore not equal, shifted or swapped versions of each other.

    Args:
        shape: shape of the result, with fewer than 2^31 entries.
        seed: int scalar; only the low 32 bits are used.
        call: int scalar, such as a call counter; only the low 32 bits are used.

    Returns:
        Int32 tensor of shape `shape`, uniform in [-2^31, 2^31).

    Example:

    >>> random_bits((3,), seed=1, call=0).numpy()
    array([-794317807, 1225241775, 1123335258], dtype=int32)

    Reference:
        Collet 2012, "xxHash fast digest algorithm", §XXH32; as a generator over consecutive positions:
        Jarzynski & Olano 2020, "Hash functions for GPU rendering".
    """
    size = 1
    for length in shape:
        size = size * length
    positions = ops.reshape(ops.arange(size, dtype="int32"), shape)
    first, second = (xxh32((seed, call), key) for key in (0, 1))
    return xxh32((positions, second), first)


def xxh32(words, seed):
    """Computes the XXH32 hash of up to three 32-bit words.

    Args:
        words: the message, int tensors that broadcast against each other; only the low 32 bits are used.
        seed: int scalar; only the low 32 bits are used.

    Returns:
        Int32 tensor.

    Example:

    >>> f"{int(xxh32((np.int32(1), np.int32(2)), seed=3)) % 2**32:x}"
    'd68b6c53'

    Reference:
        Collet 2012, "xxHash fast digest algorithm", §XXH32.
    """
    accumulator = ops.cast(seed, "int32") + _PRIME_5 + 4 * len(words)
    for word in words:
        accumulator = _rotated(accumulator + ops.cast(word, "int32") * _PRIME_3, 17) * _PRIME_4
    accumulator = _xor_shifted(accumulator, 15) * _PRIME_2
    accumulator = _xor_shifted(accumulator, 13) * _PRIME_3
    return _xor_shifted(accumulator, 16)


def _rotated(x, count):
    """Rotates the bits of x to the left."""
    return ops.bitwise_or(ops.left_shift(x, count), _shifted(x, 32 - count))


def _xor_shifted(x, count):
    return ops.bitwise_xor(x, _shifted(x, count))


def _shifted(x, count):
    """Logical right shift: fills with zeros for negative x too."""
    return ops.bitwise_and(ops.right_shift(x, count), 2 ** (32 - count) - 1)
