"""Measure the memory of inspect, neighbors, map, diff and repair on token tables of several GB.

Run it: python examples/measure_large_tables.py [--rows 4000000] [--folder /var/tmp]. It writes two safetensors files,
the same numbers as float32 and as bfloat16, and a repaired copy (8 GB for 4 million rows of 256), and removes them.
Linux only.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, sleep

import numpy as np

DIM, BLOCK = 256, 100_000


def main() -> None:
    """Print the seconds of each command, and the most memory of its own that it held: pages of files do not count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=4_000_000, help="of the table")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="where the files are for a while")
    options = parser.parse_args()
    with TemporaryDirectory(dir=options.folder) as folder:
        wide, narrow = write_tables(Path(folder), options.rows)
        picture = str(Path(folder) / "map.json")
        for command in (
            ("neighbors", str(narrow), "#5", "#70000"),
            ("map", str(narrow), "--out", picture),
            ("diff", str(narrow), str(wide)),
            ("inspect", str(narrow)),
            ("repair", str(narrow), str(Path(folder) / "repaired.safetensors")),
        ):
            peak, seconds = measure([sys.executable, "-m", "whatwhere", *command, "--json"])
            print(f"| {command[0]} | {peak:.2f} | {seconds:,.0f} |", flush=True)


def measure(command: list[str]) -> tuple[float, float]:
    """Run a command, and return its greatest anonymous memory in GB, seen every 50 ms, and its seconds."""
    begin, peak = perf_counter(), 0
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
        if found := re.search(r"RssAnon:\s+(\d+)", status):
            peak = max(peak, int(found[1]))
        sleep(0.05)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed with the status {process.returncode}.")
    return peak * 1024 / 1e9, perf_counter() - begin


def write_tables(folder: Path, rows: int) -> tuple[Path, Path]:
    """Write the same rows as float32 and bfloat16, some of them equal, zero and NaN; return both paths."""
    numbers = np.random.default_rng(0)
    paths = folder / "float32.safetensors", folder / "bfloat16.safetensors"
    with paths[0].open("wb") as wide, paths[1].open("wb") as narrow:
        wide.write(_header("F32", rows, 4))
        narrow.write(_header("BF16", rows, 2))
        for first in range(0, rows, BLOCK):
            block = numbers.standard_normal((min(BLOCK, rows - first), DIM), dtype=np.float32)
            if not first:
                block[:300] = 0.1 + 0.01 * block[:300]
                block[500:510], block[600:650], block[700] = 0.0, block[650:700], np.nan
            block.tofile(wide)
            bits = block.view(np.uint32)
            ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16).tofile(narrow)
    return paths


def _header(dtype: str, rows: int, size: int) -> bytes:
    fields = {"dtype": dtype, "shape": [rows, DIM], "data_offsets": [0, rows * DIM * size]}
    text = json.dumps({"embed_tokens.weight": fields}).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


if __name__ == "__main__":
    main()
