"""The guess of the initial scale: tables drawn by known rules, with trained rows among them."""

import numpy as np
import pytest

from whatwhere.analysis.diagnostics import initial_scale
from whatwhere.errors import ShapeError


@pytest.mark.parametrize(
    ("spread", "rule"),
    [(0.02, "BERT"), (1.0, "PyTorch"), (256**-0.5, "1 / sqrt(dim)"), ((2 / (5 * 256)) ** 0.5, "GPT-NeoX")],
)
def test_untrained_rows_show_how_they_were_initialized(spread: float, rule: str) -> None:
    g = np.random.default_rng(0)
    table = 3 * g.standard_normal((400, 256))
    idle = np.arange(50, 90)
    push = 0.5 * g.standard_normal(256)  # what moved all idle rows alike
    table[idle] = spread * g.standard_normal((40, 256)) + push
    result = initial_scale(table.astype(np.float32), idle)
    assert result.rule is not None
    assert rule in result.rule
    assert (result.rows, result.under_trained) == (40, True)
    assert result.std == pytest.approx(spread, rel=0.02)
    assert result.expected_std == pytest.approx(spread)


def test_the_configuration_takes_precedence_and_unusual_spreads_have_no_rule() -> None:
    g = np.random.default_rng(1)
    table = 0.02 * g.standard_normal((300, 64))
    assert initial_scale(table, np.arange(0), configured=0.02).rule == "the configuration's initializer_range"
    strange = initial_scale(20 * table, np.arange(0), configured=0.02)
    assert (strange.rule, strange.expected_std, strange.under_trained, strange.rows) == (None, None, False, 300)
    assert strange.std == pytest.approx(float((20 * table).std(axis=0, ddof=1).mean()), rel=0.01)


def test_one_row_and_equal_rows_do_not_break_it() -> None:
    assert initial_scale(np.ones((1, 4)), np.arange(0)).std == 0
    assert initial_scale(np.ones((9, 4)), np.arange(9)).rule is None


@pytest.mark.usefixtures("our_own_checks")
def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(ShapeError, match="rows, dim"):
        initial_scale(np.ones(3), np.arange(0))
