"""Write docs/speed.md and docs/speed.svg from the results in benchmarks/results: `make docs`."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from whatwhere.benchmark import table
from whatwhere.benchmark.store import read
from whatwhere.benchmark.targets import TARGETS, Verdict, verdicts
from whatwhere.benchmark.works import WORKS
from whatwhere.page.svg import GRID, INK, MUTED, PAGE, canvas, color, drawing, to_svg

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "benchmarks" / "results"
DEVICES = {"cpu": "CPU", "cuda": "GPU"}
DRAWN = {
    "rotary": "float32, half-split, forward",
    "lookup": "float32, dim 768, sinusoidal",
    "token-step": "262,144 rows, uniform ids",
    "attention": "float32, 4,096 tokens, forward with backward",
    "position-table": "131,072 positions, 64 pairs",
    "decoding": "float32, 4,095 keys in the cache",
    "training": "2 threads",
}
"""One case of each work that has a ratio to show."""
NOT_MEASURED = "not measured"
STYLE = """
svg { --page: #ffffff; --ink: #1b1f24; --muted: #59606b; --grid: #dde1e6; --c0: #7b8190; --c2: #0b57b0; }
svg { background: var(--page); font-family: system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif; }
@media (prefers-color-scheme: dark) {
  svg { --page: #15181d; --ink: #e6e9ee; --muted: #a3abb8; --grid: #333944; --c0: #8e95a3; --c2: #66a1fe; }
}
"""

HEAD = """# Speed

This page and its figure are written by `benchmarks/speed.py` from the files in `benchmarks/results`; nothing in it is
typed by hand. To measure on your machine, and to see the same table:

```text
pip install -e '.[bench]'
whatwhere bench --out results.json        # all works; interrupted, the same command goes on
whatwhere bench rotary decoding           # some
whatwhere bench --quick                   # small shapes: whether everything runs, not how fast
```
"""

HOW = """## What is measured, and how

The input layer moves bytes more than it computes, so **the limit** of most works is a copy: as many bytes as must be
read and written, into a tensor that exists already. Attention has PyTorch's attention without a bias as its limit;
decoding, starting and training stand beside plain PyTorch or Python. A ratio of 1 is the limit.

- **Interleaved.** All candidates of a case run in one process and take their turn in every round, beside the limit, in
  an order that changes. The ratio is the median over rounds of the time divided by the limit's time *of the same
  round*, with its quartiles. Load that comes and goes hits all alike.
- **The same work.** Every candidate gets the same tensors, and its result is compared with float64. What can be
  prepared once for all layers (tables of angles) is prepared beforehand for everybody, unless a row says otherwise.
- **Fresh and pooled.** The C library maps a large tensor anew, touches it page by page and unmaps it again; on a
  virtual machine that costs several times the arithmetic. A faster kernel does not change that, and an allocator is
  no kernel. So each work is timed in two processes: `fresh` with the C library's default, `pooled` with freed memory
  kept (`mallopt`: no mappings of their own for large blocks, no trimming). Targets hold for pooled unless they say
  otherwise. On a GPU, PyTorch's own allocator keeps memory, and there is one column.
- **Memory.** The peak of resident memory of one call over what was held before, results included, in a pass of its own
  with fresh allocation.
- **Errors** are those of the row's own result against float64; each table says of what, and whether they are absolute.

`src/whatwhere/benchmark/timing.py` is the whole of the timing, on one page; every round is in the JSON.
"""

LEFT_OUT = """## Who is not here

- **torchtune** 0.6.1 does not import beside a current torchao (`torchao.dtypes.nf4tensor` is gone), so it is in no
  extra; where it does import, its row is measured.
- **fbgemm-gpu-cpu** is measured where it is installed: `pip install fbgemm-gpu-cpu==1.8.0`. Each of its
  versions is built for certain versions of PyTorch, so it is in no extra. On a CPU it has no Adam.
- **liger-kernel** and **flash-attn** have kernels for GPUs only, and are measured there if they are installed.
- **flex_attention** has no backward on the CPU; there its row is forward only.
"""


def page(results: Sequence[Mapping[str, Any]]) -> str:
    """Give docs/speed.md."""
    by_device = {found["settings"]["device"]: found for found in results}
    parts = [HEAD, HOW, "![Ratios to the limit, by work and candidate](speed.svg)\n", _targets(by_device)]
    parts += [_work(name, by_device) for name in WORKS]
    parts += [LEFT_OUT, *(_machine(device, by_device.get(device)) for device in DEVICES)]
    return "\n".join(parts)


def _targets(by_device: Mapping[str, Mapping[str, Any]]) -> str:
    """Give the targets, each with the worst of its cases."""
    judged = {device: list(verdicts(found)) for device, found in by_device.items()}
    lines = ["## Targets", "", "Of several cases the worst one is shown; the tables below have them all.", ""]
    lines += [
        f"| work | candidate | target | {' | '.join(DEVICES.values())} |",
        "|---|---|---|" + "---|" * len(DEVICES),
    ]
    for target in TARGETS:
        cells = []
        for device in DEVICES:
            found = [verdict for verdict in judged.get(device, []) if verdict.target == target]
            cells.append(_worst(found))
        lines.append(_line([target.work, target.candidate, target.words, *cells]))
    return "\n".join([*lines, "", *_floors(verdict for found in judged.values() for verdict in found)]) + "\n"


def _floors(found: Iterable[Verdict]) -> list[str]:
    """Say of each target that was missed what its floor is."""
    missed = {verdict.target: None for verdict in found if verdict.met is False}
    if not missed:
        return []
    told = [f"- **{one.work}, {one.candidate}, {one.words}**: {one.floor or 'no floor is known.'}" for one in missed]
    return ["What was missed, and the floor:", "", *told]


def _worst(found: Sequence[Verdict]) -> str:
    measured = [verdict for verdict in found if verdict.value is not None]
    if not measured:
        return NOT_MEASURED
    worst = max(measured, key=lambda verdict: verdict.strain)
    met = sum(bool(verdict.met) for verdict in measured)
    cases = "" if len(measured) == 1 else f" ({worst.case}; {met} of {len(measured)} cases met)"
    return worst.words + cases


def _work(name: str, by_device: Mapping[str, Mapping[str, Any]]) -> str:
    """Give the section of a work: what it is, then a table for each case."""
    work = WORKS[name]
    found = {device: found["works"].get(name) for device, found in by_device.items()}
    parts = [f"## {name}: {work.title}\n", work.about + "\n"]
    measured = {device: record for device, record in found.items() if record is not None}
    if not measured:
        return "\n".join([*parts, f"{NOT_MEASURED.capitalize()} yet.\n"])
    for device, record in measured.items():
        rows = table.rows(by_device[device] | {"works": {name: record}})
        load = record["load"]
        parts.append(
            f"{DEVICES[device]}, {record['date'][:10]}, code {record['code']}; load average at the start "
            f"{_load(load['start'])}, at the end {_load(load['end'])}.\n"
        )
        parts += [
            _case(case, [row for row in rows if row.case == case["case"]], work.regimes_on(device))
            for case in record["cases"]
        ]
    return "\n".join(parts)


def _case(case: Mapping[str, Any], rows: Sequence[table.Row], regimes: Sequence[str]) -> str:
    lines = [f"### {case['case']}", "", f"Limit: {case['limit']}."]
    lines[-1] += f" Error: {case['error']}." if case["error"] else ""
    lines += [
        "",
        _line(["candidate", *regimes, "time", "peak MiB", "error", "target"]),
        "|---|" + "---:|" * (len(regimes) + 3) + "---|",
    ]
    for row in rows:
        ratios = [f"{row.ratios[name]} ({row.spreads[name]})" if name in row.ratios else "" for name in regimes]
        name = f"**{row.candidate}**" if row.ours else row.candidate
        lines.append(_line([name, *ratios, row.time, row.peak, row.error, row.note or "<br>".join(row.verdicts)]))
    return "\n".join(lines) + "\n"


def _machine(device: str, found: Mapping[str, Any] | None) -> str:
    title = f"## The {DEVICES[device]} of these numbers"
    if found is None:
        told = f"{NOT_MEASURED.capitalize()}: no {DEVICES[device]} was at hand."
        return f"{title}\n\n{told} `whatwhere bench --device {device}` measures one.\n"
    machine = found["machine"]
    caches = ", ".join(f"{name} {size}" for name, size in machine["caches"].items())
    facts = {
        "command": f"`{found['command']}`",
        "processor": f"{machine['processor']}, {machine['cores']} cores, {found['settings']['threads']} threads used",
        "GPU": machine.get("gpu", ""),
        "caches": caches,
        "memory": "" if machine["memory"] is None else f"{machine['memory'] / 2**30:.1f} GiB",
        "system": machine["system"],
        "kernels": machine["kernels"],
        "versions": ", ".join(f"{name} {version}" for name, version in found["versions"].items()),
    }
    return "\n".join([title, "", *(f"- {name}: {fact}" for name, fact in facts.items() if fact)]) + "\n"


def _load(load: Sequence[float] | None) -> str:
    return "unknown" if load is None else f"{load[0]:g}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


@drawing
def figure(found: Mapping[str, Any]) -> str:
    """Draw the ratios of one case of each work, pooled as a disk and fresh as a ring."""
    lines: list[tuple[str, Mapping[str, Any]]] = []
    for name, case in DRAWN.items():
        for record in found["works"].get(name, {"cases": []})["cases"]:
            if record["case"] == case:
                lines += [("", {})] if lines else []
                lines.append((f"{name}: {case}", {}))
                lines += [(row["candidate"], row) for row in record["rows"] if row["regimes"]]
    height = 20 * len(lines)
    drawn, axes = canvas(780, height + 60, 350, 20, 50, 10)
    axes.set_xscale("log")
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.spines[["left"]].set_visible(False)
    axes.set_yticks([])
    axes.axvline(1.0, color=MUTED, linewidth=1)
    for place, (words, row) in enumerate(lines):
        _draw(axes, place, words, row)
    low, high = axes.get_xlim()
    ticks = [tick for tick in (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if low <= tick <= high]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.grid(axis="x", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel("time / the limit's time; disk: pooled memory, ring: fresh", color=INK, fontsize=12)
    return _alone(to_svg(drawn, "speed", "Ratios to the limit", "One case of each work; the tables have the numbers."))


def _draw(axes: Any, place: int, words: str, row: Mapping[str, Any]) -> None:
    """Draw one line: a heading, or a candidate with its two ratios."""
    ours = row.get("ours", False)
    style = {"color": INK, "fontsize": 12, "va": "center", "transform": axes.get_yaxis_transform()}
    weight = "bold" if not row or ours else "normal"
    axes.text(-0.02 if row else -0.83, place, words, ha="right" if row else "left", fontweight=weight, **style)
    ratios = {name: found["ratio"]["median"] for name, found in row.get("regimes", {}).items()}
    ink = color(2 if ours else 0)
    if len(ratios) > 1:
        axes.plot(list(ratios.values()), [place] * len(ratios), color=ink, linewidth=1)
    for name, value in ratios.items():
        face = PAGE if name == "fresh" else ink
        axes.plot([value], [place], marker="o", markersize=7, color=ink, markerfacecolor=face, markeredgewidth=1.5)


def _alone(svg: str) -> str:
    """Make a drawing of a page stand alone: its name space, and colors for light and dark."""
    start, end = svg.split(">", 1)
    return f'{start} xmlns="http://www.w3.org/2000/svg"><style>{STYLE}</style>{end}\n'


def committed() -> list[dict[str, Any]]:
    """Read the results that are there."""
    files = [FOLDER / f"{device}.json" for device in DEVICES]
    return [read(file) for file in files if file.is_file()]


def main() -> None:
    """Write the page and its figure."""
    results = committed()
    (ROOT / "docs" / "speed.md").write_text(page(results), encoding="utf-8")
    for found in results:
        if found["settings"]["device"] == "cpu":
            (ROOT / "docs" / "speed.svg").write_text(figure(found), encoding="utf-8")


if __name__ == "__main__":
    main()
