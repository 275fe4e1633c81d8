"""Bucket lengths: the padded lengths of batches with similar sentences."""

import numpy as np


def bucket_lengths(histogram: np.ndarray, num_buckets: int) -> list[int]:
    """The bucket lengths with the least padding, found by dynamic programming.

    Args:
        histogram: number of pairs of each length, `(longest + 1,)`.
        num_buckets: maximum number of lengths.

    Returns:
        The lengths in ascending order.
    """
    present = np.flatnonzero(histogram)
    below = np.concatenate([[0], np.cumsum(histogram[present])])
    # cost[j]: least padded size of the pairs up to length present[j - 1]. cuts[k][j]: start of its last bucket.
    cost = np.concatenate([[0.0], np.full(len(present), np.inf)])
    cuts = []
    for _ in range(min(num_buckets, len(present))):
        total = cost[:, None] + (below[None, :] - below[:, None]) * np.concatenate([[0], present])[None, :]
        total[np.tril_indices(len(cost))] = np.inf
        total[0, 0] = 0.0
        cuts.append(total.argmin(axis=0))
        cost = total.min(axis=0)
    lengths, end = [], len(present)
    for cut in reversed(cuts):
        if end == 0:
            break
        lengths.append(int(present[end - 1]))
        end = int(cut[end])
    return lengths[::-1]
