"""Schemes of some of the heads, for attention whose heads are split among processes."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from types import FunctionType
from typing import ClassVar, TypeVar

import torch
from torch import nn

from whatwhere.checks import answers_names_of_others, require_positive, require_whole
from whatwhere.errors import SettingError, ShapeError

M = TypeVar("M", bound="OfHeads")


class WithSettings(nn.Module):
    """A module whose repr shows its settings, as code that makes an equal one."""

    settings_in_repr: ClassVar[tuple[str, ...]] = ()
    """The attributes that the repr shows, in this order."""
    _shown_if_set: ClassVar[tuple[str, ...]] = ()
    """Those of them that it shows only where they are not None, 0 or False."""
    _shortcuts: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Methods that compute what others do in another way: wrong in a subclass that overrides one of the others."""

    def __init_subclass__(cls) -> None:
        """Answer arguments under names of other libraries with those that they have here, and let overrides count."""
        super().__init_subclass__()
        _require_read(cls)
        for name, others in cls._shortcuts.items():
            if (right := _first_right(cls, name, others)) is not getattr(cls, name):
                setattr(cls, name, right)
        if (init := vars(cls).get("__init__")) is not None:
            setattr(cls, "__init__", answers_names_of_others(init))  # noqa: B010 (mypy refuses the assignment)

    def extra_repr(self) -> str:
        """Return the settings."""
        values = ((name, getattr(self, name)) for name in self.settings_in_repr)
        return ", ".join(f"{name}={value!r}" for name, value in values if value or name not in self._shown_if_set)


def _require_read(cls: type) -> None:
    """Raise SettingError where a class overrides a method that is final, since attention does not read it."""
    bases = cls.__mro__[1:]
    abstract = set().union(*(getattr(base, "__abstractmethods__", ()) for base in bases))  # as of a scheme of two doors
    for base in bases:
        for name, member in vars(base).items():
            method = getattr(member, "fget", member)
            final = isinstance(method, FunctionType) and hasattr(method, "__final__") and name not in abstract
            if final and getattr(cls, name) is not member:
                raise SettingError(
                    f"{cls.__name__} overrides {name} of {base.__name__}, which attention does not read: nothing would "
                    "change.\nOverride bind. For frequencies of a rotary map pass scaling=, a Scaling of your own; for "
                    "the slopes of ALiBi, slopes=."
                )


def _first_right(cls: type, name: str, others: Sequence[str]) -> object:
    """Return the first definition of a shortcut before which no class overrides one of the other methods."""
    before: set[str] = set()
    for base in cls.__mro__:
        known = [getattr(base, each) for each in others if each in before and hasattr(base, each)]
        if name in vars(base) and all(getattr(each, "__isabstractmethod__", False) for each in known):
            break
        before.update(vars(base))
    return vars(base)[name]


