"""docs/guarantees.md, from docs/guarantees.json: which results of attention are the same bits, for every scheme.

`python -m docs.generate.guarantees` measures and writes the file, `python -m docs.generate` the page, and a test
measures again: what the file calls the same bits must be. Processors sum otherwise: run it on each, or beside that of
the processor with ATEN_CPU_CAPABILITY=avx2. To begin anew, remove the file.
"""

import json
import platform
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import torch
from torch import Tensor

import whatwhere as ww
from docs.generate.scale_page import MeasuredVersion
from whatwhere.comparison.folder import write_json
from whatwhere.parallel import heads_of
from whatwhere.position.positions import SHARD_ORDERS
from whatwhere.records import from_json
from whatwhere.testing.where import Layer, built

DATA = Path(__file__).resolve().parents[1] / "guarantees.json"
COMMAND = "python -m docs.generate.guarantees && python -m docs.generate"
LENGTHS = (48, 640)
"""Tokens of a sequence: attention takes another path from 512 on."""
LAST, MAX_LENGTH, REGIME = 8, 1024, 2048
DIM, HEADS, KEY_HEADS, HEAD_DIM = 64, 4, 2, 16
MOST = {"float32": 2.0**-16, "bfloat16": 2.0**-5}
"""The largest difference that is promised where bits differ, for values of size 1: 1.5e-05 and 3.1e-02."""


@dataclass(frozen=True)
class SameBits:
    """How far results of one way are from those of a sequence alone: 0 where all bits are the same.

    Args:
        way: its name.
        tokens: of the sequence.
        float32, bfloat16: the largest difference with vectors and parameters of this dtype.
    """

    way: str
    tokens: int
    float32: float
    bfloat16: float


@dataclass(frozen=True)
class Guarantee:
    """One scheme, for each length in all ways."""

    scheme: str
    cells: tuple[SameBits, ...]


@dataclass(frozen=True)
class Guarantees(MeasuredVersion):
    """All schemes.

    Args:
        rows: the schemes.
    """

    rows: tuple[Guarantee, ...]


