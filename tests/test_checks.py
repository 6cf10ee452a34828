"""The checks: what they let through, what they refuse, and where they must not read."""

import jaxtyping
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import whatwhere
from whatwhere.checks import require_choice, require_even, require_positive, require_whole
from whatwhere.errors import SettingError, ShapeError
from whatwhere.tensor_checks import require_range


@pytest.fixture(autouse=True)
def _only_our_own_checks(monkeypatch):
    """Disable the run-time type check of the test suite, which users do not have."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


class Found(Exception):
    """Has the value and the index that a check reports."""


def refuse(values, limit):
    require_range(values, limit, Found)


@pytest.mark.parametrize("values", [[], [[3, 0], [4, 4]]])
@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8])
def test_values_in_range_pass_and_those_that_do_not_exist(values, dtype):
    refuse(torch.tensor(values, dtype=dtype), 5)
    refuse(torch.empty(3, dtype=dtype, device="meta"), 5)
    with FakeTensorMode():
        refuse(torch.empty(3, dtype=dtype), 5)


@pytest.mark.parametrize(
    ("values", "value", "slot"),
    [([5], 5, (0,)), ([0, -1, 7], -1, (1,)), ([[0, 1], [9, -3]], 9, (1, 0)), (6, 6, ())],
)
def test_the_first_value_out_of_range_is_reported_with_its_index(values, value, slot):
    with pytest.raises(Found) as caught:
        refuse(torch.tensor(values), 5)
    assert caught.value.args == (value, slot)


@pytest.mark.compile
@pytest.mark.parametrize(("values", "good"), [([0, 4], True), ([0, 5], False), ([-1, 4], False)])
def test_inside_a_compiled_program_the_check_stays_and_runs(values, good):
    def program(values):
        refuse(values, 5)
        return values + 1

    compiled = torch.compile(program, fullgraph=True, backend="aot_eager")
    if good:
        assert compiled(torch.tensor(values)).tolist() == [value + 1 for value in values]
    else:
        with pytest.raises(RuntimeError, match=r"outside 0\.\.4"):
            compiled(torch.tensor(values))


NO_SIZES, NO_SETTINGS = (0, -1, 2.0, "3", None, True), (0, -1.0, float("inf"), float("nan"), -float("inf"))


@pytest.mark.parametrize(
    ("check", "error", "message"),
    [
        *(
            (lambda n=n: require_whole("Maker", height=1, width=n), ShapeError,
             f"width={n!r}, but needs a whole number of at least 1.") for n in NO_SIZES
        ),
        *(
            (lambda n=n: require_positive("Maker", speed=n), SettingError,
             f"speed={n!r}, but needs a finite number above 0.") for n in NO_SETTINGS
        ),
        (lambda: require_even("Maker", "it needs pairs", width=7), ShapeError,
         "width=7, but needs an even number: it needs pairs.\nThe nearest even numbers are 6 and 8."),
        (lambda: require_even("Maker", "it needs pairs", width=1), ShapeError,
         "width=1, but needs an even number: it needs pairs.\nThe smallest is 2."),
        (lambda: require_choice("Maker", "color", "green", ("red", "blue")), SettingError,
         "color='green', but knows only: red, blue."),
    ],
)  # fmt: skip
def test_what_a_check_refuses(check, error, message):
    with pytest.raises(error) as caught:
        check()
    assert str(caught.value) == f"Maker got {message}"


def test_tensors_on_another_device_than_the_positions_are_refused():
    far, p = torch.ones(1, 4, 2, 8, device="meta"), whatwhere.positions(2)
    for call in (
        lambda: whatwhere.Rotary(8)(far, far, p),
        lambda: whatwhere.Where().at(p).attention(far, far, far),
    ):
        with pytest.raises(SettingError, match=r"q is on meta, but the positions on cpu.\n.*positions.to\(q.device\)"):
            call()