class OfHeads(WithSettings):
    """A module for heads of attention that can be made for some of them: a scheme of door 2 or 3, or a sink."""

    head_axes: ClassVar[Mapping[str, int] | None] = None
    """The axis of heads of each parameter that has one; empty if there is none, None where that is not said."""
    sliced_parameters: frozenset[str] = frozenset()
    """Names of the parameters of which this has a slice, since `heads` made it; all heads share the others."""

    def heads(self: M, first: int, count: int, *, total: int | None = None) -> M:
        """Return this module for some of the heads, for attention whose heads are split among processes.

        Parameters are copied: those with an axis of heads in the slice of these heads, along `head_axes`, so that the
        slices of all processes make the whole again (`sliced_parameters`); those that heads share as a whole, such as
        the only one of `sets`. The gradients of shared ones must be summed over the processes, as those of any
        replicated parameter; that of one of several sets, over the processes that have the set.

        Args:
            first: number of the first head, from 0; of the heads of queries.
            total: all heads, where the module was not made for a number of heads but has sets of parameters.

        Raises:
            ShapeError: If there are no such heads, or they share a set of parameters with other heads.
            SettingError: If it is not known what belongs to which head.

        Examples:
            >>> from whatwhere import ALiBi
            >>> ALiBi(num_heads=4).heads(2, 2)
            ALiBi(num_heads=2, slopes=(0.015625, 0.00390625))
        """
        owner = type(self).__name__
        ranges = self._head_ranges(first, count, total)
        total = _checked(self, owner, first, count, total)
        copy = deepcopy(self)
        changed = dict(self.attributes_of_heads(first, count, total))
        if hasattr(self, "num_heads"):
            changed["num_heads"] = count
        if isinstance(sets := getattr(self, "sets", None), int):
            changed["sets"] = _sets(owner, sets, first, count, total)[1]
        for name, value in changed.items():
            setattr(copy, name, value)
        for name, part in ranges.items():
            whole = getattr(self, name)
            own = whole.detach().narrow(*part).clone(memory_format=torch.contiguous_format)
            setattr(copy, name, nn.Parameter(own, requires_grad=whole.requires_grad))
            if own.shape != whole.shape:
                copy.sliced_parameters |= {name}
        return copy

    def _head_ranges(self, first: int, count: int, total: int | None) -> dict[str, tuple[int, int, int]]:
        """Return which slice of its parameters belongs to some heads: of each that has one, axis, begin and length."""
        owner = type(self).__name__
        if self.head_axes is None:
            raise SettingError(
                f"{owner} does not say what of it belongs to which head.\n"
                "Give its class head_axes, the axis of heads of each parameter that has one ({} if none has), and "
                "override attributes_of_heads() if a setting depends on the head."
            )
        begin, number, units = first, count, _checked(self, owner, first, count, total)
        if isinstance(sets := getattr(self, "sets", None), int):
            (begin, number), units = _sets(owner, sets, first, count, units), sets
        ranges = {}
        for name, axis in self.head_axes.items():
            if (whole := getattr(self, name)) is not None:
                size = whole.shape[axis] // units  # a head may have several rows
                ranges[name] = (axis, begin * size, number * size)
        return ranges

    def attributes_of_heads(self, first: int, count: int, total: int) -> Mapping[str, object]:
        """Return the attributes of a module for some of the heads that depend on which heads they are."""
        return {}


def for_heads(owner: str, name: str, values: Sequence[float], num_heads: int) -> tuple[float, ...]:
    """Return a setting that has one number above 0 for each head."""
    numbers = tuple(float(value) for value in values)
    if len(numbers) != num_heads:
        raise ShapeError(f"{owner} got {len(numbers)} {name} for {num_heads} heads: each head needs one.")
    for head, value in enumerate(numbers):
        require_positive(owner, **{f"{name}[{head}]": value})
    return numbers


def _checked(module: nn.Module, owner: str, first: int, count: int, total: int | None) -> int:
    """Return the number of all heads; of heads that are alike, those up to the last one requested."""
    num_heads, sets = getattr(module, "num_heads", None), getattr(module, "sets", 1)
    if num_heads is not None and total not in (None, num_heads):
        raise ShapeError(f"{owner} was made for num_heads={num_heads}, but heads() got total={total}.")
    if num_heads is None and total is None and sets > 1:
        raise ShapeError(f"{owner} has {sets} sets of parameters for any number of heads: pass total=, all heads.")
    whole = num_heads if num_heads is not None else total
    require_whole(f"{owner}.heads()", 0, first=first)
    require_whole(f"{owner}.heads()", count=count, **({} if whole is None else {"total": whole}))
    if whole is not None and first + count > whole:
        raise ShapeError(f"{owner} has {whole} heads, but heads() got first={first}, count={count}.")
    return first + count if whole is None else int(whole)


def _sets(owner: str, sets: int, first: int, count: int, total: int) -> tuple[int, int]:
    """Return the first set of parameters that some heads use, and their number; head n uses set n * sets // total."""
    begin, end = first * sets, (first + count) * sets
    if begin % total == 0 and end % total == 0:
        return begin // total, (end - begin) // total
    if begin // total == (end - 1) // total:
        return begin // total, 1
    raise ShapeError(
        f"{owner} has {sets} sets of parameters for {total} heads, and heads {first} to {first + count - 1} have parts "
        "of several.\nSplit the heads where a set ends."
    )
