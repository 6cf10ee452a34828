"""Write the TypeScript types of the studio's answers: web/src/types.ts, from the dataclasses that the API returns.

`python page_types.py` writes the file. It starts at the return annotations of QUERIES and JOBS in
whatwhere.studio.api and follows every dataclass that they reach. A Python type has one TypeScript type, as
whatwhere.studio.export packs it:

    str, bool, int, float, None     string, boolean, number, number, null
    MaybeNaN of whatwhere.records   number | null
    Literal["a", "b"], X | None     "a" | "b", X | null
    Sequence[X], tuple[X, Y]        X[], [X, Y]
    Mapping[str, X]                 Record<string, X>; of literal keys Partial<Record<"a" | "b", X>>
    an array of NumPy or PyTorch    Tensor of wire.ts
    a dataclass                     an interface of the same name below the name of its module, where its docstring
                                    says what each field is; it extends those of the dataclasses that it inherits
"""

import ast
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
import torch

from whatwhere.records import MaybeNaN
from whatwhere.studio.api import JOBS, QUERIES

FILE = Path(__file__).parent / "src" / "whatwhere" / "studio" / "web" / "src" / "types.ts"
WIDTH = 120
HEAD = """\
/** The studio's answers. Written by page_types.py from the dataclasses of whatwhere/studio/api: do not edit. */
"""
_PLAIN = {str: "string", bool: "boolean", int: "number", float: "number", type(None): "null", Any: "unknown"}
_TAKEN = {"Queries", "Tensor", "Record", "Partial"}


def typescript(answers: Mapping[str, Callable[..., Any]]) -> str:
    """Return the content of types.ts.

    Args:
        answers: functions by the name that the page calls them by.

    Raises:
        TypeError: If an answer is not annotated as a dataclass, a type has no TypeScript type here, or two dataclasses
            have the same name.
    """
    interfaces = _Interfaces()
    lines = [f'  "{name}": {interfaces.of(_returned(name, function))};' for name, function in answers.items()]
    table = ["/** Types of answers, by the name of the query or job. */", "export interface Queries {", *lines, "}"]
    uses = ['import type { Tensor } from "./wire";\n'] if interfaces.tensors else []
    modules: dict[str, list[str]] = {}
    for name in sorted(interfaces.written):
        modules.setdefault(interfaces.classes[name].__module__, []).append(interfaces.written[name])
    written = ["\n".join([f"/** {module} */", *modules[module]]) for module in sorted(modules)]
    return "\n".join([HEAD, *uses, *table, "", "\n\n".join(written), ""])


def _returned(name: str, function: Callable[..., Any]) -> type:
    """Return the dataclass that a function returns."""
    kind = hints(function).get("return")
    if not (isinstance(kind, type) and is_dataclass(kind)):
        annotated = "has no return annotation" if kind is None else f"returns {kind}"
        raise TypeError(f"{name} {annotated}, but every answer is a dataclass: define one in whatwhere/studio/api.")
    return kind


class _Interfaces:
    """The interfaces of dataclasses, by name."""

    def __init__(self) -> None:
        self.written: dict[str, str] = {}
        self.tensors = False
        self.classes: dict[str, type] = {}

    def of(self, kind: Any) -> str:
        """Return the TypeScript type of a Python type, and write the interfaces that it needs."""
        if kind == MaybeNaN:
            return "number | null"
        if get_origin(kind) is Annotated:
            return self.of(get_args(kind)[0])
        if isinstance(kind, TypeVar):
            return kind.__name__
        if kind in _PLAIN:
            return _PLAIN[kind]
        if kind is np.ndarray or getattr(kind, "array_type", None) in (np.ndarray, torch.Tensor):
            self.tensors = True
            return "Tensor"
        if isinstance(kind, type) and is_dataclass(kind):
            return self._interface(kind)
        origin = get_origin(kind)
        if isinstance(origin, type) and is_dataclass(origin):
            return f"{self._interface(origin)}<{', '.join(map(self.of, get_args(kind)))}>"
        return self._composed(kind, origin, get_args(kind))

    def _composed(self, kind: Any, origin: Any, parts: tuple[Any, ...]) -> str:
        if origin is Literal:
            return " | ".join(f'"{part}"' if isinstance(part, str) else str(part).lower() for part in parts)
        if origin in (Union, types.UnionType):
            return " | ".join(dict.fromkeys(self.of(part) for part in parts))
        if origin is tuple and parts[-1] is not ...:
            return f"[{', '.join(map(self.of, parts))}]"
        if isinstance(origin, type) and issubclass(origin, Mapping):
            record = (
                f"Record<{self.of(parts[0]) if get_origin(parts[0]) is Literal else 'string'}, {self.of(parts[1])}>"
            )
            return f"Partial<{record}>" if get_origin(parts[0]) is Literal else record
        if isinstance(origin, type) and issubclass(origin, Sequence):
            inner = self.of(parts[0])
            return f"({inner})[]" if " | " in inner else f"{inner}[]"
        raise TypeError(f"{kind} has no TypeScript type: see the list at the head of page_types.py.")

    def _interface(self, kind: type) -> str:
        name = kind.__name__
        if name in _TAKEN or self.classes.setdefault(name, kind) is not kind:
            other = self.classes.get(name)
            raise TypeError(f"{kind} needs a name of its own: {name} is {other or 'a type of TypeScript'}.")
        if name in self.written:
            return name
        self.written[name] = ""  # a class may hold itself
        found = hints(kind)
        bases = [
            base for base in getattr(kind, "__orig_bases__", kind.__bases__) if is_dataclass(get_origin(base) or base)
        ]
        inherited = {field.name for base in bases for field in fields(get_origin(base) or base)}
        parameters = ", ".join(each.__name__ for each in getattr(kind, "__parameters__", ()))
        extended = f" extends {', '.join(map(self.of, bases))}" if bases else ""
        head = f"export interface {name}{f'<{parameters}>' if parameters else ''}{extended} {{"
        own = {field.name: self.of(found[field.name]) for field in fields(kind) if field.name not in inherited}
        short = f"{head} {'; '.join(f'{field}: {type}' for field, type in own.items())} }}"
        lines = [line for field, type in own.items() for line in _field(field, type)]
        self.written[name] = short if len(short) <= WIDTH else "\n".join([head, *lines, "}"])
        return name


def hints(of: Any) -> dict[str, Any]:
    """Return the annotations of a class or function; names that only type checkers import are imported."""
    late: dict[str, Any] = {}
    for module in {each.__module__ for each in getattr(of, "__mro__", (of,))} - {"builtins"}:
        for block in ast.parse(inspect.getsource(import_module(module))).body:
            if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING":
                for line in block.body:
                    if isinstance(line, ast.ImportFrom):
                        names = {each.asname or each.name: each.name for each in line.names}
                        found = import_module(str(line.module))
                        late |= {name: getattr(found, source) for name, source in names.items()}
    return get_type_hints(of, localns=late, include_extras=True)


def _field(name: str, kind: str) -> list[str]:
    """Return a field in one line, or a long union in one line for each member."""
    if len(line := f"  {name}: {kind};") <= WIDTH or kind.endswith((">", "]")):
        return [line]
    lines = [f"    | {each}" for each in kind.split(" | ")]
    return [f"  {name}:", *lines[:-1], f"{lines[-1]};"]


def main() -> None:
    """Write the file."""
    FILE.write_text(typescript({**QUERIES, **JOBS}), encoding="utf-8")


if __name__ == "__main__":
    main()
