"""The table of meshes in docs/scale.md, from the measurements in docs/meshes.json."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whatwhere.records import from_json
from whatwhere.report.plan import size
from whatwhere.report.text import number

DATA = Path(__file__).resolve().parents[1] / "meshes.json"
COMMAND = "python -m docs.generate.meshes && python -m docs.generate"
MESHES: Mapping[str, Mapping[str, Any]] = {
    "data 2 x shard 2": {"data": 2, "shard": 2},
    "data 2 x tensor 2": {"data": 2, "tensor": 2},
    "shard 2 x tensor 2": {"shard": 2, "tensor": 2},
    "shard 2 x context 2, zig-zag": {"shard": 2, "context": 2, "order": "zigzag"},
    "shard 2 x context 2, zig-zag, on a ring": {"shard": 2, "context": 2, "order": "zigzag", "keys": "ring"},
    "tensor 2 x context 2, striped": {"tensor": 2, "context": 2, "order": "striped"},
}


@dataclass(frozen=True)
class MeshCell:
    """One scheme on one mesh.

    Args:
        mesh: its name.
        difference: the largest from the losses of one process; None where it was refused.
        bytes: of weights, gradients and moments, at most in a process.
        error: the first line of the refusal.
    """

    mesh: str
    difference: float | None
    bytes: int
    error: str


@dataclass(frozen=True)
class MeshScheme:
    """One scheme on all meshes.

    Args:
        scheme: its name.
        first, last: loss of the first and the last step of one process.
        bytes: of weights, gradients and moments of one process.
        cells: the meshes.
    """

    scheme: str
    first: float
    last: float
    bytes: int
    cells: tuple[MeshCell, ...]


@dataclass(frozen=True)
class Measured:
    """What a measurement was made with.

    Args:
        torch, python, machine, date: of the measurement.
    """

    torch: str
    python: str
    machine: str
    date: str


@dataclass(frozen=True)
class MeshTable(Measured):
    """All schemes.

    Args:
        rows: the schemes.
    """

    rows: tuple[MeshScheme, ...]


def read_meshes() -> MeshTable:
    """Return the measurements of the file."""
    return from_json(MeshTable, json.loads(DATA.read_text(encoding="utf-8")), str(DATA))


def section(data: MeshTable) -> list[str]:
    """Return the section of the page, line by line.

    Args:
        data: the measurements.
    """
    refused = [(row.scheme, cell) for row in data.rows for cell in row.cells if cell.difference is None]
    rotary = next(row for row in data.rows if row.scheme == "rotary")
    return [
        "## One model on a mesh",
        "",
        "`whatwhere train` with each scheme of the catalogue on 4 processes (gloo, CPU): the largest difference of the "
        f"losses of 6 steps from those of one process, of {len(data.rows)} schemes, and what a process holds of "
        "`rotary`: weights, gradients and moments in float32. With `rotary` the loss falls from "
        f"{number(rotary.first)} to {number(rotary.last)}, on one process that holds {size(rotary.bytes)}.",
        "",
        f"Measured with torch {data.torch} and Python {data.python} on {data.machine}, {data.date}: `{COMMAND}`.",
        "",
        "| mesh | schemes trained | largest difference | of | a process holds, `rotary` |",
        "|---|---:|---:|---|---:|",
        *[_row(data, mesh) for mesh in MESHES],
        "",
        *(["Refused before training:", ""] if refused else []),
        *[f"- `{scheme}` on {cell.mesh}: {cell.error}" for scheme, cell in refused],
        *([""] if refused else []),
    ]


def _row(data: MeshTable, mesh: str) -> str:
    cells = {row.scheme: next(cell for cell in row.cells if cell.mesh == mesh) for row in data.rows}
    differences = {scheme: cell.difference for scheme, cell in cells.items() if cell.difference is not None}
    worst = max(differences, key=differences.__getitem__)
    parts = [mesh, str(len(differences)), number(differences[worst], 2), f"`{worst}`", size(cells["rotary"].bytes)]
    return f"| {' | '.join(parts)} |"
