"""Memory at the peak of reading: valid files of every format, plain ones and the worst, with as many entries as fit.

Beyond the largest array that is returned, reading takes at most 4 times the size of the files and 64 MiB, or is refused
with the way out. JSON beside the weights is parsed in 40 times its size. A tokenizer that the tokenizers library builds
takes more: together with our list of words it counts as lost above 56 times. Each file is read by a process of its own,
whose resident memory is measured; pickles, which are read on request alone, too.
"""

import gc
import json
import os
import subprocess
import sys
import tempfile
import traceback
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from reliability.findings import Trial
from tests.models.checkpoint.samples import CONFIG, gguf_file, safetensors, saved
from whatwhere.errors import CheckpointError
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.models.checkpoint.files import BASE, JSON_TIMES, TIMES

_ROOT = Path(__file__).resolve().parents[1]
_STATUS = Path("/proc/self/status")
_TOKENIZER_TIMES = 56
"""Of the size of tokenizer.json, that its words and the tokenizer of the tokenizers library may take together."""
_PATH = "path"
_WIDTH = 100
"""Columns of a table; in text with four digits."""


@dataclass(frozen=True)
class Kind:
    """Files of one format.

    Args:
        write: writes about so many bytes into a folder, and returns the path to open.
        times: of their size that reading may take, beyond BASE and the largest array.
        most: bytes that are written at most, where more of such entries are refused.
    """

    write: Callable[[Path, int], Path]
    times: int = TIMES
    most: int = 1 << 40


def run(megabytes: int) -> tuple[Trial, ...]:
    """Read a file of each kind.

    Args:
        megabytes: of each.
    """
    command = [sys.executable, "-m", "reliability.memory", str(megabytes * 1_000_000)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False, env=environment)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    trials = [_trial(name, *found) for name, found in zip(KINDS, lines, strict=False)]
    if len(lines) < len(KINDS):
        trials.append(Trial([*KINDS][len(lines)], 1, 1, "the process ended early", (done.stderr[-2000:],)))
    return tuple(trials)


def _trial(name: str, size: int, grown: int, array: int, refusal: str) -> Trial:
    """Return what was measured, in words."""
    beyond = max(0, grown - array)
    lost = beyond > KINDS[name].times * size + BASE
    kept = f", of which {array / 1e6:.0f} MB are an array" if array / 1e6 >= 1 else ""
    seen = f"{'refused' if refusal else 'read'}: {size / 1e6:.1f} MB take {grown / 1e6:.0f} MB{kept}; "
    seen += f"{beyond / size:.1f} bytes for each of the file{', beyond the array' if kept else ''}"
    return Trial(name, 1, int(lost), seen, (f"{name}: {seen}; {refusal}",) if lost else ())


def main(size: str) -> None:
    """Write and read files of each kind, in processes of their own that begin with all that reading imports.

    Prints a list for each: the bytes of the files, those by which memory grew, those of the largest array, and why it
    was refused.

    Args:
        size: of the files of each kind, in bytes.
    """
    with tempfile.TemporaryDirectory() as folder:
        for number, kind in enumerate(KINDS.values()):
            (small := Path(folder) / str(number)).mkdir()
            _read(kind.write(small, 20_000))
    gc.collect()
    for kind in KINDS.values():
        with tempfile.TemporaryDirectory() as folder:
            _apart(partial(_written, kind, Path(folder), int(size)))
            _apart(partial(_measure, Path(folder)))


def _apart(call: Callable[[], object]) -> None:
    """Call a function in a process of its own, a copy of this one."""
    if number := os.fork():
        if os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]):
            raise SystemExit(1)
        return
    try:
        call()
        sys.stdout.flush()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def _written(kind: Kind, folder: Path, size: int) -> None:
    """Write files of a kind, and the path to open beside them."""
    path = kind.write(folder, min(size, kind.most))
    (folder / _PATH).write_text(str(path), encoding="utf-8")


def _measure(folder: Path) -> None:
    """Read everything that the path in a folder has, and print what it took."""
    path = Path((folder / _PATH).read_text(encoding="utf-8"))
    (folder / _PATH).unlink()
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    before, refusal, array = _read_from("VmRSS"), "", 0
    try:
        array = _read(path)
    except CheckpointError as problem:
        refusal = str(problem)
    sys.stdout.write(json.dumps([size, _read_from("VmHWM") - before, array, refusal]) + "\n")


def _read_from(field: str) -> int:
    """Return a number of bytes that the system states of this process."""
    lines = _STATUS.read_text(encoding="ascii").splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith(f"{field}:")))


def _read(path: Path) -> int:
    """Read all tensors, words and the tokenizer; return the bytes of the largest array."""
    checkpoint = Checkpoint.open(path, allow_pickle=True)
    largest = 0
    for name in checkpoint.tensors:
        largest = max(largest, checkpoint.array(name).nbytes)
    assert checkpoint.names is not None
    assert (checkpoint.words is None) or checkpoint.words
    assert checkpoint.tokenizer is None or checkpoint.tokenizer.get_vocab_size()
    return largest


