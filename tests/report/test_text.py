"""Numbers as text: the same in a terminal, in a file and on the page."""

import math
import random
import shutil
import struct
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from whatwhere.report.text import MINUS, decimals, number, percent

EXACT = [
    0, -0.0, 1, -1, 3, 12, 999, 1000, -4096, 46_881_792, 10**15 - 1, 10**15, 0.5, 0.125, 2.5, -0.375, 1234.5, 1235.5,
    0.1, 0.9995, 0.99949999, 999.6, 999.96, 9.995, 1e-3, 1e-4, 9.9996e-5, 9.9994e-5, 5e-5, -7.04e-6, 123456.789,
    999_999_999_999_999.9, 1e21, -1.5e21, 1.7976931348623157e308, 5e-324, 1 / 3, math.pi, -math.e,
    float(np.float32(0.1)), math.nan, math.inf, -math.inf,
]  # fmt: skip
"""Numbers at the limits of the rules, and such that lie in the middle between two roundings."""

DIGITS, PLACES = (1, 2, 3, 4, 6), (0, 1, 3)


def sampled(count: int = 2000) -> list[float]:
    rng = random.Random(0)
    bits = (struct.unpack("<d", rng.randbytes(8))[0] for _ in range(count))
    return [*filter(math.isfinite, bits), *(rng.uniform(-2000, 2000) for _ in range(count))]


def read(text: str) -> Decimal:
    return Decimal(text.replace(",", "").replace(MINUS, "-"))


@pytest.mark.parametrize("digits", DIGITS)
def test_a_number_has_its_significant_digits(digits: int) -> None:
    for value in [*filter(math.isfinite, EXACT), *sampled()]:
        text = number(value, digits)
        exact = Decimal(value)
        assert abs(read(text) - exact) <= Decimal(5).scaleb(exact.adjusted() - digits), (value, text)
        assert "-" not in text
        assert text != MINUS + "0"
        if 1e-4 <= abs(value) < 999_999_999_999_999:
            assert "e" not in text
        if 1000 <= abs(value) < 999_999_999_999_999:
            assert abs(read(text) - exact) <= Decimal("0.5"), "the whole part is in full"


def test_numbers_at_the_limits() -> None:
    assert [number(value) for value in (0, -0.0, 0.0, 5, np.float64(0.25))] == [
        "0", "0", "0", "5", "0.25",
    ]  # fmt: skip
    assert [number(value) for value in (999.6, 1234.5, 0.0001, 0.00009999, 0.00009994, 1e15, 999 * 10**12 + 1)] == [
        "1,000", "1,235", "0.0001", "0.0001", "9.99e−5", "1.00e15", "999,000,000,000,001",
    ]  # fmt: skip
    assert [number(value) for value in (math.nan, math.inf, -math.inf, None)] == ["not a number", "∞", "−∞", ""]
    assert [number(value, 2) for value in (0.125, -0.125, 0.5, 123.4)] == ["0.13", "−0.13", "0.5", "123"]
    assert [decimals(value, 2) for value in (-0.0, -0.001, 0.125, 3, 1234.5, math.nan)] == [
        "0.00", "0.00", "0.13", "3.00", "1,234.50", "not a number",
    ]  # fmt: skip
    assert [percent(value) for value in (0, 1, -0.0, 0.00123, math.inf)] == [
        "0.0\u00a0%", "100.0\u00a0%", "0.0\u00a0%", "0.12\u00a0%", "∞",
    ]  # fmt: skip


def test_the_page_writes_the_same(tmp_path: Path) -> None:
    """The rules are written twice, in Python and in TypeScript."""
    browser = pytest.importorskip("reliability.browser", reason="the studio's extra is not installed")
    if shutil.which("node") is None or not (browser.WEB / "node_modules" / "esbuild").is_dir():
        pytest.skip("Node.js or the page's packages are missing: make page")
    values = [*EXACT, *sampled()]
    (tmp_path / "numbers").write_bytes(struct.pack(f"<{len(values)}d", *values))
    shown = browser.driven("modules.mjs", numbers=str(tmp_path / "numbers"), digits=DIGITS, places=PLACES)
    expected = {
        "numbers": [[number(value), *(number(value, digits) for digits in DIGITS)] for value in values],
        "decimals": [[decimals(value, places) for places in PLACES] for value in values],
    }
    for name, rows in expected.items():
        different = [each for each in zip(values, shown[name], rows, strict=True) if each[1] != each[2]]
        assert not different, (name, different[:3])
