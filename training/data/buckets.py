"""The few lengths that batches of about one length are padded to."""

import numpy as np


def bucket_lengths(histogram: np.ndarray, num_buckets: int) -> list[int]:
    """The lengths that pad a corpus least, found by dynamic programming.

    Args:
        histogram: pairs by length, `(longest + 1,)`.
        num_buckets: how many lengths at most.

    Returns:
        The lengths, rising.
    """
    present = np.flatnonzero(histogram)
    below = np.concatenate([[0], np.cumsum(histogram[present])])
    # cost[j]: padded size of the pairs up to present[j - 1], with the buckets so far; cut[k][j]: where the last begins.
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
