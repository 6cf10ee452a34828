"""The table of docs/scale.md, from the measurements in docs/scale.json: every scheme on several processes."""

import json
from dataclasses import dataclass
from pathlib import Path

from docs.generate.table_costs import FORMULAS, TableSettings, expected_rows, size, table_costs
from whatwhere.records import from_json
from whatwhere.report.text import number, percent

DATA = Path(__file__).resolve().parents[1] / "scale.json"
HOLDINGS = DATA.with_name("holdings.json")
HELD_COMMAND = "python -m docs.generate.holdings && python -m docs.generate"
COMMAND = "python -m docs.generate.scale && python -m docs.generate"
RANKS = 4
WAYS = {
    "DDP": "the losses of 4 steps with AdamW, a quarter of the batch on each process",
    "FSDP2": "the same, with `fully_shard` of each block and of the model, whose table is tied",
    "head shards": "loss and gradients of all parameters in one step of `examples/train_distributed.py`, with a head, "
    "hidden features and rows of the token table on each process (`heads_of`, `shard_vocabulary`)",
    "context, gathered": "the same with a quarter of the tokens and of the weights on each process, in contiguous, "
    "zig-zag and striped order, with keys gathered",
    "context, ring": "the same with keys on a ring (`ring_attention`)",
    "checkpointing": "gradients with activation checkpointing of each block, reentrant and not (one process)",
    "compile": "gradients of the model captured by torch.compile without a graph break, by its backend aot_eager, or "
    "by Inductor where that one fails (one process)",
    "export": "logits of 4,096 tokens of a model that was exported by 24 (one process)",
}

_INTRODUCTION = (
    "The three lines stay the same at each size: `where.at(positions)`, `here.query_key(q, k)` and "
    "`here.attention(q, k, v)`. What changes is what a process passes to them, and where the rows of the token table "
    "are. Most rows of a large table are idle in a step, so what it costs depends on how it is held."
)
_COMPUTED = (
    "Computed, not measured: bytes of each process for an input table in float32 with AdamW, 8,192 tokens of each "
    "process drawn by Zipf's law. `fully_shard` gathers bfloat16 and reduces float32; vocabulary shards are groups of "
    "8 processes with the same tokens, over which `fully_shard` spreads each shard."
)
_MEASURED = (
    f"A Transformer of two layers and four heads under each scheme of the catalogue, on {RANKS} processes joined by "
    "gloo on a CPU, against one process: the largest difference. Nothing here was run on NCCL or on GPUs."
)
_EARLIER_MODEL = (
    "The columns *head shards* and *context* were measured with the sharded model that whatwhere 0.2.0 trained by a "
    "command of its own, and which `examples/train_distributed.py` has replaced since: they were not measured again."
)
_UNITS = (
    "Losses are about 5, logits about 1; gradients are compared as a share of the parameter's largest one, or of a "
    "hundredth of the model's if that is larger."
)
_TABLES = ((131_072, 4096), (1_048_576, 8192))
_RANKS = (8, 64, 1024)
TOKENS = 8192
_SIZES = (
    "| what is too large | what to do | guide |",
    "|---|---|---|",
    "| nothing | one process: compiled kernels, `RowAdamW` | [optimizer](optimizer.md) |",
    "| the batch | replicas: `DistributedDataParallel` | [Many GPUs](how-to/many-gpus.md) |",
    "| the model | `fully_shard` of each block | [Many GPUs](how-to/many-gpus.md) |",
    "| a layer | heads: `heads_of(wheres, first, count)` | [Many GPUs](how-to/many-gpus.md) |",
    "| the sequence | a part of the positions on each process: keys gathered, or on a ring | "
    "[Many GPUs](how-to/many-gpus.md) |",
    "| the token table | rows on several processes, or in a file | [Many GPUs](how-to/many-gpus.md), "
    "[token tables](how-to/token-tables.md) |",
    "| all of these at once | `examples/train_distributed.py` | [Many GPUs](how-to/many-gpus.md) |",
    "| the number of runs | `compare` on several machines | [Many runs](how-to/many-runs.md) |",
)


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
class MeasuredVersion(Measured):
    """What a measurement was made with, and the version of whatwhere that was measured."""

    whatwhere: str


@dataclass(frozen=True)
class Cell:
    """One way to split the work, under one scheme.

    Args:
        way: its name.
        difference: the largest from one process; None where it stopped.
        error: the first line of the error that stopped it.
    """

    way: str
    difference: float | None
    error: str


@dataclass(frozen=True)
class SchemeRow:
    """One scheme in all ways."""

    scheme: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class ScaleTable(MeasuredVersion):
    """All schemes.

    Args:
        rows: the schemes.
    """

    rows: tuple[SchemeRow, ...]


@dataclass(frozen=True)
class Held:
    """One way to hold a token table.

    Args:
        way: its name.
        shards: processes that share the vocabulary, where it is sharded.
        compute_bytes: of an element that `fully_shard` gathers.
        planned, measured: bytes that a process keeps between steps, has at most, and sends in a step.
    """

    way: str
    shards: int
    compute_bytes: int
    planned: tuple[int, int, int]
    measured: tuple[int, int, int]


@dataclass(frozen=True)
class Holdings(MeasuredVersion):
    """All ways.

    Args:
        rows, dim, tokens, ranks: of the table, of a process in a step, and of the processes.
        ways: that were measured.
    """

    rows: int
    dim: int
    tokens: int
    ranks: int
    ways: tuple[Held, ...]


