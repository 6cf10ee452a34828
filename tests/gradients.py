"""Gradients of our modules, compared with differences of the reference, which has forward formulas only."""

from collections.abc import Callable, Sequence

import numpy as np
from torch import Tensor


def require_gradients(
    ours: Sequence[Tensor | np.ndarray | None],
    reference: Callable[..., np.ndarray],
    given: Sequence[Tensor | np.ndarray],
    g: Tensor | np.ndarray,
    atol: float = 1e-7,
) -> None:
    """Compare gradients of <g, reference(*given)> with central differences, along random directions of each array.

    A wrong entry of a gradient shows in the product with almost every direction.
    """
    random, step = np.random.default_rng(0), 1e-5
    arrays = [np.asarray(x.detach() if isinstance(x, Tensor) else x, dtype=float) for x in given]
    for n, (gradient, x) in enumerate(zip(ours, arrays, strict=True)):
        assert gradient is not None
        assert tuple(gradient.shape) == x.shape
        for _ in range(3):
            direction = random.normal(size=x.shape)
            up, down = (reference(*arrays[:n], x + by * direction, *arrays[n + 1 :]) for by in (step, -step))
            slope = ((up - down) * np.asarray(g)).sum() / (2 * step)
            product = (np.asarray(gradient) * direction).sum()
            np.testing.assert_allclose(product, slope, rtol=1e-6, atol=atol, err_msg=f"argument {n}")
