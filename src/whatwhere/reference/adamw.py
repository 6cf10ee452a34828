"""AdamW, element by element, and the steps that a skipped row of a sparse table still owes."""

from math import sqrt

import numpy as np

from whatwhere.reference.checks import arrays


@arrays(p=..., m=..., v=..., g=...)
def adamw(
    p: np.ndarray,
    m: np.ndarray,
    v: np.ndarray,
    g: np.ndarray,
    step: int,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return weights and moments after one step of AdamW.

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

    Examples:
        >>> p, m, v = adamw(np.array([1.0]), np.zeros(1), np.zeros(1), np.array([3.0]), step=1, lr=0.1,
        ... weight_decay=0.5)
        >>> p.round(6), m.round(6), v.round(6)
        (array([0.85]), array([0.3]), array([0.009]))
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
    m: np.ndarray,
    v: np.ndarray,
    last: int,
    rates: list[float],
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
) -> np.ndarray:
    """Return the sum of the updates by momentum alone, over steps without a gradient.

        m sum_s B_s / (x_s sqrt(v) + eps)      s = t + 1 .. n
        B_s = lr_s / (1 - beta1^s)  beta1^(s - t)  product over u = s + 1 .. n of (1 - lr_u weight_decay)
        x_s = beta2^((s - t) / 2) / sqrt(1 - beta2^s)

    Args:
        m, v: the moments after step t.
        last: t, the step of the last gradient.
        rates: lr of the steps t + 1 .. n.
        betas, eps, weight_decay: of all steps.

    Returns:
        What is subtracted: the weights after step n are those after step t times the product of all
        1 - lr weight_decay, minus this.

    Examples:
        >>> skipped_motion(np.array([0.3]), np.array([0.009]), last=1, rates=[0.1]).round(6)
        array([0.067006])
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
