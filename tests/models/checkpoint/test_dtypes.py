"""Every stored number is widened to the number that it is, and to nothing near it."""

import numpy as np
import pytest
import torch

from whatwhere.models.checkpoint.base import QUANTIZED, STORED_TYPES

BYTES = np.arange(256, dtype=np.uint8)
HALVES = np.arange(65536, dtype=np.uint16)


def as_torch(bits: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """Widen by torch, to float64, in which each of these numbers is exact."""
    return torch.from_numpy(bits.copy()).view(dtype).to(torch.float64).numpy()


def same(result: np.ndarray, right: np.ndarray) -> None:
    assert result.dtype == np.float32
    with np.errstate(invalid="ignore"):  # of a signalling NaN a quiet one is made
        assert np.array_equal(result.astype(np.float64), right, equal_nan=True)
    numbers = ~np.isnan(right)
    assert np.array_equal(np.signbit(result)[numbers], np.signbit(right)[numbers])


@pytest.mark.parametrize(
    "name", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"]
)
def test_all_numbers_of_eight_bits(name: str) -> None:
    kind = STORED_TYPES[name]
    assert kind.widen is not None
    same(kind.widen(BYTES), as_torch(BYTES, getattr(torch, name)))


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_all_numbers_of_sixteen_bits(name: str) -> None:
    kind = STORED_TYPES[name]
    assert kind.widen is not None
    same(kind.widen(HALVES.view(kind.stored)), as_torch(HALVES.view(np.int16), getattr(torch, name)))


def test_infinities_and_what_is_no_number() -> None:
    widen = STORED_TYPES["bfloat16"].widen
    assert widen is not None
    result = widen(np.array([0x7F80, 0xFF80, 0x7FC0, 0x8000, 0x0001], dtype=np.uint16))
    assert result[:2].tolist() == [np.inf, -np.inf]
    assert np.isnan(result[2])
    assert np.signbit(result[3])
    assert result[4] == 2.0**-133  # the least of bfloat16, which float32 has as a subnormal


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