class Sequences:
    """One sequence and others of a scheme's layer of attention, in one dtype.

    Args:
        name: of the scheme.
        tokens: of the sequence.
        dtype: of vectors and parameters.
    """

    def __init__(self, name: str, tokens: int, dtype: torch.dtype) -> None:
        torch.manual_seed(0)
        where = built(lambda: ww.scheme(name, DIM, HEADS, MAX_LENGTH), torch.device("cpu")).to(dtype)
        self.layer, self.tokens = Layer(where, DIM, HEADS, KEY_HEADS, HEAD_DIM).requires_grad_(False), tokens
        self.x = torch.randn(4, tokens + 11, DIM).to(dtype)
        self.own = self.x[2:3, :tokens]
        self.regime = REGIME if ww.catalogue[name].follows_length else None

    def attend(self, x: Tensor, p: ww.Positions | int) -> Tensor:
        return self.layer(x, ww.positions(p) if isinstance(p, int) else p, regime=self.regime)

    def alone(self) -> Tensor:
        return self.attend(self.own, self.tokens)

    def batched(self) -> Tensor:
        return self.attend(self.x[:, : self.tokens], self.tokens)[2:3]

    def left_padded(self) -> Tensor:
        mask = torch.arange(self.tokens + 11) >= torch.tensor([[0], [11]])
        x = torch.stack([self.x[0], torch.cat([self.x[1, :11], self.own[0]])])
        return self.attend(x, ww.Positions.from_mask(mask))[1:, :, 11:]

    def packed(self) -> Tensor:
        x = torch.cat([self.x[:1, :7], self.own, self.x[:1, 7:11]], dim=1)
        return self.attend(x, ww.Positions.packed([7, self.tokens, 4]))[:, :, 7:-4]

    def chunked(self) -> Tensor:
        third = self.tokens // 3
        return self.layer.decode(self.own, ww.positions(third), (third, self.tokens - 2 * third), self.regime)

    def decoded(self) -> Tensor:
        return self.layer.decode(self.own, ww.positions(self.tokens - LAST), (1,) * LAST, self.regime)

    def sharded(self, order: str) -> Tensor:
        """Attend as two processes do, each with its own queries, to keys that are gathered in their order."""
        p, where, parts = ww.positions(self.tokens), self.layer.where, []
        slots = p.shard_slots(2, order)
        back = slots.flatten().argsort()
        for own in slots:
            here = where.at(p.take(own), regime_length=self.regime)
            x = here.input(self.own[:, own])
            q, k, v = self.layer.heads(x)
            if (increments := here.increments(x)) is None:
                q, k = here.query_key(q, k)
            parts.append({"q": q, "k": k, "v": v, "of_tokens": here.gates(x) if increments is None else increments})
        k, v, of_all = (
            None if parts[0][name] is None else torch.cat([part[name] for part in parts], dim=2)[:, :, back]
            for name in ("k", "v", "of_tokens")
        )
        rows = []
        for own, part in zip(slots, parts, strict=True):
            here, q, keys, gates = where.at(p.take(own), p, regime_length=self.regime), part["q"], k, of_all
            if where.query_key is not None and where.query_key.by_content:
                (q, keys), gates = here.query_key(q, k, increments=of_all), None
            rows.append(here.attention(q, keys, v, gates=gates))
        return torch.cat(rows, dim=2)[:, :, back]

    def by_heads(self) -> Tensor:
        """Attend as two processes do, each with half of the heads."""
        x, rows = self.layer.where.at(self.tokens, regime_length=self.regime).input(self.own), []
        for half in range(2):
            (where,) = heads_of([self.layer.where], 2 * half, 2, total=HEADS)
            q, k, v = self.layer.heads(x)
            heads = [q[:, 2 * half : 2 * half + 2], k[:, half : half + 1], v[:, half : half + 1]]
            layer = Layer(where, DIM, 2, 1, HEAD_DIM)
            rows.append(layer(self.own, ww.positions(self.tokens), regime=self.regime, heads=heads))
        return torch.cat(rows, dim=1)


WAYS: dict[str, tuple[str, Callable[[Sequences], Iterable[Tensor]]]] = {
    "batched": ("in a batch with three other sequences", lambda given: [given.batched()]),
    "left-padded": ("behind 11 tokens of padding, beside a longer sequence", lambda given: [given.left_padded()]),
    "packed": ("between two other documents in one sequence", lambda given: [given.packed()]),
    "chunked": ("in three chunks, with a KV cache", lambda given: [given.chunked()]),
    "decoded": (f"all but {LAST} tokens at once, then one at a time", lambda given: [given.decoded()]),
    "by tokens": (
        f"half of the queries on each of two processes ({', '.join(SHARD_ORDERS)}), keys gathered",
        lambda given: map(given.sharded, SHARD_ORDERS),
    ),
    "by heads": ("half of the heads on each of two processes", lambda given: [given.by_heads()]),
}

_OTHER_ORDER = ("left-padded", "decoded")


def measure(name: str, lengths: Sequence[int] = LENGTHS) -> Guarantee:
    """Return how far a scheme's results are in each way from those of a sequence alone."""
    cells = []
    for tokens in lengths:
        most = {way: dict.fromkeys(MOST, 0.0) for way in WAYS}
        for dtype in MOST:
            given = Sequences(name, tokens, getattr(torch, dtype))
            alone = given.alone()
            for way, (_, results) in WAYS.items():
                apart = [float((result.double() - alone.double()).abs().max()) for result in results(given)]
                most[way][dtype] = max(apart)
        cells += [SameBits(way, tokens, **numbers) for way, numbers in most.items()]
    return Guarantee(name, tuple(cells))


def read_data() -> Guarantees:
    """Return the measurements of the file."""
    return from_json(Guarantees, json.loads(DATA.read_text(encoding="utf-8")), str(DATA))


