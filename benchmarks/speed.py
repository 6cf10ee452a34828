"""Write docs/speed.md and docs/speed.svg from the results in benchmarks/results: `make docs`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import log
from pathlib import Path

from benchmarks import table
from benchmarks.cases import CASES
from benchmarks.records import CandidateRecord, Results, VariantRecord
from benchmarks.store import read
from benchmarks.targets import TARGETS, Verdict, verdicts
from whatwhere.report.html import Markup, element

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "benchmarks" / "results"
DEVICES = {"cpu": "CPU", "cuda": "GPU"}
IN_FIGURE = {
    "rotary": "float32, half, forward",
    "lookup": "float32, dim 768, sinusoidal",
    "token-step": "262,144 rows, uniform ids",
    "attention": "float32, 4,096 tokens, forward with backward",
    "window": "float32, 8,192 tokens, window 512, forward",
    "position-table": "131,072 positions, 64 pairs",
    "decoding": "float32, 4,095 keys in the cache",
    "loss": "float32, 128,256 rows",
    "training": "2 threads",
}
"""The variant of each case that the figure shows."""
NOT_MEASURED = "not measured"
WIDTH, LEFT, RIGHT, TOP, STEP = 840, 410, 20, 10, 20
"""Of the figure: ratios begin at LEFT, and each line is STEP high."""
TICKS = (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
STYLE = """
text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif; fill: #1b1f24 }
.head { font-weight: 600 } .page { fill: #ffffff } .ring { fill: #ffffff }
path { stroke-width: 1; fill: none } circle { stroke-width: 1.5 } .grid { stroke: #dde1e6 } .limit { stroke: #59606b }
.peer { stroke: #7b8190 } .ours { stroke: #0b57b0 } .peer.disk { fill: #7b8190 } .ours.disk { fill: #0b57b0 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6e9ee } .page, .ring { fill: #15181d } .grid { stroke: #333944 } .limit { stroke: #a3abb8 }
  .peer { stroke: #8e95a3 } .ours { stroke: #66a1fe } .peer.disk { fill: #8e95a3 } .ours.disk { fill: #66a1fe }
}
"""

HEAD = """# Speed

This page and its figure are written by `benchmarks/speed.py` from the files in `benchmarks/results`; nothing in it is
typed by hand. To measure on your machine, in a checkout, and to see the same table:

```text
pip install -e '.[bench]'
python -m benchmarks --out results.json   # all cases; run the same command again to resume
python -m benchmarks rotary decoding      # some
python -m benchmarks --quick              # small shapes: whether everything runs, not how fast
```
"""

HOW = """## What is measured, and how

The input layer is bound by memory bandwidth, so **the limit** of most cases is a copy of as many bytes as must be read
and written, into a tensor that exists already. Attention has PyTorch's attention without a bias as its limit;
decoding, losses, starting and training are compared with plain PyTorch or Python. A ratio of 1 is the limit.

- **Interleaved.** All candidates of a variant run in one process, once in every round, beside the limit, in an order
  that changes. The ratio is the median over rounds of the time divided by the limit's time *of the same round*, with
  its quartiles. Load from other processes affects all candidates alike.
- **The same computation.** Every candidate gets the same tensors, and its result is compared with float64. What can be
  prepared once for all layers (tables of angles) is prepared beforehand for all candidates, unless a row notes
  otherwise.
- **Fresh and pooled.** The C library maps a large tensor anew, touches it page by page and unmaps it again; on a
  virtual machine that costs several times the arithmetic. A kernel does not change that. So each case is timed in two
  processes: `fresh` with the C library's default, `pooled` with freed memory kept (`mallopt`: no mappings of their own
  for large blocks, no trimming). Targets hold for pooled unless they say otherwise. On a GPU, PyTorch's own allocator
  keeps memory, and there is one column.
- **Fallback** is whatwhere without its compiled kernels, in PyTorch's own operations (for neighbors in NumPy's).
- **Memory.** The peak of resident memory of one call beyond what was allocated before, results included, in a pass of
  its own with fresh allocation.
- **Errors** are those of the row's own result against float64; each table states which, absolute or relative.

`benchmarks/timing.py` contains all of the timing; the time of every round is in the JSON.
"""

LEFT_OUT = """## Packages without a row

- **torchtune** 0.6.1 does not import beside a current torchao (`torchao.dtypes.nf4tensor` is gone), so it is in no
  extra; where it does import, its row is measured.
- **fbgemm-gpu-cpu** is measured where it is installed: `pip install fbgemm-gpu-cpu==1.8.0`. Each of its
  versions is built for certain versions of PyTorch, so it is in no extra. On a CPU it has no Adam.
- **liger-kernel**, **cut-cross-entropy** and **flash-attn** have kernels for GPUs only, and are measured there if they
  are installed.
- **flex_attention** has no backward on the CPU; there its row is forward only.
"""


def page(results: Sequence[Results]) -> str:
    """Return docs/speed.md.

    Args:
        results: one for each machine that was measured; no case twice on one device.
    """
    by_device = _joined(results)
    machines = [_machine(result["settings"]["device"], result) for result in results]
    machines += [_machine(device, None) for device in DEVICES if device not in by_device]
    parts = [HEAD, HOW, "![Ratios to the limit, by case and candidate](speed.svg)\n", _targets(by_device)]
    parts += [_case(name, by_device) for name in CASES]
    parts += [LEFT_OUT, *machines]
    return "\n".join(parts)


def _joined(results: Sequence[Results]) -> dict[str, Results]:
    """Return the cases of all machines, by device."""
    by_device: dict[str, Results] = {}
    for result in results:
        others = by_device.setdefault(result["settings"]["device"], result)
        by_device[result["settings"]["device"]] = {**others, "cases": {**others["cases"], **result["cases"]}}
    return by_device


def _targets(by_device: Mapping[str, Results]) -> str:
    """Return the targets, each with the worst of its variants."""
    judged = {device: list(verdicts(result)) for device, result in by_device.items()}
    lines = ["## Targets", "", "Of several variants the worst one is shown; the tables below have them all.", ""]
    lines += [
        f"| case | candidate | target | {' | '.join(DEVICES.values())} |",
        "|---|---|---|" + "---|" * len(DEVICES),
    ]
    for target in TARGETS:
        cells = []
        for device in DEVICES:
            own = [verdict for verdict in judged.get(device, []) if verdict.target == target]
            cells.append(_worst(own) if target.device == device else "")
        lines.append(_line([target.case, target.candidate, target.words, *cells]))
    lines.append("")
    for device, result in by_device.items():
        codes = dict.fromkeys(f"{each['code']} of {each['date'][:10]}" for each in result["cases"].values())
        lines.append(f"{DEVICES[device]}: code {', '.join(codes)}; what has changed since is not in its figures.")
    lines.append("")
    for device in DEVICES:
        lines += [*_limits(device, judged.get(device, [])), *_unmeasured(device, judged.get(device, []))]
    return "\n".join(lines)


def _limits(device: str, judged: Iterable[Verdict]) -> list[str]:
    """Return what limits the targets that were missed on a device, those of one limit in one line."""
    limits: dict[str, list[str]] = {}
    for one in dict.fromkeys(verdict.target for verdict in judged if verdict.met is False):
        limits.setdefault(one.floor or "no limit is known.", []).append(f"**{one.case}, {one.candidate}, {one.words}**")
    lines = [f"- {'; '.join(missed)}: {floor}" for floor, missed in limits.items()]
    return [f"What was missed on the {DEVICES[device]}, and what limits it:", "", *lines, ""] if lines else []


def _unmeasured(device: str, judged: Iterable[Verdict]) -> list[str]:
    """Return the targets of which nothing was measured on a device."""
    measured = {verdict.target for verdict in judged if verdict.value is not None}
    words: dict[str, list[str]] = {}
    for target in TARGETS:
        if target.device == device and target not in measured:
            words.setdefault(f"- **{target.case}, {target.candidate}**", []).append(target.words)
    head = f"What was not measured on the {DEVICES[device]}, for none was at hand since these rows were added:"
    return [head, "", *(f"{name}: {'; '.join(each)}" for name, each in words.items()), ""] if words else []


def _worst(judged: Sequence[Verdict]) -> str:
    measured = [verdict for verdict in judged if verdict.value is not None]
    if not measured:
        return NOT_MEASURED
    worst = max(measured, key=lambda verdict: verdict.strain)
    met = sum(bool(verdict.met) for verdict in measured)
    of = "" if len(measured) == 1 else f" ({worst.variant}; {met} of {len(measured)} variants met)"
    return worst.words + of


def _case(name: str, by_device: Mapping[str, Results]) -> str:
    """Return the section of a case: what it is, then a table for each variant."""
    case = CASES[name]
    parts = [f"## {name}: {case.title}\n", case.about + "\n"]
    measured = {device: result["cases"][name] for device, result in by_device.items() if name in result["cases"]}
    if not measured:
        return "\n".join([*parts, f"{NOT_MEASURED.capitalize()} yet.\n"])
    for device, record in measured.items():
        rows = table.rows({**by_device[device], "cases": {name: record}})
        load = record["load"]
        parts.append(
            f"{DEVICES[device]}, {record['date'][:10]}, code {record['code']}; load average at the start "
            f"{_load(load['start'])}, at the end {_load(load['end'])}.\n"
        )
        parts += [
            _variant(variant, [row for row in rows if row.variant == variant["variant"]], case.regimes_on(device))
            for variant in record["variants"]
        ]
    return "\n".join(parts)


def _variant(variant: VariantRecord, rows: Sequence[table.Row], regimes: Sequence[str]) -> str:
    lines = [f"### {variant['variant']}", "", f"Limit: {variant['limit']}."]
    lines[-1] += f" Error: {variant['error']}." if variant["error"] else ""
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


def _machine(device: str, result: Results | None) -> str:
    title = f"## The {DEVICES[device]} of {'these numbers' if result is None else ', '.join(result['cases'])}"
    if result is None:
        absent = f"{NOT_MEASURED.capitalize()}: no {DEVICES[device]} was at hand."
        return f"{title}\n\n{absent} `python -m benchmarks --device {device}` measures one.\n"
    machine = result["machine"]
    caches = ", ".join(f"{name} {size}" for name, size in machine["caches"].items())
    facts = {
        "command": f"`{result['command']}`",
        "processor": f"{machine['processor']}, {machine['cores']} cores, {result['settings']['threads']} threads used",
        "GPU": machine.get("gpu", ""),
        "caches": caches,
        "memory": "" if machine["memory"] is None else f"{machine['memory'] / 2**30:.1f} GiB",
        "system": machine["system"],
        "kernels": machine["kernels"],
        "versions": ", ".join(f"{name} {version}" for name, version in result["versions"].items()),
    }
    return "\n".join([title, "", *(f"- {name}: {fact}" for name, fact in facts.items() if fact)]) + "\n"


def _load(load: Sequence[float] | None) -> str:
    return "unknown" if load is None else f"{load[0]:g}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def figure(results: Results) -> str:
    """Draw the ratios of one variant of each case, pooled as a disk and fresh as a ring.

    Args:
        results: of one device.

    Returns:
        docs/speed.svg.
    """
    lines: list[tuple[str, CandidateRecord | None]] = []
    shown = {name: variant for name, variant in table.variants(results) if IN_FIGURE.get(name) == variant["variant"]}
    for name in (name for name in IN_FIGURE if name in shown):
        lines += [("", None)] if lines else []
        lines.append((f"{name}: {IN_FIGURE[name]}", None))
        lines += [(row["candidate"], row) for row in shown[name]["rows"] if row["regimes"]]
    every = [value for _, row in lines if row for value in _medians(row).values()]
    low, high = min(every) / 1.3, max(every) * 1.3
    bottom = TOP + STEP * len(lines)

    def across(ratio: float) -> str:
        return f"{LEFT + (WIDTH - LEFT - RIGHT) * log(ratio / low) / log(high / low):.1f}"

    parts = [element("title", "Ratios to the limit"), element("style", Markup(STYLE))]
    parts.append(element("rect", class_="page", width=str(WIDTH), height=str(bottom + 50)))
    for tick in TICKS:
        if low <= tick <= high:
            kind = "limit" if tick == 1 else "grid"
            parts.append(element("path", class_=kind, d=f"M{across(tick)} {TOP}V{bottom}"))
            parts.append(_text(across(tick), bottom + 16, f"{tick:g}", "middle"))
    parts.append(
        _text(str((LEFT + WIDTH) // 2), bottom + 38, "time / the limit's time; disk: pooled, ring: fresh", "middle")
    )
    for number, (words, row) in enumerate(lines):
        y = TOP + STEP * number + STEP // 2
        parts += [_text("10", y + 4, words, kind="head")] if row is None else _drawn(across, y, row)
    size = {"viewBox": f"0 0 {WIDTH} {bottom + 50}", "role": "img", "xmlns": "http://www.w3.org/2000/svg"}
    return f"{element('svg', *parts, attributes=size)}\n"


def _medians(row: CandidateRecord) -> dict[str, float]:
    return {name: times["ratio"]["median"] for name, times in row["regimes"].items()}


def _drawn(across: Callable[[float], str], y: int, row: CandidateRecord) -> list[Markup]:
    """Draw the line of a candidate, with its ratios."""
    who = "ours" if row["ours"] else "peer"
    xs = {name: across(ratio) for name, ratio in _medians(row).items()}
    joined = element("path", class_=who, d=f"M{' '.join(f'{x} {y}' for x in xs.values())}")
    marks = [
        element("circle", class_=f"{who} {'ring' if name == 'fresh' else 'disk'}", cx=x, cy=str(y), r="3.5")
        for name, x in xs.items()
    ]
    return [_text(str(LEFT - 10), y + 4, row["candidate"], "end", "head" if who == "ours" else ""), joined, *marks]


def _text(x: str, y: int, words: str, anchor: str = "start", kind: str = "") -> Markup:
    named = {"class": kind} if kind else {}
    return element("text", words, attributes={"x": x, "y": str(y), "text-anchor": anchor, **named})


def committed() -> list[Results]:
    """Return the results in benchmarks/results.

    Raises:
        ResultsError: If a file cannot be read, or is of another version.
    """
    return [read(file) for file in sorted(FOLDER.glob("*.json"))]


def main() -> None:
    """Write the page and its figure."""
    results = committed()
    (ROOT / "docs" / "speed.md").write_text(page(results), encoding="utf-8")
    if (measured := _joined(results).get("cpu")) is not None:
        (ROOT / "docs" / "speed.svg").write_text(figure(measured), encoding="utf-8")


if __name__ == "__main__":
    main()
