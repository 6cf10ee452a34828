"""Damage files of some formats for some seconds, led by which lines of our readers the damage reaches.

From the root of the repository: python -m reliability.fuzz_process gguf,npz 600
"""

import random
import resource
import sys
import tempfile
from pathlib import Path

import atheris  # type: ignore[import-untyped]

with atheris.instrument_imports(include=["whatwhere"]):
    from reliability.fuzz_targets import targets
    from tests.models.checkpoint.damage import EDITS, PEAKS

MEMORY = 1 << 30
"""Bytes that the process may ask for beyond what it begins with: whatever asks for a terabyte fails at once."""


def mutate(content: bytes, most: int, seed: int) -> bytes:
    """Damage content behind its first byte: by libFuzzer's rules, or by ours, which know lengths and headers."""
    draw = random.Random(seed)
    which, kept = content[:1] or b"\0", content[1:]
    if draw.random() < 0.4 or not kept:
        return which + bytes(atheris.Mutate(kept, most - 1))
    for _ in range(draw.randint(1, 3)):
        kept = draw.choice(EDITS)(kept, draw.randrange(2**16), draw.randrange(2**41)) or b"\0"
    return which + kept[: most - 1]


def main(names: str, seconds: str, path: str = "") -> None:
    """Fuzz formats.

    Args:
        names: for `targets`, with commas; the first byte of an input says which of them it damages.
        seconds: how long.
        path: a folder to work in; what made a reader fail is left there.
    """
    folder = Path(path or tempfile.mkdtemp())
    work, corpus = Path(tempfile.mkdtemp(dir=folder)), folder / "corpus"
    corpus.mkdir(exist_ok=True)
    made = targets(work, names.split(","))
    for number, target in enumerate(made):
        (corpus / f"valid{number}").write_bytes(bytes([number]) + target.content)
        target.withstands(target.content)  # imports what it needs
    PEAKS.clear()  # it has the memory of imports
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))

    def one(content: bytes) -> None:
        number = (content[0] if content else 0) % len(made)
        before = list(PEAKS)
        made[number].withstands(content[1:])
        if before != PEAKS:
            (folder / "peak").write_text(f"{PEAKS[0][0]} {PEAKS[0][1]}")

    longest = 4096 + 4 * max(len(target.content) for target in made)
    rules = [f"-artifact_prefix={folder}/", f"-max_total_time={seconds}", "-timeout=20", f"-max_len={longest}"]
    # libFuzzer's own limit would count the memory of the process that started this one, which Linux hands on.
    rules += ["-rss_limit_mb=0", "-print_final_stats=1"]
    atheris.Setup([sys.argv[0], *rules, str(corpus)], one, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
