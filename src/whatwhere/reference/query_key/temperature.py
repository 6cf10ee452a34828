"""Door 2 (query_key), the query temperature: queries multiplied by a fixed function of their position."""

import math

import numpy as np

from whatwhere.reference.checks import arrays, require_shape


@arrays(q=3, factors=1)
def query_temperature(q: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Multiply each query by the factor of its position.

        y = tau_p q

    Args:
        q: (heads, tokens, head_dim).
        factors: tau of each token, (tokens), by one of the functions below.

    Returns:
        Shape (heads, tokens, head_dim).

    Examples:
        >>> query_temperature(np.ones((1, 2, 1)), power_temperature(np.array([0, 3]), 0.5, 4)).round(4)
        array([[[1.118 ],
                [1.4142]]])
    """
    require_shape("factors", factors, q.shape[1:2])
    out = np.zeros(q.shape)
    for head, token, c in np.ndindex(q.shape):
        out[head, token, c] = factors[token] * q[head, token, c]
    return out


@arrays(positions=1)
def stepped_log_temperature(positions: np.ndarray, alpha: float, period: int, offset: int = 1) -> np.ndarray:
    """Compute the factor of Llama 4 (offset 1) and of Ministral 3 and Mistral 4 (offset 0).

        tau_p = 1 + alpha ln(1 + floor((p + offset) / period))

    Args:
        positions: (tokens).
        alpha, period, offset: of the model.

    Examples:
        >>> stepped_log_temperature(np.array([2, 3]), alpha=1.0, period=4).round(4)
        array([1.    , 1.6931])
    """
    return np.array([1 + alpha * math.log(1 + (int(p) + offset) // period) for p in positions])


@arrays(positions=1)
def clamped_log_temperature(positions: np.ndarray, alpha: float, length: int) -> np.ndarray:
    """Compute the factor of Inkling.

        tau_p = 1 + alpha ln max(1, (p + 1) / length)

    Args:
        positions: (tokens).
        alpha, length: of the model.

    Examples:
        >>> clamped_log_temperature(np.array([3, 7]), alpha=1.0, length=4).round(4)
        array([1.    , 1.6931])
    """
    return np.array([1 + alpha * math.log(max(1.0, (int(p) + 1) / length)) for p in positions])


@arrays(positions=1)
def power_temperature(positions: np.ndarray, exponent: float, length: int) -> np.ndarray:
    """Compute the factor of Beam.

        tau_p = (1 + (p + 1) / length) ** exponent

    Args:
        positions: (tokens).
        exponent, length: of the model.

    Examples:
        >>> power_temperature(np.array([3]), exponent=0.5, length=4).round(4)
        array([1.4142])
    """
    return np.array([(1 + (int(p) + 1) / length) ** exponent for p in positions])


@arrays(positions=1)
def log_n_temperature(positions: np.ndarray, original_length: int) -> np.ndarray:
    """Compute the factor of Qwen's first generation.

        tau_p = max(1, ln(p + 1) / ln original_length)

    Args:
        positions: (tokens).
        original_length: at least 2.

    Examples:
        >>> log_n_temperature(np.array([3, 15]), original_length=4)
        array([1., 2.])
    """
    return np.array([max(1.0, math.log(int(p) + 1) / math.log(original_length)) for p in positions])
