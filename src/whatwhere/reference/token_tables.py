"""What, beyond one table: vectors for each layer, hashed n-grams, factorized tables, and value embeddings.

ids are whole numbers 0..vocab_size-1 of any shape; what is made of them has the axes of features behind those.
"""

from math import sqrt

import numpy as np

from whatwhere.reference.checks import Array, arrays, require_rows, require_shape
from whatwhere.reference.what import lookup, readout


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
