"""The reference as a textbook: lists are arrays, and swapped arguments are named."""

import numpy as np
import pytest

import whatwhere as ww


def test_the_reference_is_public_and_refuses_swapped_arguments() -> None:
    assert ww.reference.lookup([[1.0, 2.0]], [0, 0]).tolist() == [[1.0, 2.0], [1.0, 2.0]]
    g, ids = [[1.0, 2.0], [3.0, 4.0]], [1, 1]
    assert ww.reference.lookup_gradient(g, ids, 2).tolist() == [[0.0, 0.0], [4.0, 6.0]]
    with pytest.raises(ValueError, match=r"got ids of type float64, but needs whole numbers"):
        ww.reference.lookup_gradient(ids, np.array(g) + 0.5, 2)
    with pytest.raises(ValueError, match=r"g of lookup_gradient has shape \(2,\)"):
        ww.reference.lookup_gradient(ids, g, 5)
    with pytest.raises(ValueError, match="needs a single value: is the order right"):
        ww.reference.lookup_gradient(g, 2, ids)
