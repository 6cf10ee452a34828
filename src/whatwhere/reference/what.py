"""What: the token table, its lookup and output projection, its optimizer, AdamW, and tables beside it.

ids are whole numbers 0..vocab_size-1 of any shape; a table is (vocab_size, dim), vectors are (*ids.shape, dim).
"""

from math import sqrt

import numpy as np

from whatwhere.reference.checks import Array, arrays, require_rows, require_shape


@arrays(weight=2, ids=...)
def lookup(weight: Array, ids: Array, scale: float = 1.0) -> Array:
    """Look up the row of each id.

        x_n = s E[id_n]        the same numbers as s onehot(id_n) E

    Args:
        weight: E, (vocab_size, dim).
        scale: s; sqrt(dim) in Vaswani et al. 2017, section 3.4, https://arxiv.org/abs/1706.03762.

    Raises:
        IndexError: If an id is not a row of the table.

    Examples:
        >>> lookup(np.array([[0.1, 0.2], [0.4, 0.5]]), np.array([1, 0, 1]))
        array([[0.4, 0.5],
               [0.1, 0.2],
               [0.4, 0.5]])
    """
    require_rows("id", ids, weight.shape[0])
    out: Array = scale * weight[ids]
    return out


@arrays(g=..., ids=...)
def lookup_gradient(g: Array, ids: Array, vocab_size: int, scale: float = 1.0, padding_idx: int | None = None) -> Array:
    """Compute dL/dE of a lookup: each row sums the gradients of all slots that hold its token.

        dL/dE[v] = s sum over n with id_n = v of g_n        zero for a token that does not occur

    g: (*ids.shape, dim); ids: as in lookup; vocab_size: rows of E; padding_idx: a row whose gradient is zero.

    Raises:
        ValueError: If g has not one vector for each id.
        IndexError: If an id is not a row of the table.

    Examples:
        >>> lookup_gradient(np.ones((3, 2)), np.array([1, 0, 1]), vocab_size=3)
        array([[1., 1.],
               [2., 2.],
               [0., 0.]])
    """
    require_shape("g of lookup_gradient", g, (*ids.shape, *g.shape[-1:]))
    require_rows("id", ids, vocab_size)
    total = np.zeros((vocab_size, g.shape[-1]))
    for slot in np.ndindex(ids.shape):
        if ids[slot] != padding_idx:
            total[ids[slot]] += scale * g[slot]  # += and not =: a token may occur several times
    return total


@arrays(hidden=..., weight=2)
def readout(hidden: Array, weight: Array, padding_idx: int | None = None) -> Array:
    """Compute the tied output projection (lm_head): one logit for each token of the vocabulary, from the same table.

        logits[n, v] = <h_n, E[v]>        logits = h E^T

    Press and Wolf 2017, https://arxiv.org/abs/1608.05859.

    hidden: h, (..., dim); weight: E, (vocab_size, dim); padding_idx: a token whose logit is zero. The result has the
    shape (..., vocab_size).

    Examples:
        >>> readout(np.array([[1.0, 2.0]]), np.array([[1.0, 0.0], [0.5, 0.5]]))
        array([[1. , 1.5]])
    """
    logits = np.zeros((*hidden.shape[:-1], weight.shape[0]))
    for slot in np.ndindex(hidden.shape[:-1]):
        for token in range(weight.shape[0]):
            if token != padding_idx:
                logits[slot][token] = float(np.dot(hidden[slot], weight[token]))
    return logits


@arrays(g=..., hidden=..., weight=2)
def readout_gradient(g: Array, hidden: Array, weight: Array, padding_idx: int | None = None) -> tuple[Array, Array]:
    """Compute dL/dh and dL/dE of the output projection.

        dL/dh_n = sum_v g[n, v] E[v]        dL/dE[v] = sum_n g[n, v] h_n

    The gradient of a tied table is the sum of this dL/dE and that of lookup_gradient.

    g: (..., vocab_size); hidden, weight, padding_idx: as in readout. Both have the shapes of h and E.
    """
    kept = g * [token != padding_idx for token in range(weight.shape[0])]
    return kept @ weight, kept.reshape(-1, len(weight)).T @ hidden.reshape(-1, weight.shape[1])


