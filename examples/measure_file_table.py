"""Measure a training step of a table in a file against one in memory, by its rows and by those of a batch.

Run it: python examples/measure_file_table.py [--rows 10000000] [--folder /var/tmp] [--write]. The file is removed
afterwards. With --write, the table replaces the one in docs/how-to/token-tables.md.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, sleep

PAGE = Path(__file__).resolve().parents[1] / "docs" / "how-to" / "token-tables.md"
COMMAND = "python examples/measure_file_table.py --write"
BEGIN, END = f"<!-- file table: written by {COMMAND} -->\n", "<!-- end of file table -->"
DIM, WARM, STEPS = 256, 10, 30
WAYS = ("memory", "file, cached", "file, from disk", "file, prefetched")
OTHER_WORK = 0.2


@dataclass(frozen=True)
class Measured:
    """One way to train one table.

    Args:
        way: where the rows are.
        rows: of the table.
        unique: different rows in a batch.
        milliseconds: of a step, the median.
        flush: seconds of the flush after all steps; None in memory.
        peak: GB of resident memory, of the whole process.
    """

    way: str
    rows: int
    unique: int
    milliseconds: float
    flush: float | None
    peak: float


def main() -> None:
    """Measure each way in a process of its own; print the table, and write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000, help="of the largest table")
    parser.add_argument("--unique", default="512,4096,16384", help="different rows of a batch")
    parser.add_argument(
        "--memory-rows", type=int, default=1_000_000, help="tables with more are measured in files alone"
    )
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="where the files are for a while")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        way, rows, unique, path = options.one
        print(json.dumps(asdict(measure(way, int(rows), int(unique), Path(path)))))
        return
    sizes = sorted({max(1, options.rows // 100), max(1, options.rows // 10), options.rows})
    found = []
    for rows in sizes:
        with TemporaryDirectory(dir=options.folder) as folder:
            for unique in (int(n) for n in options.unique.split(",")):
                for way in WAYS:
                    if way != "memory" or rows <= options.memory_rows:
                        found.append(_in_a_process(way, rows, unique, Path(folder) / "rows.safetensors"))
                        print(found[-1], flush=True)
    page = section(found)
    print(page)
    if options.write:
        text = PAGE.read_text(encoding="utf-8")
        before, after = text.split(BEGIN)[0], text.split(END)[1]
        PAGE.write_text(before + BEGIN + page + END + after, encoding="utf-8")


def _in_a_process(way: str, rows: int, unique: int, path: Path) -> Measured:
    command = [sys.executable, __file__, "--one", way, str(rows), str(unique), str(path)]
    run = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    return Measured(**json.loads(run.stdout))


def measure(way: str, rows: int, unique: int, path: Path) -> Measured:
    """Train a table for some steps on rows sampled evenly, where no step finds those of the step before.

    Args:
        way: one of WAYS.
        rows: of the table.
        unique: different rows in a batch.
        path: of the file, which is created if it is missing.
    """
    import numpy as np
    import torch

    from whatwhere import RowAdamW, TokenEmbedding
    from whatwhere.what.file_table import FileRowAdamW, FileTokenEmbedding

    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    flush: Callable[[], None] | None = None
    if way == "memory":
        table = TokenEmbedding(rows, DIM, dtype=torch.bfloat16)
        optimizer = RowAdamW(table)
    else:
        if not path.exists():
            FileTokenEmbedding.create(path, rows, DIM, dtype=torch.bfloat16, generator=generator)
        table = FileTokenEmbedding(path)
        optimizer = FileRowAdamW(table)
        flush = optimizer.flush
    numbers = np.random.default_rng(0)
    batches = [torch.from_numpy(numbers.choice(rows, unique, replace=False)) for _ in range(WARM + STEPS)]
    if way.startswith("file"):
        _warm(path) if way == "file, cached" else _drop_from_cache(path)
    times = []
    for n, ids in enumerate(batches):
        begin = perf_counter()
        vectors = table(ids)
        vectors.backward(vectors.detach())
        optimizer.step()
        optimizer.zero_grad()
        times.append(perf_counter() - begin)
        if way == "file, prefetched" and n + 1 < len(batches):
            table.prefetch(batches[n + 1])
            sleep(OTHER_WORK)
    begin = perf_counter()
    if flush is not None:
        flush()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    seconds = None if flush is None else perf_counter() - begin
    return Measured(way, rows, unique, median(times[WARM:]) * 1e3, seconds, peak)


def _warm(path: Path) -> None:
    with path.open("rb") as file:
        while file.read(1 << 24):
            pass


def _drop_from_cache(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def section(found: list[Measured]) -> str:
    """Return what was measured as Markdown, with the machine, versions, the date and the command.

    Args:
        found: what was measured.
    """
    from whatwhere.comparison.results import machine, versions

    lines = [
        f"A step of a table of bfloat16 with {DIM} features: lookup, gradient and update, the median of {STEPS}, on",
        "rows sampled evenly, one thread. `cached`: the table was read before; `from disk`: it was dropped from the",
        f"page cache; `prefetched`: likewise, and a thread read the rows during {OTHER_WORK} s of other work (a sleep)",
        "between two steps, which is not counted. The flush writes the rows of all steps and waits for the disk;",
        "memory is the peak of the process. `cached` is the first of the three: it alone writes the state of rows that",
        "had none.",
        "",
        "| rows | of a batch | rows are in | step, ms | flush, s | peak, GB |",
        "|---|---|---|---|---|---|",
    ]
    for one in found:
        flush = "" if one.flush is None else f"{one.flush:.2f}"
        cells = (f"{one.rows:,}", f"{one.unique:,}", one.way, f"{one.milliseconds:.1f}", flush, f"{one.peak:.2f}")
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", *_conclusions(found)]
    about, used, load = machine(), versions(), os.getloadavg()[1]
    where = f"{about.processor}, {about.cores} cores, {about.system}"
    what = ", ".join(f"{name} {used[name].split('+')[0]}" for name in ("torch", "python"))
    lines += [
        "",
        f"{where}; {what}; {date.today()}; load average of 5 minutes at the end {load:.1f}.",
        f"`{COMMAND}`",
        "",
    ]
    return "\n".join(lines)


def _conclusions(found: list[Measured]) -> list[str]:
    """Return what the table shows: what depends on the rows of the table, and what on those of a batch."""
    by = {(one.way, one.rows, one.unique): one for one in found}
    sizes, batches = sorted({one.rows for one in found}), sorted({one.unique for one in found})
    few, many = sizes[0], sizes[-1]

    def growth(way: str) -> str:
        return _between(by[way, many, n].milliseconds / by[way, few, n].milliseconds for n in batches)

    def of_a_row(rows: int, unique: int) -> float:
        changed = rows * (1 - (1 - unique / rows) ** (WARM + STEPS))
        return (by["file, cached", rows, unique].flush or 0) / changed

    flush = _between(of_a_row(many, n) / of_a_row(few, n) for n in batches)
    lines = [
        "Memory, and the rows that a step reads and writes, depend on the batch alone; their time does not quite.",
        f"From {few:,} to {many:,} rows a step from the page cache takes {growth('file, cached')} times as long, one",
        f"from the disk {growth('file, from disk')} times, and one whose rows were prefetched "
        f"{growth('file, prefetched')} times;",
        f"a flush takes {flush} times as long for each row that was changed.",
    ]
    if both := [size for size in sizes if ("memory", size, batches[0]) in by]:
        most = both[-1]
        times = (by["file, cached", most, n].milliseconds / by["memory", most, n].milliseconds for n in batches)
        lines += [
            f"With {most:,} rows a step from the page cache takes {_between(times)} times as long as one in memory."
        ]
    if many not in both:
        size = many * DIM * (2 + 4 + 8) / 1e9  # bfloat16, its master copy and two moments
        lines += [f"{many:,} rows are not measured in memory, where they and their state take {size:.0f} GB."]
    return [
        *lines,
        "Not in the table: AdamW reads and writes the whole table with the first flush after max(4,096, rows of the",
        f"table) steps; here are {WARM + STEPS}.",
    ]


def _between(ratios: Iterable[float]) -> str:
    all_of_them = sorted(ratios)
    low, high = f"{all_of_them[0]:.1f}", f"{all_of_them[-1]:.1f}"
    return low if low == high else f"{low} to {high}"


if __name__ == "__main__":
    main()
