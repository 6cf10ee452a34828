"""The public interface as text: names with their parameters, commands with their options, one a line.

What is not listed may change in any release. `python -m docs.generate` writes docs/public-api.txt, a test compares it:
a change shows in the diff, and breaks nothing silently.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import griffe
import typer

import whatwhere as ww
from docs.book.reference import members
from whatwhere.cli import app

MODULES = ("parallel", "what.file_table", "what.resizing")
"""Public modules beside those of `import whatwhere`."""

_HEADER = (
    "The public interface of whatwhere, written by python -m docs.generate: what a program may use, each name with\n"
    "its parameters, and what a script may use of the command line. Anything else may change in any release. Members\n"
    "of a class that another listed class defines are listed there.\n"
)


def page() -> str:
    """Return the public interface as text."""
    lines = [_HEADER]
    for name in sorted(set(ww.__all__) - {"__version__"}, key=lambda name: (name.lower(), name)):
        value = getattr(ww, name)
        if isinstance(value, ModuleType):
            lines += _module(value)
        else:
            lines += _entry(f"whatwhere.{name}", _find(name, value))
    for name in MODULES:
        lines += _module(import_module(f"whatwhere.{name}"))
    return "\n".join([*lines, *_commands()]) + "\n"


@cache
def _package() -> Any:
    return griffe.load("whatwhere", search_paths=[Path(ww.__file__).parents[1]], allow_inspection=False)


def _find(name: str, value: object) -> Any:
    """Return what griffe has read of a public name."""
    if isinstance(value, type) or callable(value):
        return _package()[f"{value.__module__.removeprefix('whatwhere.')}.{value.__name__}"]  # type: ignore[attr-defined]
    return None


def _module(module: ModuleType) -> list[str]:
    lines = [module.__name__]
    for path in members(module):
        found = _package()[path.removeprefix("whatwhere.")]
        lines += _entry(f"{module.__name__}.{found.name}", found)
    return lines


def _entry(name: str, found: Any) -> list[str]:
    if found is None:
        return [name]
    if found.is_function:
        return [f"{name}{_signature(found)}"]
    bases = [str(base).rpartition(".")[2] for base in found.bases]
    lines = [f"class {name}({', '.join(bases)})"]
    for member in _members(found):
        if member.is_function:
            lines.append(f"    {member.name}{_signature(member)}")
        else:
            lines.append(f"    {member.name}{' -> ' if 'property' in member.labels else ': '}{member.annotation}")
    return lines


def _members(found: Any) -> Iterator[Any]:
    """Iterate over the public members of a class, also those that it inherits from classes that are not listed."""
    for name, member in sorted(found.all_members.items()):
        if name.startswith("_") and name != "__init__":
            continue
        target = member.final_target if member.is_alias else member
        listed = target.parent.name in ww.__all__ and target.parent.path != found.path
        if not listed and (target.is_function or (target.is_attribute and target.annotation is not None)):
            yield target


def _signature(function: Any) -> str:
    parts: list[str] = []
    kinds = griffe.ParameterKind
    seen_star = False
    for parameter in function.parameters:
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is kinds.keyword_only and not seen_star:
            parts.append("*")
            seen_star = True
        seen_star |= parameter.kind is kinds.var_positional
        stars = {kinds.var_positional: "*", kinds.var_keyword: "**"}.get(parameter.kind, "")
        text = f"{stars}{parameter.name}"
        text += f": {parameter.annotation}" if parameter.annotation is not None else ""
        parts.append(text if parameter.default is None or stars else f"{text} = {parameter.default}")
    returns = f" -> {function.returns}" if function.returns is not None else ""
    return f"({', '.join(parts)}){returns}"


def _commands() -> Iterator[str]:
    """Iterate over the commands, each with its arguments and options."""
    group: Any = typer.main.get_command(app)
    for name, command in group.commands.items():
        yield f"command whatwhere {name}"
        yield from (f"    {_option(parameter)}" for parameter in command.params)


def _option(parameter: Any) -> str:
    names: Sequence[str] = [*parameter.opts, *parameter.secondary_opts]
    shown = ", ".join(names) if parameter.param_type_name == "option" else parameter.name.upper()
    default = parameter.default
    words = " (required)" if parameter.required else ("" if default in (None, False, ()) else f" = {default}")
    return f"{shown}{words}"