_INTRODUCTION = """\
Serving engines are asked whether a text has the same answer alone and in a batch. For attention under each scheme this
page says which results are *the same bits*, and how far apart the others are. It is about what whatwhere computes: the
schemes, their tables, and attention. The matrix products of a model around it are PyTorch's, which may round otherwise
for other shapes.
"""
_PROMISED = """\
- *Where the table says `same bits`, they are*, in float32 and bfloat16, on each processor named below.
- *Where it has numbers*, these are the largest differences of any of them, of vectors of size 1; at most
  {float32:.1e} in float32 and {bfloat16:.1e} in bfloat16 is promised. The sums are the same, in another order: that
  of the keys in blocks, or of a product of matrices by which CARoPE, FoX and other schemes by content read vectors.

`tests/test_guarantees.py` measures every cell again, and fails where a promise breaks.
"""
_NOT_PROMISED = """\
- *The same bits on another machine, another version of PyTorch, or by another engine* (`engine="dense"`,
  FlexAttention, `torch.compile`): each sums in its own order. They agree as the numbers of the table do.
- *The same bits on a GPU*: not measured.
- *Attention on a ring*, which merges blocks of keys: [scale](scale.md) has its differences.
"""


def page(data: Guarantees) -> str:
    """Return the page of the measurements."""
    lines = ["# Guarantees: which results are the same bits", "", _INTRODUCTION]
    lines += ["Each way is compared with a sequence alone, all tokens at once:", ""]
    lines += [f"- *{way}*: {what}." for way, (what, _) in WAYS.items()]
    lines += ["", "## Promised", "", _PROMISED.format(**MOST), "## Not promised", "", _NOT_PROMISED]
    lines += [
        f"Measured with whatwhere {data.whatwhere}, torch {data.torch} and Python {data.python} on {data.machine}, "
        f"{data.date}: `{COMMAND}`. Two numbers are those of float32 and of bfloat16.",
    ]
    for tokens in LENGTHS:
        rows = [(row.scheme, [cell for cell in row.cells if cell.tokens == tokens]) for row in data.rows]
        always = [way for n, way in enumerate(WAYS) if all(same_bits(cells[n]) for _, cells in rows)]
        lines += ["", f"## {tokens} tokens, on a CPU", ""]
        lines += [f"The same bits for every scheme: {', '.join(always)}.", ""] if always else []
        lines += [f"| scheme | {' | '.join(WAYS)} | on a GPU |", f"|---|{'---|' * len(WAYS)}---|"]
        lines += [f"| `{name}` | {' | '.join(map(_cell, cells))} | not measured |" for name, cells in rows]
    return "\n".join([*lines, ""])


def same_bits(cell: SameBits) -> bool:
    """Return whether the same bits are promised; where sums have another order, equal ones are chance."""
    return cell.way not in _OTHER_ORDER and cell.float32 == cell.bfloat16 == 0


def _cell(cell: SameBits) -> str:
    return (
        "same bits" if same_bits(cell) else ", ".join(f"{x:.0e}" if x else "0" for x in (cell.float32, cell.bfloat16))
    )


def joined(one: Guarantee, other: Guarantee) -> Guarantee:
    """Return the largest differences of a scheme on two processors."""
    pairs = zip(one.cells, other.cells, strict=True)
    return Guarantee(
        one.scheme,
        tuple(SameBits(a.way, a.tokens, max(a.float32, b.float32), max(a.bfloat16, b.bfloat16)) for a, b in pairs),
    )


def main() -> None:
    """Measure all schemes, and write the file: the largest differences of all processors that were measured."""
    rows = []
    for name in ww.catalogue:
        sys.stderr.write(f"{name}\n")
        rows.append(measure(name))
    machine = f"{platform.machine()} with {torch.backends.cpu.get_cpu_capability()}"
    versions = str(torch.__version__), platform.python_version()
    if DATA.is_file() and (before := read_data()).torch == versions[0]:
        rows = [joined(*pair) for pair in zip(before.rows, rows, strict=True)]
        machine = ", ".join(sorted({machine, *before.machine.split(", ")}))
    today = datetime.now(UTC).date().isoformat()
    write_json(DATA, Guarantees(*versions, machine, today, ww.__version__, tuple(rows)))


if __name__ == "__main__":
    main()
