"""Write every scheme out in NumPy float64 and plain loops, forward and backward.

The library is tested against this file, and a student may read it as a textbook. It is slow on purpose: one loop per
index of the formula. In every gradient function, g stands for dL/dy of the output y, and L is any scalar loss.

    token table    lookup, lookup_gradient, readout, readout_gradient
    input          sinusoid, learned, learned_gradient
    query_key      rotary, rotary_gradient
    score          alibi_slopes, alibi_bias
    attention      attention, attention_gradient

Fixed schemes have no gradient of their own: a sinusoid and an ALiBi bias are constants that are added.
"""

import math

import numpy as np

# ---------------------------------------------------------------------------------------------------------------------
# The token table: what a token is
# ---------------------------------------------------------------------------------------------------------------------


def lookup(weight: np.ndarray, ids: np.ndarray, scale: float = 1.0) -> np.ndarray:
    """Give the row of each id.

        x_n = s E[id_n]        the same numbers as s onehot(id_n) E

    Args:
        weight: E, (vocab_size, dim).
        ids: whole numbers 0..vocab_size-1, any shape.
        scale: s; sqrt(dim) in Vaswani et al. 2017, section 3.4, https://arxiv.org/abs/1706.03762.

    Gives (*ids.shape, dim).

    >>> lookup(np.array([[0.1, 0.2], [0.4, 0.5]]), np.array([1, 0, 1]))
    array([[0.4, 0.5],
           [0.1, 0.2],
           [0.4, 0.5]])
    """
    _require_rows("id", ids, weight.shape[0])
    out = np.zeros((*ids.shape, weight.shape[1]))
    for place in np.ndindex(ids.shape):
        out[place] = scale * weight[ids[place]]
    return out


def lookup_gradient(
    g: np.ndarray, ids: np.ndarray, vocab_size: int, scale: float = 1.0, padding_id: int | None = None
) -> np.ndarray:
    """Give dL/dE of a lookup: each row collects the gradients of all places where its token stands.

        dL/dE[v] = s sum over n with id_n = v of g_n        zero for a token that does not occur

    Args:
        g: (*ids.shape, dim).
        ids: as in lookup.
        vocab_size: rows of E.
        padding_id: a row that gets no gradient.

    Gives (vocab_size, dim).

    >>> lookup_gradient(np.ones((3, 2)), np.array([1, 0, 1]), vocab_size=3)
    array([[1., 1.],
           [2., 2.],
           [0., 0.]])
    """
    _require_rows("id", ids, vocab_size)
    total = np.zeros((vocab_size, g.shape[-1]))
    for place in np.ndindex(ids.shape):
        if ids[place] != padding_id:
            total[ids[place]] += scale * g[place]  # += and not =: a token may stand in several places
    return total


def readout(hidden: np.ndarray, weight: np.ndarray, padding_id: int | None = None) -> np.ndarray:
    """Give one logit per token of the vocabulary, from the table that the lookup reads.

        logits[n, v] = <h_n, E[v]>        logits = h E^T

    Press and Wolf 2017, https://arxiv.org/abs/1608.05859.

    Args:
        hidden: h, (..., dim).
        weight: E, (vocab_size, dim).
        padding_id: a token whose logit is zero.

    Gives (..., vocab_size).

    >>> readout(np.array([[1.0, 2.0]]), np.array([[1.0, 0.0], [0.5, 0.5]]))
    array([[1. , 1.5]])
    """
    logits = np.zeros((*hidden.shape[:-1], weight.shape[0]))
    for place in np.ndindex(hidden.shape[:-1]):
        for token in range(weight.shape[0]):
            if token != padding_id:
                logits[place][token] = float(np.dot(hidden[place], weight[token]))
    return logits


