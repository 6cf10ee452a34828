"""The check of types and shapes at run time: jaxtyping's import hook, with what it costs cut down."""

import ast
import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any

import jaxtyping
from jaxtyping import _import_hook


class _Outermost(_import_hook.JaxtypingTransformer):
    """Check the shapes of no function within a function: it is compiled anew whenever the outer one is called.

    The laws call such ones (a bias by element) 80,000 times, and spent half of their time on it.
    """

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        if any(isinstance(parent, ast.FunctionDef) for parent in self._parents):
            return node
        checked: ast.FunctionDef = super().visit_FunctionDef(node)
        return checked


_jaxtyped = jaxtyping.jaxtyped


def checked(*, typechecker: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a decorator that checks what jaxtyping's own does, in a third of the time.

    Jaxtyping's binds the arguments by name, for shapes such as "{count}" that none of ours has, and checks them a
    second time with the result. Where no annotation has a shape, none has to be remembered either.
    """

    def decorate(decorated: Any) -> Any:
        if inspect.isclass(decorated):
            if dataclasses.is_dataclass(decorated) and "__init__" in vars(decorated):
                decorated.__init__ = decorate(decorated.__init__)
            return decorated
        if not inspect.isfunction(decorated) or inspect.isgeneratorfunction(decorated):
            return _jaxtyped(decorated, typechecker=typechecker)
        return _check_function(decorated, typechecker)

    return decorate


def _check_function(function: Callable[..., Any], typechecker: Callable[[Any], Any]) -> Callable[..., Any]:
    source = "__annotate__" if hasattr(function, "__annotate__") else "__annotations__"  # the first since Python 3.14
    written, resolved = getattr(function, source), _resolved(function)
    function.__annotations__ = resolved
    checked = typechecker(function)
    setattr(function, source, written)
    in_context = any(map(_has_shape, resolved.values()))

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if jaxtyping.config.jaxtyping_disable:
            return function(*args, **kwargs)
        if not in_context:
            return checked(*args, **kwargs)
        with _jaxtyped("context"):
            return checked(*args, **kwargs)

    return wrapper


def _resolved(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations that name what exists at run time."""
    hints: dict[str, Any] = {}
    for name, annotation in function.__annotations__.items():
        holder = type("holder", (), {"__annotations__": {name: annotation}})
        try:
            hints |= typing.get_type_hints(holder, function.__globals__, include_extras=True)
        except (NameError, AttributeError):  # imported for the static check alone
            continue
    return hints


def _has_shape(annotation: Any) -> bool:
    if inspect.isclass(annotation) and issubclass(annotation, jaxtyping.AbstractArray):
        return True
    parts = typing.get_args(annotation)
    return any(_has_shape(part) for some in parts for part in (some if isinstance(some, list) else [some]))


def install() -> None:
    """Let the import hook leave functions within functions out, and check the others by `checked`."""
    _import_hook.JaxtypingTransformer = _Outermost  # type: ignore[misc]
    jaxtyping.jaxtyped = checked
