"""The token table: what a token is."""

import numpy as np

from whatwhere.reference.checks import require_rows


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
    require_rows("id", ids, weight.shape[0])
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
    require_rows("id", ids, vocab_size)
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
