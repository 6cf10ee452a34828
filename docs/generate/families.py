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

WIDTH = 90
"""Letters of a row that is written as one line."""


def main() -> None:
    """Write the file, and print what changed."""
    data = json.loads(FILE.read_text(encoding="utf-8"))
    data["transformers"] = transformers.__version__
    with quiet():
        for name, row in data["types"].items():
            for line in update(name, row):
                sys.stderr.write(f"{name}: {line}\n")
    FILE.write_text(layout(data), encoding="utf-8")


def update(name: str, row: dict[str, Any]) -> list[str]:
    """Replace the defaults of a row, its nested sizes and its theta by those of transformers; return what changed."""
    kind = CONFIG_MAPPING[name]
    values = {each.name: each.default if each.default_factory is MISSING else None for each in fields(kind)}
    values |= {alias: values.get(own) for alias, own in kind.attribute_map.items()}
    changed = []
    for key, old in [*row.get("defaults", {}).items(), *row.get("nested", {}).items()]:
        own = row["defaults"] if key in row.get("defaults", {}) else row["nested"]
        value = values.get(key)
        # Where the class has no value, its code takes that of the row.
        if value not in (None, MISSING) and value != old:
            changed.append(f"{key} is {value!r}, not {old!r}")
            own[key] = value
    parameters = kind(**CHOSEN.get(name, {})).to_dict().get("rope_parameters") or {}
    for label, own in row.get("rope", {}).get("sets", {}).items():
        chosen = parameters.get(label) if label else parameters
        theta, old = (chosen or {}).get("rope_theta"), own.get("theta", 10_000.0)
        if theta is not None and theta != old and not own.get("parameters"):
            changed.append(f"theta is {theta!r}, not {old!r}")
            own["theta"] = float(theta)
    return changed


def layout(data: dict[str, Any]) -> str:
    """Return the file: a line for each field of a type, or one line for what is short."""
    return f"{_lines(data, '', 3)}\n"


def _lines(value: Any, indent: str, depth: int) -> str:
    line = json.dumps(value, ensure_ascii=False)
    short = depth < 3 and len(line) + len(indent) < WIDTH
    if not isinstance(value, dict) or not value or depth == 0 or short:
        return line
    inner = [f"{indent} {json.dumps(key)}: {_lines(each, f'{indent} ', depth - 1)}" for key, each in value.items()]
    return "{\n" + ",\n".join(inner) + f"\n{indent}}}"


if __name__ == "__main__":
    main()
