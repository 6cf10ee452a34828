"""The check of types and shapes at run time finds what is wrong."""

import dataclasses
from collections.abc import Callable, Sequence

import pytest
import torch
from beartype import beartype
from beartype.roar import BeartypeCallHintParamViolation, BeartypeCallHintReturnViolation
from jaxtyping import Float
from torch import Tensor

from . import run_time_types

check: Callable = run_time_types.checked(typechecker=beartype)


@check
def add(x: Float[Tensor, "rows dim"], y: Float[Tensor, " dim"]) -> Float[Tensor, "rows dim"]:
    return x + y


@check
def first(x: "Float[Tensor, 'rows dim']") -> Float[Tensor, " dim"]:
    return x


@check
def count(n: int) -> str:
    return "a" * n if n else n


@check
def add_each(all_x: Sequence[Float[Tensor, "rows dim"]], y: Float[Tensor, " dim"]) -> list[Tensor]:
    return [add(x, y) for x in all_x]


@check
@dataclasses.dataclass
class Pair:
    """Two vectors of one width."""

    x: Float[Tensor, " dim"]
    y: Float[Tensor, " dim"]


def test_what_fits_passes() -> None:
    assert add(torch.ones(3, 2), torch.ones(2)).shape == (3, 2)
    assert count(2) == "aa"
    assert len(add_each([torch.ones(3, 2), torch.ones(3, 2)], torch.ones(2))) == 2
    assert Pair(torch.ones(2), torch.ones(2)).x.shape == (2,)


@pytest.mark.parametrize(
    ("call", "violation"),
    [
        (lambda: add(torch.ones(3, 2), torch.ones(3)), BeartypeCallHintParamViolation),
        (lambda: add(torch.ones(3, 2), torch.ones(2).int()), BeartypeCallHintParamViolation),
        (lambda: add_each([torch.ones(3, 2)], torch.ones(3)), BeartypeCallHintParamViolation),
        (lambda: Pair(torch.ones(3), torch.ones(2)), BeartypeCallHintParamViolation),
        (lambda: count("a"), BeartypeCallHintParamViolation),
        (lambda: first(torch.ones(2, 2)), BeartypeCallHintReturnViolation),
        (lambda: count(0), BeartypeCallHintReturnViolation),
    ],
)
def test_what_does_not_fit_is_refused(call: Callable, violation: type[Exception]) -> None:
    with pytest.raises(violation):
        call()
