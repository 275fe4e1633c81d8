"""The random bits of dropout: XXH32 as specified, and chi-square tests of what dropout needs of them.

Each test of independence counts the four outcomes of pairs of bits that dropout draws at a rate, and compares them with
those of independent bits. `pytest -s` prints the table.
"""

import itertools
import math

import keras
import numpy as np
import pytest

from keras_transformer.layers.random_bits import random_bits, xxh32

SEEDS = (1, 1000, 12345, 2**31 + 7)
CALLS = POSITIONS = 64
#: Chance that a test of a perfect generator fails; the generator is fixed, so that a test that passes always passes.
P_VALUE = 1e-4


def bits(shape, seed, call):
    seed, call = (np.uint32(x).astype("int32") for x in (seed, call))
    return keras.ops.convert_to_numpy(random_bits(shape, seed, call))


def dropped(rate, shape, seed, call):
    return bits(shape, seed, call) < round(rate * 2**32) - 2**31


@pytest.fixture(scope="module")
def streams():
    """Bits of 64 calls, 4,096 positions each, by seed."""
    return {seed: np.stack([bits((4096,), seed, call) for call in range(CALLS)]) for seed in SEEDS}


def chi_square_p(observed, expected):
    """The p-value of counts, by Wilson and Hilferty's approximation of the chi-square distribution."""
    degrees = observed.size - 1
    statistic = ((observed - expected) ** 2 / expected).sum()
    deviation = ((statistic / degrees) ** (1 / 3) - (1 - 2 / (9 * degrees))) / math.sqrt(2 / (9 * degrees))
    return 0.5 * math.erfc(deviation / math.sqrt(2))


def assert_independent(name, rate, first, second):
    """Of pairs of drops (or pairs of arrays of them) none of the four outcomes is too frequent."""
    outcomes = np.bincount(2 * first.ravel().astype(int) + second.ravel(), minlength=4)
    shares = np.outer([1 - rate, rate], [1 - rate, rate]).ravel()
    p = chi_square_p(outcomes, shares * first.size)
    print(f"{name:40} rate {rate}: {first.size:>8,} pairs, p = {p:.3f}")
    assert p > P_VALUE, name


@pytest.mark.parametrize(
    ("words", "seed", "expected"),
    [((), 0, 0x02CC5D05), ((0, 0), 0, 0xDEB39513), ((1, 2), 3, 0xD68B6C53), ((7, 2**32 - 1), 2**31, 0x27D40EE2)],
)
def test_xxh32_gives_the_values_of_the_xxhash_library(words, seed, expected):
    *words, seed = (np.array(word, "uint32").astype("int32") for word in (*words, seed))
    assert int(keras.ops.convert_to_numpy(xxh32(words, seed))) % 2**32 == expected


def test_bits_are_those_of_the_reference(reference):
    for seed, call in ((1, 0), (2**31 + 7, 3), (12345, 2**32 - 1)):
        np.testing.assert_array_equal(
            bits((3, 5), seed, call).astype("uint32"), reference.random_bits((3, 5), seed, call)
        )


@pytest.mark.nightly
def test_values_are_uniform(streams):
    """Each byte of the values of all calls, each bit at each position, and the first value of 300 seeds."""
    values = np.stack([*streams.values()]).view("uint32")
    for byte in range(4):
        counts = np.bincount((values.ravel() >> (8 * byte)) & 255, minlength=256)
        assert chi_square_p(counts, values.size / 256) > P_VALUE, byte
    for bit in range(32):
        ones = ((values >> bit) & 1).sum()
        assert chi_square_p(np.array([ones, values.size - ones]), values.size / 2) > P_VALUE, bit
    first = np.array([bits((1,), seed, 0)[0] for seed in range(300)]).view("uint32")
    assert chi_square_p(np.bincount(first >> 28, minlength=16), 300 / 16) > P_VALUE


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_calls_and_positions_are_independent(rate, streams):
    """Call i at position j against call j at position i, and what stands side by side in calls and positions."""
    upper = np.triu_indices(CALLS, 1)
    is_dropped = np.stack([stream < round(rate * 2**32) - 2**31 for stream in streams.values()])
    square = is_dropped[:, :, :POSITIONS]
    assert_independent("call i, position j and call j, position i", rate, square[:, *upper], square[:, *upper[::-1]])
    diagonal = square.diagonal(axis1=1, axis2=2)
    assert_independent("position n of call n, and n + 1", rate, diagonal[:, 1:], diagonal[:, :-1])
    for distance in (1, 2, 64, 256, 512):
        name = f"positions {distance} apart"
        assert_independent(name, rate, is_dropped[..., distance:], is_dropped[..., :-distance])
    for distance in (1, 2, 12):
        name = f"calls {distance} apart"
        assert_independent(name, rate, is_dropped[:, distance:], is_dropped[:, :-distance])


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_seeds_are_independent(rate):
    """Seeds of a model's layers, of its replicas, and seeds that differ by one bit; at the same and at other places."""
    kinds = {
        "layers": 1,
        "runs": 1000,
        "replicas": 1_000_003,
        **{f"seeds differ in bit {bit}": bit for bit in (0, 15, 31)},
    }
    for name, distance in kinds.items():
        pairs = []
        for seed, call in itertools.product((1000, 1001, 54321), range(4)):
            other = seed ^ (1 << distance) if name.startswith("seeds") else seed + distance
            pairs.append([dropped(rate, (16384,), s, call) for s in (seed, other)])
        first, second = np.array(pairs).swapaxes(0, 1)
        assert_independent(name, rate, first, second)
        assert_independent(f"{name}, next position", rate, first[:, 1:], second[:, :-1])
        assert_independent(f"{name}, next call", rate, first[1:], second[:-1])


def test_streams_are_not_shifted_copies_of_each_other():
    """No run of 8 positions of one key occurs anywhere among 65,536 positions of another."""
    first, *others = (bits((65536,), seed, call) < 0 for seed, call in ((1, 0), (1, 1), (2, 0), (2, 1)))
    words = {name: np.packbits(stream).view(">u8") for name, stream in zip("abc", others, strict=True)}
    shifted = {int(word) for shift in range(64) for word in np.packbits(np.roll(first, -shift)).view(">u8")}
    for name, found in words.items():
        assert not shifted & set(found.tolist()), name
