"""What the checks of whatwhere.testing refuse, before anything is tried."""

import pytest

import whatwhere as ww
from tests.refusals import require_refused, short_refusals
from whatwhere.testing import check_bias, check_input_encoding, check_rotary, check_where


def nothing(*given):
    raise AssertionError("a setting that is refused must not be tried")


CHECKS = (check_bias, check_input_encoding, check_rotary, check_where)
NAMES = {"ww": ww} | {each.__name__: each for each in (nothing, *CHECKS)}
REFUSALS = """
check_rotary(nothing, 7) -> ShapeError: head_dim=7
check_rotary(nothing, 8, rotary_dim=16) -> ShapeError: only head_dim=8 features
check_rotary(nothing, 8, rotary_dim=0) -> ShapeError: rotary_dim=0
check_rotary(nothing, 8, theta=0) -> SettingError: theta=0
check_rotary(nothing, 8, max_length=5) -> SettingError: at least 64
check_rotary(nothing, 8, scaling=4.0) -> SettingError: needs a scaling, such as YaRN
check_rotary(nothing, 0, expected=nothing) -> ShapeError: head_dim=0
check_rotary(nothing, 8, theta=5.0, expected=nothing) -> SettingError: which nothing would read
check_rotary(lambda x, p: x, 4, expected=lambda x, p: x[0]) -> ShapeError: returns the shape (3, 16, 4)
check_bias(nothing, 0) -> ShapeError: num_heads=0
check_bias(nothing, 4, expected="alibbi") -> UnknownScheme: alibi
check_bias(nothing, 4, expected="rotary") -> DoorError: is not a score bias
check_bias(nothing, 4, expected="t5") -> SettingError: which has weights
check_bias(nothing, 4, expected=7) -> SettingError: needs the name of a scheme
check_bias(lambda q, k: -(q[:, None] - k).abs()[None].float(), 1, expected=lambda q, k: [0.0]) ->
    ShapeError: returns the shape
check_input_encoding(nothing, 7) -> ShapeError: dim=7
check_input_encoding(nothing, 2, layout="tensor2tensor") -> ShapeError: at least 4
check_input_encoding(nothing, 8, layout="quarters") -> SettingError: quarters
check_input_encoding(nothing, 8, theta=5.0, expected=nothing) -> SettingError: which nothing would read
check_input_encoding(lambda p: p[:, None].float(), 1, expected=lambda p: p) -> ShapeError: needs (tokens, dim)
check_where(nothing, max_length=5) -> SettingError: at least 64
check_where(lambda: ww.ALiBi(4)) -> SettingError: not ALiBi
check_where(ww.Where()) -> SettingError: returns a new Where each time, not Where
check_where(ww.Where, num_heads=0) -> ShapeError: num_heads=0
"""


@short_refusals(REFUSALS)
@pytest.mark.usefixtures("our_own_checks")
def test_settings_are_refused_before_anything_is_tried(call: str, error: str, parts: str) -> None:
    require_refused(call, error, parts, NAMES)
