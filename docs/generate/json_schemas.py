"""A JSON Schema of what each command prints with --json, written to docs/json: from the dataclass that it prints."""

import inspect
import json
import re
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import numpy as np
import torch

from page_types import hints
from whatwhere.analysis.token_neighbors import AnalogyAnswers, Neighbors, TokenSimilarity
from whatwhere.analysis.walkthrough import Walkthrough
from whatwhere.cli.studio import ExportedPage, OpenedPage
from whatwhere.comparison.answers import Answers
from whatwhere.installation import InstallationRecord
from whatwhere.models.golden import Golden
from whatwhere.report.comparison import ComparedRecord
from whatwhere.report.difference import DifferenceRecord
from whatwhere.report.inspection import InspectionRecord
from whatwhere.report.lint import CheckRecord
from whatwhere.report.paper import WrittenFiles
from whatwhere.report.probe import ProbeRecord
from whatwhere.report.tokens import MapFacts
from whatwhere.surgery.report import Report
from whatwhere.testing.report import Finding
from whatwhere.where.catalogue import SchemeDescription


@dataclass(frozen=True)
class CheckedLaws:
    """The laws that a port was checked by, as `Report.as_dict` has them; an infinite error is the text "inf"."""

    check: str
    settings: Mapping[str, object]
    passed: bool
    findings: Sequence[Finding]


PRINTED: Mapping[str, Any] = {
    "demo": ComparedRecord,
    "compare": ComparedRecord,
    "ask": Answers,
    "tables": WrittenFiles,
    "figures": WrittenFiles,
    "encode": Walkthrough,
    "schemes": list[SchemeDescription],
    "inspect": InspectionRecord,
    "check": CheckRecord,
    "diff": DifferenceRecord,
    "probe": ProbeRecord,
    "neighbors": Neighbors,
    "analogy": AnalogyAnswers,
    "similarity": TokenSimilarity,
    "map": MapFacts,
    "studio": OpenedPage | ExportedPage,
    "resize": Report,
    "extend": Report,
    "trim": Report,
    "repair": Report,
    "convert": Report,
    "golden": Golden,
    "verify": dict[str, CheckedLaws],
    "doctor": InstallationRecord,
}
"""What each command prints, by its name."""

_PLAIN = {str: "string", bool: "boolean", int: "integer", type(None): "null"}


def page(command: str) -> str:
    """Return the schema of what a command prints, as text."""
    definitions: dict[str, Any] = {}
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"What whatwhere {command} --json prints",
        **_schema(PRINTED[command], definitions),
    }
    if definitions:
        schema["$defs"] = dict(sorted(definitions.items()))
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def _schema(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a type; those of dataclasses are added to the definitions."""
    if get_origin(kind) is Annotated:
        return _schema(get_args(kind)[0], definitions)
    if kind is Any or kind is object:
        return {}
    if kind is float:  # a number that is not finite is written as null
        return {"type": ["number", "null"]}
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if isinstance(kind, type) and getattr(kind, "array_type", kind) in (np.ndarray, torch.Tensor):
        return {"type": "array"}
    origin = get_origin(kind) or kind
    if isinstance(origin, type) and is_dataclass(origin):
        return _object(
            origin, dict(zip(getattr(origin, "__parameters__", ()), get_args(kind), strict=True)), definitions
        )
    return _composed(kind, get_origin(kind), get_args(kind), definitions)


def _composed(kind: Any, origin: Any, parts: tuple[Any, ...], definitions: dict[str, Any]) -> dict[str, Any]:
    if origin is Literal:
        return {"enum": list(parts)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(part, definitions) for part in parts]}
    if origin is tuple and parts[-1] is not ...:
        return {"type": "array", "prefixItems": [_schema(part, definitions) for part in parts], "items": False}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _schema(parts[1], definitions)}
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return {"type": "array", "items": _schema(parts[0], definitions)}
    raise TypeError(f"{kind} has no JSON Schema: see docs/generate/json_schemas.py.")


def _object(kind: type, of: dict[Any, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the reference to a dataclass, of these types where it is generic."""
    name = "Of".join([kind.__name__, *(each.__name__ for each in of.values())])
    for base in getattr(kind, "__orig_bases__", ()):
        of |= _bound(get_origin(base), base)
    if name not in definitions:
        definitions[name] = {}  # a class may hold itself
        summary, about = _documented(kind)
        found = hints(kind)
        properties = {}
        for field in fields(kind):
            text = {"description": about[field.name]} if about.get(field.name) else {}
            held = found[field.name]
            parameters = getattr(held, "__parameters__", ())
            held = held[tuple(of[each] for each in parameters)] if parameters else of.get(held, held)
            properties[field.name] = {**text, **_schema(held, definitions)}
        if kind is Finding:
            properties["error"] = {**properties["error"], **_schema(float | Literal["inf"] | None, definitions)}
        definitions[name] = {
            "type": "object",
            **({"description": summary} if summary else {}),
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }
    return {"$ref": f"#/$defs/{name}"}


def _bound(generic: Any, alias: Any) -> dict[Any, Any]:
    """Return the type variables of a generic class with what an alias of it has in their place."""
    return dict(zip(getattr(generic, "__parameters__", ()), get_args(alias), strict=False))


def _documented(kind: type) -> tuple[str, dict[str, str]]:
    """Return the first paragraph of a docstring, and what a comment beside a field, or `Args:`, says of it."""
    text = inspect.cleandoc(kind.__doc__ or "")
    if text.startswith(f"{kind.__name__}("):  # made by dataclasses, where there is none
        text = ""
    head, _, rest = text.partition("\n\n")
    about = _documented(kind.__base__)[1] if is_dataclass(kind.__base__) else {}
    about |= re.findall(r"^    (\w+): .*  # (.*)$", inspect.getsource(kind), re.MULTILINE)
    names: list[str] = []
    for line in rest.partition("Args:\n")[2].partition("\n\n")[0].splitlines():
        indent, content = len(line) - len(line.lstrip()), line.strip()
        if indent == 4:
            listed, _, content = content.partition(": ")
            names = listed.split(", ")
            about |= dict.fromkeys(names, "")
        for name in names:
            about[name] = f"{about[name]} {content}".strip()
    return " ".join(head.split()), about