def read_data() -> ScaleTable:
    """Return the measurements of the file."""
    return from_json(ScaleTable, json.loads(DATA.read_text(encoding="utf-8")), str(DATA))


def read_holdings() -> Holdings:
    """Return the measurements of the ways to hold a table."""
    return from_json(Holdings, json.loads(HOLDINGS.read_text(encoding="utf-8")), str(HOLDINGS))


def page(data: ScaleTable, holdings: Holdings) -> str:
    """Return the page of the measurements, and of those of the ways to hold a table."""
    worst = max(cell.difference for row in data.rows for cell in row.cells if cell.difference is not None)
    stopped = [(row.scheme, cell) for row in data.rows for cell in row.cells if cell.difference is None]
    return "\n".join(
        [
            "# From one core to a thousand GPUs",
            "",
            _INTRODUCTION,
            "",
            *_SIZES,
            "",
            "## What a token table costs",
            "",
            _COMPUTED,
            "",
            *_costs(),
            "",
            FORMULAS,
            "",
            *_fading(),
            "",
            *_held(holdings),
            "",
            "Ways by rows save nothing for a table that is also the output projection: its gradient has all rows.",
            "",
            "## Every scheme on several processes",
            "",
            _MEASURED,
            "",
            f"Measured with {_versions(data)}: `{COMMAND}`.",
            "",
            *([_EARLIER_MODEL, ""] if data.whatwhere.startswith("0.2.0") else []),
            *[f"- *{way}*: {what}." for way, what in WAYS.items()],
            "",
            f"{_UNITS} The largest difference of the table is {number(worst, 2)}.",
            "",
            f"| scheme | {' | '.join(WAYS)} |",
            f"|---|{'---:|' * len(WAYS)}",
            *[f"| `{row.scheme}` | {' | '.join(_cell(cell) for cell in row.cells)} |" for row in data.rows],
            "",
            *(["Stopped by an error:", ""] if stopped else []),
            *[f"- `{scheme}`, {cell.way}: {cell.error}" for scheme, cell in stopped],
        ]
    )


def _versions(data: MeasuredVersion) -> str:
    packages = f"whatwhere {data.whatwhere}, torch {data.torch} and Python {data.python}"
    return f"{packages} on {data.machine}, {data.date}"


def _costs() -> list[str]:
    """Return a table of the ways to hold a table: memory at the most and bytes sent, at several sizes."""
    heading = " | ".join(f"{n:,} processes" for n in _RANKS)
    lines: list[str] = []
    for vocab, dim in _TABLES:
        own = [table_costs(TableSettings(vocab, dim, ranks)) for ranks in _RANKS]
        lines += [
            *([""] if lines else []),
            f"| {vocab:,} x {dim:,}: at most held, and sent in a step | {heading} |",
            f"|---|{'---:|' * len(_RANKS)}",
        ]
        for ways in zip(*own, strict=True):
            cells = " | ".join(f"{size(way.peak)}, {size(way.sent)}" for way in ways)
            lines.append(f"| {ways[0].name} | {cells} |")
    return lines


def _held(data: Holdings) -> list[str]:
    """Return a table of what was computed and what was measured, by way."""
    lines = [
        f"Measured with {data.rows:,} x {data.dim}, float32 unless named, {data.tokens} tokens of each of "
        f"{data.ranks} processes (gloo, CPU), {_versions(data)}: `{HELD_COMMAND}`. "
        "Memory is what PyTorch allocated; bytes sent are those that Linux counted for a process's TCP connections.",
        "",
        "| computed / measured | kept between steps | at most held | sent in a step |",
        "|---|---:|---:|---:|",
    ]
    for way in data.ways:
        pairs = zip(way.planned, way.measured, strict=True)
        cells = " | ".join(f"{size(computed)} / {size(found)}" for computed, found in pairs)
        lines.append(f"| {_label(way, data.ranks)} | {cells} |")
    return [
        *lines,
        "",
        "gloo makes an all-reduce of the reduce-scatter of `fully_shard`, which sends its bytes twice; and on the CPU "
        "PyTorch before 2.15 copies bfloat16 gradients once more (2 bytes each) as it converts them to float32 for it; "
        "2.15 does without, and without the copy of float32 gradients. NCCL was "
        "not run.",
    ]


def _label(way: Held, ranks: int) -> str:
    """Return the way, with what differs from float32 and from a vocabulary that all processes share."""
    shared = f"{way.way} of {way.shards}" if way.way == "vocabulary shards" and way.shards < ranks else way.way
    return f"{shared}, bfloat16" if way.compute_bytes == 2 else shared


def _fading() -> list[str]:
    """Return where rows lose: which share of a table a step changes, and up to how many processes gathering pays."""
    lines = []
    for vocab, _ in _TABLES:
        shares = ", ".join(f"{percent(expected_rows(vocab, TOKENS * n) / vocab)} at {n:,}" for n in _RANKS)
        lines.append(
            f"- Of {vocab:,} rows a step changes {shares} processes, so that updating rows alone saves less and less. "
            "Gathering rows sends less than reducing a dense gradient up to "
            f"{int(2 * vocab / expected_rows(vocab, TOKENS)):,} processes; sending them to their owners always does."
        )
    return lines


def _cell(cell: Cell) -> str:
    if cell.difference is None:
        return "stopped"
    return number(cell.difference, 1) if cell.difference else "0"
