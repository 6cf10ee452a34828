"""Every stored number is widened to the number that it is, and to nothing near it."""

import re

import numpy as np
import pytest
import torch

from whatwhere.models.checkpoint.base import QUANTIZED, STORED_TYPES


@pytest.mark.parametrize("name", [name for name in STORED_TYPES if re.match(r"b?float(8|16)", name)])
def test_all_numbers_of_eight_and_sixteen_bits(name: str) -> None:
    """Widened by torch, to float64, each is exact; of a signaling NaN a quiet one is made."""
    kind, dtype = STORED_TYPES[name], getattr(torch, name)
    assert kind.widen is not None
    bits = np.arange(256, dtype=np.uint8) if kind.bytes == 1 else np.arange(65536, dtype=np.uint16).view(np.int16)
    right = torch.from_numpy(bits).view(dtype).to(torch.float64).numpy()
    result = kind.widen(bits.view(kind.stored))
    assert result.dtype == np.float32
    with np.errstate(invalid="ignore"):
        assert np.array_equal(result.astype(np.float64), right, equal_nan=True)
    assert np.array_equal(np.signbit(result) | np.isnan(right), np.signbit(right) | np.isnan(right))


def test_sizes_are_those_of_the_authors_package() -> None:
    gguf = pytest.importorskip("gguf")
    theirs = {kind.name: size for kind, size in gguf.GGML_QUANT_SIZES.items() if size[0] > 1}
    assert theirs == QUANTIZED


def test_sizes() -> None:
    assert STORED_TYPES["float32"].size((3, 5)) == 60
    assert STORED_TYPES["bool"].size(()) == 1
    assert STORED_TYPES["Q8_0"].size((3, 64)) == 3 * 2 * 34
    assert STORED_TYPES["Q8_0"].size((64, 3)) is None
    assert STORED_TYPES["float4_e2m1"].size((3, 6)) == 9
    assert STORED_TYPES["float4_e2m1"].size((3, 3)) is None
