"""The token table: embedding lookup and output projection."""

import numpy as np

from whatwhere.reference.checks import arrays, require_rows


@arrays(weight=2, ids=...)
def lookup(weight: np.ndarray, ids: np.ndarray, scale: float = 1.0) -> np.ndarray:
    """Return the row of each id.

        x_n = s E[id_n]        the same numbers as s onehot(id_n) E

    Args:
        weight: E, (vocab_size, dim).
        ids: whole numbers 0..vocab_size-1, any shape.
        scale: s; sqrt(dim) in Vaswani et al. 2017, section 3.4, https://arxiv.org/abs/1706.03762.

    Returns:
        Shape (*ids.shape, dim).

    Raises:
        IndexError: an id is not a row of the table.

    Examples:
        >>> lookup(np.array([[0.1, 0.2], [0.4, 0.5]]), np.array([1, 0, 1]))
        array([[0.4, 0.5],
               [0.1, 0.2],
               [0.4, 0.5]])
    """
    require_rows("id", ids, weight.shape[0])
    out = np.zeros((*ids.shape, weight.shape[1]))
    for slot in np.ndindex(ids.shape):
        out[slot] = scale * weight[ids[slot]]
    return out


@arrays(g=..., ids=...)
def lookup_gradient(
    g: np.ndarray, ids: np.ndarray, vocab_size: int, scale: float = 1.0, padding_idx: int | None = None
) -> np.ndarray:
    """Return dL/dE of a lookup: each row sums the gradients of all slots that hold its token.

        dL/dE[v] = s sum over n with id_n = v of g_n        zero for a token that does not occur

    Args:
        g: (*ids.shape, dim).
        ids: as in lookup.
        vocab_size: rows of E.
        padding_idx: a row whose gradient is zero.

    Returns:
        Shape (vocab_size, dim).

    Examples:
        >>> lookup_gradient(np.ones((3, 2)), np.array([1, 0, 1]), vocab_size=3)
        array([[1., 1.],
               [2., 2.],
               [0., 0.]])
    """
    require_rows("id", ids, vocab_size)
    total = np.zeros((vocab_size, g.shape[-1]))
    for slot in np.ndindex(ids.shape):
        if ids[slot] != padding_idx:
            total[ids[slot]] += scale * g[slot]  # += and not =: a token may occur several times
    return total


@arrays(hidden=..., weight=2)
def readout(hidden: np.ndarray, weight: np.ndarray, padding_idx: int | None = None) -> np.ndarray:
    """Return the tied output projection (lm_head): one logit for each token of the vocabulary, from the same table.

        logits[n, v] = <h_n, E[v]>        logits = h E^T

    Press and Wolf 2017, https://arxiv.org/abs/1608.05859.

    Args:
        hidden: h, (..., dim).
        weight: E, (vocab_size, dim).
        padding_idx: a token whose logit is zero.

    Returns:
        Shape (..., vocab_size).

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
def readout_gradient(
    g: np.ndarray, hidden: np.ndarray, weight: np.ndarray, padding_idx: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return dL/dh and dL/dE of the output projection.

        dL/dh_n = sum_v g[n, v] E[v]        dL/dE[v] = sum_n g[n, v] h_n

    The gradient of a tied table is the sum of this dL/dE and that of lookup_gradient.

    Args:
        g: (..., vocab_size).
        hidden, weight, padding_idx: as in readout.

    Returns:
        dL/dh, (..., dim), and dL/dE, (vocab_size, dim).

    Examples:
        >>> dh, dE = readout_gradient(np.array([[1.0, 2.0]]), np.array([[3.0]]), np.array([[5.0], [7.0]]))
        >>> dh, dE.T
        (array([[19.]]), array([[3., 6.]]))
    """
    d_hidden, d_weight = np.zeros(hidden.shape), np.zeros(weight.shape)
    for slot in np.ndindex(hidden.shape[:-1]):
        for token in range(weight.shape[0]):
            if token != padding_idx:
                d_hidden[slot] += g[slot][token] * weight[token]
                d_weight[token] += g[slot][token] * hidden[slot]
    return d_hidden, d_weight
