"""Write the list of model types again: defaults are those of the classes of the installed transformers.

`python -m docs.generate.families` updates src/whatwhere/models/configuration/model_types.json. What transformers has no
key for, such as which features make a pair, stays; `python -m docs.generate.model_types` compares it with the probe.
"""

import json
import sys
from dataclasses import MISSING, fields
from typing import Any

import transformers
from transformers import CONFIG_MAPPING

from docs.generate.model_types import CHOSEN
from whatwhere.models.configuration.model_types import FILE
from whatwhere.models.probe.tiny import quiet

WIDTH = 120


def main() -> None:
    """Write the file, and print what changed."""
    data = json.loads(FILE.read_text(encoding="utf-8"))
    data["transformers"] = transformers.__version__
    with quiet():
        for name, row in {**data["types"], **data["parts"]}.items():
            if name in CONFIG_MAPPING:
                _update(name, row)
    FILE.write_text(layout(data), encoding="utf-8")


def _update(name: str, row: dict[str, Any]) -> None:
    """Replace the defaults of a row, its nested sizes and its theta by those of transformers, where it has any."""
    kind = CONFIG_MAPPING[name]
    values = {}
    for each in fields(kind):
        value = each.default if each.default_factory is MISSING else each.default_factory()
        values[each.name] = None if value is MISSING else value
    named = {**values, **{alias: values.get(own) for alias, own in kind.attribute_map.items()}}
    for part in ("defaults", "nested"):
        for key, old in row.get(part, {}).items():
            # Where the class has no value, its code takes that of the row.
            if named.get(key) is not None and named[key] != old:
                sys.stderr.write(f"{name}: {key} is {named[key]!r}, not {old!r}\n")
                row[part][key] = named[key]
    parameters = kind(**CHOSEN.get(name, {})).to_dict().get("rope_parameters") or {}
    for label, own in row.get("rope", {}).get("sets", {}).items():
        chosen = parameters.get(label) if label else parameters
        theta = (chosen or {}).get("rope_theta")
        if theta is not None and theta != own.get("theta", 10_000.0) and not own.get("parameters"):
            sys.stderr.write(f"{name}: theta {label} is {theta!r}, not {own.get('theta')!r}\n")
            own["theta"] = float(theta)


def layout(data: dict[str, Any]) -> str:
    """Return the file: a line for each field of a type, or one line for what is short."""
    return f"{_lines(data, '', 3)}\n"


def _lines(value: Any, indent: str, depth: int) -> str:
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict) or not value or depth == 0 or (depth < 3 and len(line) + len(indent) < WIDTH - 30):
        return line
    inner = [f"{indent} {json.dumps(key)}: {_lines(each, indent + ' ', depth - 1)}" for key, each in value.items()]
    return "{\n" + ",\n".join(inner) + f"\n{indent}}}"


if __name__ == "__main__":
    main()
