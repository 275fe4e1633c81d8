"""The paper's formulas in NumPy and float64, independent of the library and written for clarity."""

import itertools
import math

import numpy as np


def softmax(x):
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def log_softmax(x):
    return np.log(softmax(np.asarray(x, "float64")))


def attention(query, key, value, mask=None, scale=None, soft_cap=None):
    """Equation 1 with a boolean mask, row by row. Fully masked rows are zero. No score exceeds the soft cap."""
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    weights = np.zeros((*query.shape[:-1], key.shape[-2]))
    allowed = np.broadcast_to(True if mask is None else mask, weights.shape)
    for row in np.ndindex(weights.shape[:-1]):
        columns = np.flatnonzero(allowed[row])
        if columns.size:
            scores = key[row[:-1]][columns] @ query[row] * scale
            scores = scores if soft_cap is None else soft_cap * np.tanh(scores / soft_cap)
            weights[row][columns] = softmax(scores)
    return weights @ value, weights


def dense(layer, x):
    result = x @ np.asarray(layer.kernel.numpy(), "float64")
    return result + layer.bias.numpy() if layer.use_bias else result


def multi_head_attention(layer, query, value, key=None, mask=None):
    """§3.2.2 head by head, with the weights of `layer`: head i owns the i-th block of columns.

    With fewer heads of keys and values, a group of consecutive query heads shares one of them.
    """
    key = value if key is None else key
    projected = [
        np.split(dense(projection, x), num_heads, axis=-1)
        for projection, x, num_heads in (
            (layer.query_projection, query, layer.num_heads),
            (layer.key_projection, key, layer.num_kv_heads),
            (layer.value_projection, value, layer.num_kv_heads),
        )
    ]
    group = layer.num_heads // layer.num_kv_heads
    heads, weights = zip(
        *(
            attention(q, projected[1][i // group], projected[2][i // group], mask, layer.scale, layer.soft_cap)
            for i, q in enumerate(projected[0])
        ),
        strict=True,
    )
    return dense(layer.output_projection, np.concatenate(heads, axis=-1)), np.stack(weights, axis=1)


def positional_encoding(length, d_model):
    """§3.5, one angle at a time."""
    encoding = np.zeros((length, d_model))
    for position, i in itertools.product(range(length), range(d_model // 2)):
        angle = position / 10000 ** (2 * i / d_model)
        encoding[position, 2 * i : 2 * i + 2] = math.sin(angle), math.cos(angle)
    return encoding


def layer_norm(layer, x):
    centred = x - x.mean(axis=-1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + layer.epsilon)
    return centred / deviation * layer.gamma.numpy() + layer.beta.numpy()


def feed_forward(layer, x):
    return dense(layer.outer, np.maximum(dense(layer.inner, x), 0))


def residual(layer, x, sublayer):
    """`sublayer` is a function here."""
    if layer.norm_first:
        return x + sublayer(layer_norm(layer.norm, x))
    return layer_norm(layer.norm, x + sublayer(x))


def encoder_layer(layer, x, mask):
    attended = residual(
        layer.self_attention,
        x,
        lambda y: multi_head_attention(layer.self_attention.sublayer, y, y, mask=mask)[0],
    )
    return residual(layer.feed_forward, attended, lambda y: feed_forward(layer.feed_forward.sublayer, y))


def decoder_layer(layer, x, memory, target_mask, memory_mask):
    """`target_mask` includes causality."""
    x = residual(
        layer.self_attention,
        x,
        lambda y: multi_head_attention(layer.self_attention.sublayer, y, y, mask=target_mask)[0],
    )
    x = residual(
        layer.cross_attention,
        x,
        lambda y: multi_head_attention(layer.cross_attention.sublayer, y, memory, mask=memory_mask)[0],
    )
    return residual(layer.feed_forward, x, lambda y: feed_forward(layer.feed_forward.sublayer, y))


def smoothed_cross_entropy(labels, logits, smoothing):
    """The cross-entropy with the distribution (1 - ε) on the label plus ε / V on every class."""
    classes = logits.shape[-1]
    distribution = (1 - smoothing) * np.eye(classes)[labels] + smoothing / classes
    return -(distribution * log_softmax(logits)).sum(axis=-1)


def learning_rate(step, d_model, warmup_steps):
    """Equation 3, for steps counted from 1."""
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


def penalty(length, alpha, kind):
    return ((5 + length) / 6) ** alpha if kind == "gnmt" else length**alpha


def all_hypotheses(log_probs, limit, ids, alpha, kind):
    """Every hypothesis of at most `limit` tokens as (score, tokens), best first.

    `log_probs(prefix)` gives the log probabilities of the next token. Padding and the start token
    are excluded. At the limit only the end token is allowed, with its log probability.
    """
    found = []

    def extend(prefix, total):
        following = log_probs(prefix)
        length = len(prefix) + 1
        found.append(((total + following[ids.eos]) / penalty(length, alpha, kind), (*prefix, ids.eos)))
        for token in range(len(following)) if length < limit else ():
            if token not in ids:
                extend((*prefix, token), total + following[token])

    extend((), 0.0)
    return sorted(found, reverse=True)


def beam_search(log_probs, limit, ids, alpha, kind, beam_size):
    """Beam search that keeps finished hypotheses and always runs to the limit. Arguments as in `all_hypotheses`."""
    beam = [(0.0, 0.0, ())]
    for length in range(1, limit + 1):
        candidates = []
        for score, total, tokens in beam:
            if tokens[-1:] == (ids.eos,):
                candidates.append((score, total, tokens))
                continue
            following = log_probs(tokens)
            for token in range(len(following)):
                if token == ids.eos or (length < limit and token not in ids):
                    new_total = total + following[token]
                    candidates.append((new_total / penalty(length, alpha, kind), new_total, (*tokens, token)))
        beam = sorted(candidates, reverse=True)[:beam_size]
    return [(score, tokens) for score, _, tokens in beam]


def random_bits(shape, seed, call):
    """XXH32 of each position and the key's second word, seeded by its first. Both words are XXH32 of seed and call."""
    first, second = (xxh32([seed, call], key) for key in (0, 1))
    return xxh32([np.arange(math.prod(shape), dtype="uint32").reshape(shape), second], first)


def xxh32(words, seed):
    """The xxHash specification's steps 1, 4, 5 and 6 for 4 or 8 bytes, in unsigned arithmetic."""
    with np.errstate(over="ignore"):
        return _xxh32([np.uint32(word) for word in words], np.uint32(seed))


def _xxh32(words, seed):
    prime_2, prime_3, prime_4, prime_5 = map(np.uint32, (2246822519, 3266489917, 668265263, 374761393))
    h = seed + prime_5 + np.uint32(4 * len(words))
    for word in words:
        h = h + word * prime_3
        h = ((h << np.uint32(17)) | (h >> np.uint32(15))) * prime_4
    h = (h ^ (h >> np.uint32(15))) * prime_2
    h = (h ^ (h >> np.uint32(13))) * prime_3
    return h ^ (h >> np.uint32(16))