def _table(size: int, dtype: str = "float32") -> np.ndarray:
    """Return a table of about so many bytes, which does not compress well."""
    rows = max(1, size // (_WIDTH * np.dtype(dtype).itemsize))
    return np.random.default_rng(0).standard_normal((rows, _WIDTH), np.float32).astype(dtype)


def _write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def _safetensors(folder: Path, size: int) -> Path:
    table = _table(size, "float16")
    return _write(folder / "a.safetensors", safetensors({"wte.weight": ("F16", table.shape, table.tobytes())}))


def _tensors(folder: Path, size: int, name: str = "a.safetensors", shape: tuple[int, ...] = ()) -> Path:
    """Write tensors of one number each."""
    each = len(json.dumps({"t100000": {"dtype": "U8", "shape": list(shape), "data_offsets": [100000, 100000]}}))
    return _write(
        folder / name, safetensors({f"t{n}": ("U8", shape, b"1") for n in range(size // each)}, {"format": "pt"})
    )


def _matrices(folder: Path, size: int) -> Path:
    return _tensors(folder, size, shape=(1, 1))


def _shards(folder: Path, size: int) -> Path:
    """Write the scalars of two shards, with their index."""
    places: dict[str, str] = {}
    for shard in ("a.safetensors", "b.safetensors"):
        count = size // 240
        tensors = {f"{shard[0]}.{n}": ("U8", (), b"1") for n in range(count)}
        _write(folder / shard, safetensors(tensors))
        places |= dict.fromkeys(tensors, shard)
    return _write(folder / "model.safetensors.index.json", json.dumps({"weight_map": places}).encode())


def _with_tokenizer(folder: Path, model: Mapping[str, object]) -> Path:
    _safetensors(folder, 20_000).rename(folder / "model.safetensors")
    _write(folder / "config.json", json.dumps(CONFIG).encode())
    parts = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder"))
    content: dict[str, object] = {"version": "1.0", **parts, "added_tokens": [], "model": model}
    _write(folder / "tokenizer.json", json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode())
    return folder


def _tokenizer_words(folder: Path, size: int) -> Path:
    vocab = {f"{n:x}": n for n in range(size // 15)}
    return _with_tokenizer(folder, {"type": "WordLevel", "vocab": vocab, "unk_token": "0"})


def _tokenizer_bpe(folder: Path, size: int) -> Path:
    """Write merges of letters, as GPT-2 has them, with a word beyond ASCII, for which Python takes four bytes."""
    letters = [chr(number) for number in range(0x100, 0x180)]
    words, merges = [*letters, "\U0001f600"], list[list[str]]()
    for one in _products(letters):
        if len(merges) * 40 > size:
            break
        merges.append([one[:-1], one[-1]])
        words.append(one)
    return _with_tokenizer(folder, {"type": "BPE", "vocab": {w: n for n, w in enumerate(words)}, "merges": merges})


def _products(letters: list[str]) -> Iterator[str]:
    """Yield words of two letters, then of three, and so on, so that each begins with one before it."""
    before = letters
    while True:
        after = []
        for begin in before:
            for letter in letters:
                yield begin + letter
                after.append(begin + letter)
        before = after


def _pieces(folder: Path, size: int) -> Path:
    """Write pieces as SentencePiece in JSON has them."""
    vocab = [["<unk>", 0.0], *([f"{n:x}", -1.5] for n in range(size // 15))]
    return _with_tokenizer(folder, {"type": "Unigram", "unk_id": 0, "vocab": vocab})


def _gguf(folder: Path, size: int) -> Path:
    path = folder / "sample.gguf"
    return _write(path, gguf_file(path, table=_table(4 * size)[:, :32].copy()))


def _gguf_words(folder: Path, size: int) -> Path:
    path = folder / "sample.gguf"
    return _write(path, gguf_file(path, words=[f"{n % 3844:02x}" for n in range(size // 11)]))


def _text(folder: Path, size: int, width: int = _WIDTH, head: bool = True, name: str = "words.txt") -> Path:
    """Write words with numbers."""
    numbers = b" 0.1234" * width if width > 1 else b" 1"
    count = max(3, size // (len(numbers) + 7))
    with (folder / name).open("wb") as out:
        out.write(f"{count} {width}\n".encode() if head else b"")
        for n in range(count):
            out.write(b"%x%b\n" % (n, numbers))
    return folder / name


def _text_narrow(folder: Path, size: int) -> Path:
    return _text(folder, size, 1)


def _glove(folder: Path, size: int) -> Path:
    return _text(folder, size, _WIDTH, head=False)


def _glove_narrow(folder: Path, size: int) -> Path:
    return _text(folder, size, 2, head=False)


def _one_line(folder: Path, size: int) -> Path:
    """Write one word with as many numbers as fit."""
    width = size // 4
    return _write(folder / "words.txt", f"1 {width}\nw".encode() + b" .25" * width + b"\n")


def _binary(folder: Path, size: int, width: int = _WIDTH) -> Path:
    row = np.full(width, 0.5, "<f4").tobytes()
    count = max(3, size // (len(row) + 7))
    with (folder / "words.bin").open("wb") as out:
        out.write(f"{count} {width}\n".encode())
        for n in range(count):
            out.write(b"%x " % n + row)
    return folder / "words.bin"


def _binary_narrow(folder: Path, size: int) -> Path:
    return _binary(folder, size, 1)


def _projector(folder: Path, size: int, width: int = _WIDTH) -> Path:
    line = "\t".join(["0.1234"] * width) + "\n"
    count = max(3, size // (len(line) + 7))
    _write(folder / "metadata.tsv", "".join(f"{n:x}\n" for n in range(count)).encode())
    return _write(folder / "vectors.tsv", (line * count).encode())


def _projector_narrow(folder: Path, size: int) -> Path:
    return _projector(folder, size, 1)


def _npy(folder: Path, size: int) -> Path:
    return _write(folder / "table.npy", saved(_table(size, "float16")))


def _npz(folder: Path, size: int) -> Path:
    np.savez(path := folder / "tables.npz", one=_table(size // 2), two=_table(size // 2))
    return path


def _npz_pressed(folder: Path, size: int) -> Path:
    """Write an array that is compressed to a hundredth, or nearly so."""
    table = np.zeros((max(1, size * 2 // 13), 150), np.float32)
    table[:, 0] = np.random.default_rng(0).standard_normal(len(table))
    np.savez_compressed(path := folder / "tables.npz", table=table)
    return path


def _npz_members(folder: Path, size: int) -> Path:
    with zipfile.ZipFile(folder / "tables.npz", "w") as archive:
        for n in range(max(1, size // 260)):
            archive.writestr(f"{n:x}.npy", saved(np.array(1, np.uint8)))
    return folder / "tables.npz"


def _results(folder: Path, size: int) -> Path:
    """Write results of a comparison with many numbers."""
    name = "models/rotary-0.safetensors"
    (folder / "models").mkdir()
    _tensors(folder / "models", 20_000, "rotary-0.safetensors")
    losses = [n / 8 for n in range(size // 10)]
    content = {"format": "whatwhere-results", "version": 3, "task": {"tokens": ["a"]},
               "runs": [{"scheme": "rotary", "seed": 0, "file": name, "losses": losses}]}  # fmt: skip
    _write(folder / "results.json", json.dumps(content).encode())
    return folder


def _pickle(folder: Path, size: int) -> Path:
    import torch

    torch.save({"wte.weight": torch.from_numpy(_table(size))}, path := folder / "model.pt")
    return path


KINDS: Mapping[str, Kind] = {
    "safetensors: a table in half precision": Kind(_safetensors),
    "safetensors: single numbers": Kind(_tensors, most=2_500_000),
    "safetensors: single numbers, more than are read": Kind(_tensors),
    "safetensors: matrices of one number": Kind(_matrices, most=2_500_000),
    "folder: shards of single numbers": Kind(_shards, most=4_000_000),
    "folder: a tokenizer of whole words": Kind(_tokenizer_words, _TOKENIZER_TIMES),
    "folder: a tokenizer of merges": Kind(_tokenizer_bpe, _TOKENIZER_TIMES),
    "folder: a tokenizer of weighted pieces": Kind(_pieces, _TOKENIZER_TIMES),
    "gguf: a table": Kind(_gguf),
    "gguf: words of two letters": Kind(_gguf_words),
    "word2vec: vectors": Kind(_text),
    "word2vec: words with one number": Kind(_text_narrow, most=6_000_000),
    "word2vec: words with one number, more than are read": Kind(_text_narrow),
    "word2vec: one word": Kind(_one_line, most=5_000_000),
    "word2vec-binary: vectors": Kind(_binary),
    "word2vec-binary: words with one number": Kind(_binary_narrow, most=7_000_000),
    "glove: vectors": Kind(_glove),
    "glove: words with two numbers": Kind(_glove_narrow),
    "projector: vectors with labels": Kind(_projector),
    "projector: one number for each label": Kind(_projector_narrow),
    "npy: a table in half precision": Kind(_npy),
    "npz: tables": Kind(_npz),
    "npz: a table compressed to a hundredth": Kind(_npz_pressed, most=4_000_000),
    "npz: single numbers": Kind(_npz_members),
    "results: numbers of a comparison": Kind(_results, JSON_TIMES),
    "pickle: a table": Kind(_pickle),
}

if __name__ == "__main__":
    main(*sys.argv[1:])