def readout_gradient(
    g: np.ndarray, hidden: np.ndarray, weight: np.ndarray, padding_id: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Give dL/dh and dL/dE of a readout.

        dL/dh_n = sum_v g[n, v] E[v]        dL/dE[v] = sum_n g[n, v] h_n

    A tied table gets the sum of this dL/dE and the one of lookup_gradient.

    Args:
        g: (..., vocab_size).
        hidden, weight, padding_id: as in readout.

    Gives dL/dh, (..., dim), and dL/dE, (vocab_size, dim).

    >>> dh, dE = readout_gradient(np.array([[1.0, 2.0]]), np.array([[3.0]]), np.array([[5.0], [7.0]]))
    >>> dh, dE.T
    (array([[19.]]), array([[3., 6.]]))
    """
    d_hidden, d_weight = np.zeros(hidden.shape), np.zeros(weight.shape)
    for place in np.ndindex(hidden.shape[:-1]):
        for token in range(weight.shape[0]):
            if token != padding_id:
                d_hidden[place] += g[place][token] * weight[token]
                d_weight[token] += g[place][token] * hidden[place]
    return d_hidden, d_weight


# ---------------------------------------------------------------------------------------------------------------------
# Door 1: a vector for each position, added to the token's vector
# ---------------------------------------------------------------------------------------------------------------------


def inverse_frequencies(dim: int, theta: float = 10_000.0) -> list[float]:
    """Give how far each pair of features turns per position, in radians.

        w_i = theta ** (-2 i / dim)        i = 0 .. dim/2 - 1

    Vaswani et al. 2017, section 3.5; Su et al. 2021, equation 15.

    >>> inverse_frequencies(4)
    [1.0, 0.01]
    """
    _require_even("dim", dim)
    return [theta ** (-2 * i / dim) for i in range(dim // 2)]


def tensor2tensor_frequencies(dim: int, theta: float = 10_000.0) -> list[float]:
    """Give the frequencies of tensor2tensor and fairseq: the slowest one is exactly 1 / theta.

        w_i = theta ** (-i / (dim/2 - 1))        i = 0 .. dim/2 - 1

    Vaswani et al. 2018, https://arxiv.org/abs/1803.07416, as its code has it.

    >>> tensor2tensor_frequencies(4)
    [1.0, 0.0001]
    """
    _require_even("dim", dim)
    if dim < 4:
        raise ValueError("tensor2tensor's frequencies divide by dim/2 - 1, so dim must be at least 4, not 2.")
    return [theta ** (-i / (dim // 2 - 1)) for i in range(dim // 2)]


def sinusoid(positions: np.ndarray, dim: int, theta: float = 10_000.0, layout: str = "interleaved") -> np.ndarray:
    """Give the sinusoidal vector of each position.

        interleaved     PE[p, 2i] = sin(p w_i)   PE[p, 2i+1] = cos(p w_i)        w_i = theta ** (-2i / dim)
        halves          PE[p, i]  = sin(p w_i)   PE[p, dim/2 + i] = cos(p w_i)   the same w_i
        tensor2tensor   as halves                                                w_i = theta ** (-i / (dim/2 - 1))

    Vaswani et al. 2017, section 3.5, https://arxiv.org/abs/1706.03762; i counts pairs of features.

    Args:
        positions: whole numbers, any shape.
        dim: features, even.
        theta: above 0.
        layout: `interleaved`, `halves` or `tensor2tensor`.

    Gives (*positions.shape, dim).

    >>> sinusoid(np.array([0]), 4), sinusoid(np.array([0]), 4, layout="halves")
    (array([[0., 1., 0., 1.]]), array([[0., 0., 1., 1.]]))
    """
    if layout not in ("interleaved", "halves", "tensor2tensor"):
        raise ValueError(f"layout is {layout!r}, but must be 'interleaved', 'halves' or 'tensor2tensor'.")
    frequencies = (
        tensor2tensor_frequencies(dim, theta) if layout == "tensor2tensor" else inverse_frequencies(dim, theta)
    )
    out = np.zeros((*positions.shape, dim))
    for place in np.ndindex(positions.shape):
        for i, w in enumerate(frequencies):
            angle = int(positions[place]) * w
            sine, cosine = (2 * i, 2 * i + 1) if layout == "interleaved" else (i, dim // 2 + i)
            out[place][sine] = math.sin(angle)
            out[place][cosine] = math.cos(angle)
    return out


def learned(weight: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Give the trained row of each position.

        x_n = P[p_n]

    Gehring et al. 2017, section 3.1, https://arxiv.org/abs/1705.03122.

    Args:
        weight: P, (max_length, dim).
        positions: whole numbers 0..max_length-1, any shape.

    Gives (*positions.shape, dim).

    >>> learned(np.array([[0.5], [0.7]]), np.array([0, 1, 1])).T
    array([[0.5, 0.7, 0.7]])
    """
    _require_rows("position", positions, weight.shape[0])
    out = np.zeros((*positions.shape, weight.shape[1]))
    for place in np.ndindex(positions.shape):
        out[place] = weight[positions[place]]
    return out


def learned_gradient(g: np.ndarray, positions: np.ndarray, max_length: int) -> np.ndarray:
    """Give dL/dP: each row collects the gradients of all tokens that stand at its position.

        dL/dP[p] = sum over n with p_n = p of g_n

    In a batch, every sequence adds to the rows of the positions that it has; rows beyond the longest get nothing.

    Args:
        g: (*positions.shape, dim).
        positions: as in learned.
        max_length: rows of P.

    Gives (max_length, dim).

    >>> learned_gradient(np.ones((2, 2, 1)), np.array([[0, 1], [0, 1]]), max_length=3).T
    array([[2., 2., 0.]])
    """
    _require_rows("position", positions, max_length)
    total = np.zeros((max_length, g.shape[-1]))
    for place in np.ndindex(positions.shape):
        total[positions[place]] += g[place]
    return total


# ---------------------------------------------------------------------------------------------------------------------
# Door 2: queries and keys, each turned by its own position
# ---------------------------------------------------------------------------------------------------------------------


def rotary(
    x: np.ndarray,
    positions: np.ndarray,
    theta: float = 10_000.0,
    interleaved: bool = False,
    rotary_dim: int | None = None,
) -> np.ndarray:
    """Turn each pair of features of a query or key by the angle p w_i.

        y_a = x_a cos - x_b sin        y_b = x_a sin + x_b cos        angle = p w_i,  w_i = theta ** (-2i / rotary_dim)

        interleaved   a = 2i,  b = 2i + 1                  the paper, GPT-J
        half-split    a = i,   b = i + rotary_dim / 2      GPT-NeoX, Hugging Face

    Su et al. 2021, equations 14, 15 and 34, https://arxiv.org/abs/2104.09864.

    Args:
        x: (heads, tokens, head_dim).
        positions: (tokens).
        theta: above 0.
        interleaved: which features make a pair.
        rotary_dim: only the first features turn, the others stay; None turns all.

    Gives (heads, tokens, head_dim).

    >>> rotary(np.array([[[1.0, 0.0]]]), np.array([1])).round(4)
    array([[[0.5403, 0.8415]]])
    """
    heads, tokens, head_dim = x.shape
    _require_shape("positions", positions, (tokens,))
    out = np.array(x, dtype=np.float64)
    pairs = _pairs(head_dim, theta, interleaved, rotary_dim)
    for head in range(heads):
        for token in range(tokens):
            for a, b, w in pairs:
                angle = int(positions[token]) * w
                x_a, x_b = float(x[head, token, a]), float(x[head, token, b])
                out[head, token, a] = x_a * math.cos(angle) - x_b * math.sin(angle)
                out[head, token, b] = x_a * math.sin(angle) + x_b * math.cos(angle)
    return out


def rotary_gradient(
    g: np.ndarray,
    positions: np.ndarray,
    theta: float = 10_000.0,
    interleaved: bool = False,
    rotary_dim: int | None = None,
) -> np.ndarray:
    """Give dL/dx of a rotation: the gradient, turned back.

        dL/dx_a = g_a cos + g_b sin        dL/dx_b = -g_a sin + g_b cos

    A rotation is an orthogonal matrix R, so R^T, which the chain rule asks for, is R at the opposite angle.

    Args:
        g: (heads, tokens, head_dim).
        positions, theta, interleaved, rotary_dim: as in rotary.

    Gives (heads, tokens, head_dim).

    >>> x, p = np.array([[[1.0, 2.0, 3.0, 4.0]]]), np.array([7])
    >>> np.allclose(rotary_gradient(rotary(x, p), p), x)
    True
    """
    heads, tokens, head_dim = g.shape
    _require_shape("positions", positions, (tokens,))
    out = np.array(g, dtype=np.float64)
    pairs = _pairs(head_dim, theta, interleaved, rotary_dim)
    for head in range(heads):
        for token in range(tokens):
            for a, b, w in pairs:
                angle = int(positions[token]) * w
                g_a, g_b = float(g[head, token, a]), float(g[head, token, b])
                out[head, token, a] = g_a * math.cos(angle) + g_b * math.sin(angle)
                out[head, token, b] = -g_a * math.sin(angle) + g_b * math.cos(angle)
    return out


def _pairs(head_dim: int, theta: float, interleaved: bool, rotary_dim: int | None) -> list[tuple[int, int, float]]:
    """Give the two features of each pair, and how far it turns per position."""
    dim = head_dim if rotary_dim is None else rotary_dim
    if dim > head_dim:
        raise ValueError(f"rotary_dim is {dim}, but a head has only {head_dim} features.")
    places = [(2 * i, 2 * i + 1) if interleaved else (i, i + dim // 2) for i in range(dim // 2)]
    return [(a, b, w) for (a, b), w in zip(places, inverse_frequencies(dim, theta), strict=True)]


# ---------------------------------------------------------------------------------------------------------------------
# Door 3: a number for each pair of positions, added to the scaled score
# ---------------------------------------------------------------------------------------------------------------------


def alibi_slopes(num_heads: int) -> list[float]:
    """Give the slope of each head, by the authors' rule for any number of heads.

        H = 2^a     m_h = 2 ** (-8 h / H),  h = 1 .. H
        else        the slopes of n, the power of two below H; then the 1st, 3rd, 5th, ... of the slopes of 2n

    Press, Smith and Lewis 2022, section 3, https://arxiv.org/abs/2108.12409; the second line is in their code only.

    >>> alibi_slopes(4)
    [0.25, 0.0625, 0.015625, 0.00390625]
    >>> alibi_slopes(3)
    [0.0625, 0.00390625, 0.25]
    """
    if num_heads < 1:
        raise ValueError(f"num_heads is {num_heads}, but must be at least 1.")
    below = 1
    while 2 * below <= num_heads:
        below = 2 * below
    out = [2.0 ** (-8 * h / below) for h in range(1, below + 1)]
    h = 1
    while len(out) < num_heads:
        out.append(2.0 ** (-8 * h / (2 * below)))
        h = h + 2
    return out


def alibi_bias(query_positions: np.ndarray, key_positions: np.ndarray, num_heads: int) -> np.ndarray:
    """Give the penalty of each pair of positions, in each head.

        bias[h, i, j] = -m_h |p_i - p_j|

    Press, Smith and Lewis 2022, section 3. Symmetric: in a causal model the mask takes the later keys away.

    Args:
        query_positions: (queries).
        key_positions: (keys).
        num_heads: heads.

    Gives (heads, queries, keys).

    >>> alibi_bias(np.array([2]), np.array([0, 1, 2]), num_heads=1) * 256
    array([[[-2., -1.,  0.]]])
    """
    slopes = alibi_slopes(num_heads)
    bias = np.zeros((num_heads, len(query_positions), len(key_positions)))
    for head in range(num_heads):
        for i, at_query in enumerate(query_positions):
            for j, at_key in enumerate(key_positions):
                bias[head, i, j] = slopes[head] * -abs(int(at_query) - int(at_key))
    return bias


# ---------------------------------------------------------------------------------------------------------------------
# Attention, where the three doors meet
# ---------------------------------------------------------------------------------------------------------------------


def attention(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    bias: np.ndarray | None = None,
    mask: np.ndarray | None = None,
    scale: float | None = None,
) -> np.ndarray:
    """Let each query gather values from the keys it may look at.

        s_ij = <q_i, k_j> scale + bias_ij        a_ij = exp(s_ij) / sum_j exp(s_ij)        y_i = sum_j a_ij v_j

    Vaswani et al. 2017, equation 1. Sums over j take the allowed keys only; a query that has none gets zeros.

    Args:
        q: (heads, queries, head_dim).
        k: (heads, keys, head_dim).
        v: (heads, keys, value_dim).
        bias: (heads, queries, keys), or any shape that broadcasts to it; minus infinity forbids a key.
        mask: bool, the same shapes; True where the query may look at the key.
        scale: None is 1 / sqrt(head_dim).

    Gives (heads, queries, value_dim).

    >>> q, k = np.zeros((1, 2, 1)), np.zeros((1, 2, 1))
    >>> attention(q, k, np.array([[[1.0], [3.0]]]), mask=np.array([[True, False], [True, True]]))
    array([[[1.],
            [2.]]])
    """
    weights = attention_weights(q, k, bias, mask, scale)
    heads, queries, keys = weights.shape
    _require_shape("v", v, (heads, keys, v.shape[-1]))
    out = np.zeros((heads, queries, v.shape[-1]))
    for head in range(heads):
        for i in range(queries):
            for j in range(keys):
                out[head, i] += weights[head, i, j] * v[head, j]
    return out


def attention_weights(
    q: np.ndarray,
    k: np.ndarray,
    bias: np.ndarray | None = None,
    mask: np.ndarray | None = None,
    scale: float | None = None,
) -> np.ndarray:
    """Give the share a_ij of each key in each query's sum, as in attention.

    Gives (heads, queries, keys); each row sums to one, or to zero where the query may look at nothing.

    >>> attention_weights(np.zeros((1, 1, 2)), np.zeros((1, 4, 2)))
    array([[[0.25, 0.25, 0.25, 0.25]]])
    """
    heads, queries, head_dim = q.shape
    keys = k.shape[1]
    _require_shape("k", k, (heads, keys, head_dim))
    added = np.broadcast_to(np.zeros(()) if bias is None else bias, (heads, queries, keys))
    allowed = np.broadcast_to(np.ones((), dtype=bool) if mask is None else mask, (heads, queries, keys))
    factor = 1 / math.sqrt(head_dim) if scale is None else scale
    weights = np.zeros((heads, queries, keys))
    for head in range(heads):
        for i in range(queries):
            scores = {
                j: float(np.dot(q[head, i], k[head, j])) * factor + float(added[head, i, j])
                for j in range(keys)
                if allowed[head, i, j] and added[head, i, j] > -math.inf
            }
            # The largest score is taken off each: the shares stay the same, and exp cannot overflow.
            largest = max(scores.values(), default=0.0)
            total = sum(math.exp(score - largest) for score in scores.values())
            for j, score in scores.items():
                weights[head, i, j] = math.exp(score - largest) / total
    return weights


def attention_gradient(
    g: np.ndarray,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    bias: np.ndarray | None = None,
    mask: np.ndarray | None = None,
    scale: float | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Give dL/dq, dL/dk, dL/dv and dL/ds of attention; dL/ds is the gradient of a bias as well.

        dL/dv_j  = sum_i a_ij g_i
        dL/da_ij = <g_i, v_j>
        dL/ds_ij = a_ij (dL/da_ij - sum_l a_il dL/da_il)        the softmax
        dL/dq_i  = scale sum_j dL/ds_ij k_j
        dL/dk_j  = scale sum_i dL/ds_ij q_i

    A bias that was broadcast gets dL/ds summed over the axes that it lacks.

    Args:
        g: (heads, queries, value_dim).
        q, k, v, bias, mask, scale: as in attention.

    Gives arrays of the shapes of q, k, v and (heads, queries, keys).

    >>> ones = np.ones((1, 2, 1))
    >>> attention_gradient(ones, ones, ones, ones)[2].T  # every value serves both queries, by half each
    array([[[1.],
            [1.]]])
    """
    weights = attention_weights(q, k, bias, mask, scale)
    heads, queries, keys = weights.shape
    _require_shape("g", g, (heads, queries, v.shape[-1]))
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    d_q, d_k, d_v, d_scores = np.zeros(q.shape), np.zeros(k.shape), np.zeros(v.shape), np.zeros(weights.shape)
    for head in range(heads):
        for i in range(queries):
            shares = weights[head, i]
            d_shares = [float(np.dot(g[head, i], v[head, j])) for j in range(keys)]
            mean = sum(shares[j] * d_shares[j] for j in range(keys))
            for j in range(keys):
                d_scores[head, i, j] = shares[j] * (d_shares[j] - mean)
                d_v[head, j] += shares[j] * g[head, i]
                d_q[head, i] += factor * d_scores[head, i, j] * k[head, j]
                d_k[head, j] += factor * d_scores[head, i, j] * q[head, i]
    return d_q, d_k, d_v, d_scores


def _require_rows(what: str, index: np.ndarray, rows: int) -> None:
    # NumPy would take row -1 for the last one, without a word.
    for value in np.ravel(index):
        if not 0 <= value < rows:
            raise IndexError(f"{what} {value} is outside the table, which has {rows} rows (0..{rows - 1}).")


def _require_even(name: str, value: int) -> None:
    if value < 2 or value % 2:
        raise ValueError(
            f"{name} is {value}, but must be even and at least 2: a sine and a cosine share one frequency."
        )


def _require_shape(name: str, x: np.ndarray, shape: tuple[int, ...]) -> None:
    if x.shape != shape:
        raise ValueError(f"{name} has shape {x.shape}, but {shape} is needed.")