@arrays(hidden=..., weight=2, ids=...)
def cross_entropy(
    hidden: Array, weight: Array, ids: Array, softcap: float | None = None, z_loss: float = 0.0, smoothing: float = 0.0
) -> Array:
    """Compute the loss of each target, of ids.shape, with the logits of readout.

        z[n, v] = cap tanh(<h_n, E[v]> / cap)        lse_n = log sum_v exp z[n, v]
        loss_n = lse_n - (1 - s) z[n, id_n] - s mean_v z[n, v] + c lse_n^2

    A bias is a column of E, for a feature of h that is 1. softcap: cap, None for none; z_loss: c; smoothing: s.
    """
    require_rows("id", ids, weight.shape[0])
    losses = np.zeros(ids.shape)
    for slot in np.ndindex(ids.shape):
        z = readout(hidden[slot], weight)
        z = z if softcap is None else softcap * np.tanh(z / softcap)
        lse = np.log(np.sum(np.exp(z)))
        losses[slot] = lse - (1 - smoothing) * z[ids[slot]] - smoothing * np.mean(z) + z_loss * lse**2
    return losses


@arrays(p=..., m=..., v=..., g=...)
def adamw(
    p: Array,
    m: Array,
    v: Array,
    g: Array,
    step: int,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
) -> tuple[Array, Array, Array]:
    """Compute weights and moments after one step of AdamW.

        m <- beta1 m + (1 - beta1) g        v <- beta2 v + (1 - beta2) g^2
        p <- (1 - lr weight_decay) p - lr m / (1 - beta1^n) / (sqrt(v / (1 - beta2^n)) + eps)

    Loshchilov and Hutter 2019, https://arxiv.org/abs/1711.05101, algorithm 2; the decay is lr weight_decay, as in
    PyTorch.

    Args:
        p, m, v, g: weights, first and second moments, gradients; of one shape.
        step: n, from 1.
        lr, betas, eps, weight_decay: of this step.

    Returns:
        p, m and v after the step.
    """
    p, m, v = p.astype(float), m.astype(float), v.astype(float)
    for n in np.ndindex(p.shape):
        m[n] = betas[0] * m[n] + (1 - betas[0]) * g[n]
        v[n] = betas[1] * v[n] + (1 - betas[1]) * g[n] ** 2
        first, second = m[n] / (1 - betas[0] ** step), v[n] / (1 - betas[1] ** step)
        p[n] = (1 - lr * weight_decay) * p[n] - lr * first / (sqrt(second) + eps)
    return p, m, v


@arrays(m=..., v=...)
def skipped_motion(
    m: Array,
    v: Array,
    last: int,
    rates: list[float],
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
) -> Array:
    """Sum the updates by momentum alone, over steps without a gradient.

        m sum_s B_s / (x_s sqrt(v) + eps)      s = t + 1 .. n
        B_s = lr_s / (1 - beta1^s)  beta1^(s - t)  product over u = s + 1 .. n of (1 - lr_u weight_decay)
        x_s = beta2^((s - t) / 2) / sqrt(1 - beta2^s)

    m, v: the moments after step t; last: t, the step of the last gradient; rates: lr of the steps t + 1 .. n; betas,
    eps, weight_decay: of all steps.

    Returns:
        What is subtracted: the weights after step n are those after step t times the product of all
        1 - lr weight_decay, minus this.
    """
    motion = np.zeros(m.shape)
    for n in np.ndindex(m.shape):
        kept = 1.0  # of an update at step s, after the decays that follow it: hence the last step first
        for j in range(len(rates), 0, -1):
            s, lr = last + j, rates[j - 1]
            b = lr / (1 - betas[0] ** s) * betas[0] ** j * kept
            x = betas[1] ** (j / 2) / sqrt(1 - betas[1] ** s)
            motion[n] += m[n] * b / (x * sqrt(v[n]) + eps)
            kept *= 1 - lr * weight_decay
    return motion


# Beyond one table: vectors for each layer, hashed n-grams, factorized tables, and value embeddings.


@arrays(weight=3, ids=..., x=..., projection=3, norm=1)
def per_layer(weight: Array, ids: Array, x: Array, projection: Array, norm: Array, eps: float = 1e-6) -> Array:
    """Compute per-layer embeddings: the token's row for each layer, and its input vector, projected and normalized.

        y[n, l] = (sqrt(d) E[id_n, l] + g z / sqrt(mean(z^2) + eps)) / sqrt(2)        z = W_l x_n / sqrt(D)

    Gemma 3n and Gemma 4.

    weight: E, (vocab_size, layers, d); x: (*ids.shape, D); projection: W, (layers, d, D); norm: g, (d,); eps: added to
    the mean square.

    Raises:
        IndexError: If an id is not a row of the table.
        ValueError: If x has not one vector for each id.
    """
    _, layers, d = weight.shape
    dim = projection.shape[-1]
    require_rows("id", ids, weight.shape[0])
    require_shape("x of per_layer", x, (*ids.shape, dim))
    out = np.zeros((*ids.shape, layers, d))
    for slot in np.ndindex(ids.shape):
        for layer in range(layers):
            z = np.array([float(np.dot(projection[layer, f], x[slot])) / sqrt(dim) for f in range(d)])
            rms = sqrt(float(np.dot(z, z)) / d + eps)
            for f in range(d):
                token = sqrt(d) * weight[ids[slot], layer, f]
                out[slot][layer, f] = (token + norm[f] * z[f] / rms) / sqrt(2)
    return out


def ngram_row(ids: list[int], multipliers: list[int], rows: int, xor: bool = True) -> int:
    """Compute the row of an n-gram in a hashed table, bit by bit of 64-bit arithmetic, in Python's integers.

        (m_0 t_0  op  m_1 t_1  op ...) mod rows        op: xor, or +; wrapping at 64 bits, signed

    Args:
        ids: the token itself, the one before it, and so on.
        multipliers: m, one for each.
        rows: of the table.
        xor: whether products are combined by exclusive or, as in Engram; else added, as in BLT.

    Returns:
        0..rows-1.

    Examples:
        >>> ngram_row([4, 2], [3, 5], rows=7), ngram_row([4, 2], [3, 5], rows=7, xor=False)
        (6, 1)
    """
    word = 0  # unsigned: the low 64 bits of a product, a sum or a xor depend on the low 64 bits alone
    for token, multiplier in zip(ids, multipliers, strict=True):
        product = (token * multiplier) & (2**64 - 1)
        word = word ^ product if xor else (word + product) & (2**64 - 1)
    signed = word - 2**64 if word >> 63 else word
    return ((signed % rows) + rows) % rows


@arrays(ids=1, segments=1)
def ngram_rows(
    ids: Array, multipliers: list[int], rows: int, padding_id: int, segments: Array | None = None, xor: bool = True
) -> Array:
    """Compute the rows of the n-grams that end at each token of a sequence.

    A token of another document, and one before the first, counts as padding_id.

    Args:
        ids: of the sequence.
        multipliers, rows, xor: as in ngram_row; n is the number of multipliers.
        padding_id: stands for a missing token.
        segments: the document of each token; None for one document.

    Returns:
        A row for each token.
    """
    out = np.zeros(len(ids), dtype=np.int64)
    for i in range(len(ids)):
        gram = [int(ids[i])]
        for k in range(1, len(multipliers)):
            inside = i >= k and (segments is None or all(segments[i - j] == segments[i] for j in range(1, k + 1)))
            gram.append(int(ids[i - k]) if inside else padding_id)
        out[i] = ngram_row(gram, multipliers, rows, xor)
    return out


def expected_occupied(grams: int, rows: int) -> float:
    """Compute how many rows of a table different n-grams are expected to read, if the hash is uniform.

        rows (1 - (1 - 1/rows)^grams)

    grams: different n-grams; rows: of the table.
    """
    return rows * (1 - (1 - 1 / rows) ** grams)


@arrays(a=2, b=2, ids=...)
def factorized(a: Array, b: Array, ids: Array) -> Array:
    """Look up rows of a factorized table.

        x_n[j] = sum_r A[id_n, r] B[r, j]

    Lan et al. 2019, https://arxiv.org/abs/1909.11942, section 3.1.

    a: A, (vocab_size, rank); b: B, (rank, dim).

    Raises:
        IndexError: If an id is not a row of the table.
    """
    return readout(lookup(a, ids), b.T)


@arrays(hidden=..., a=2, b=2)
def factorized_readout(hidden: Array, a: Array, b: Array) -> Array:
    """Compute logits with both factors of the table, as NeoMME does.

        logits[n, v] = sum_r sum_j h_n[j] B[r, j] A[v, r]

    hidden: h, (..., dim); a, b: as in factorized. The result has the shape (..., vocab_size).
    """
    return readout(readout(hidden, b), a)


@arrays(values=3, weight=3, ids=1)
def mixed_values(values: Array, weight: Array, ids: Array, of_values: float = 1.0, of_tokens: float = 1.0) -> Array:
    """Mix vectors of tokens into the values of attention.

        v'[h, n] = a v[h, n] + b T[id_n, h]

    values: v, (heads, tokens, head_dim); weight: T, (vocab_size, heads, head_dim); ids: of the tokens; of_values,
    of_tokens: a and b.

    Returns:
        The shape of the values.

    Raises:
        IndexError: If an id is not a row of the table.
    """
    require_rows("id", ids, weight.shape[0])
    out = np.zeros(values.shape)
    for head in range(values.shape[0]):
        for n in range(values.shape[1]):
            out[head, n] = of_values * values[head, n] + of_tokens * weight[ids[n], head]
    return out
