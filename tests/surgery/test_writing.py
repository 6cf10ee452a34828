"""Files that appear whole or not at all, and never where something is read from."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from whatwhere.errors import CheckpointError
from whatwhere.long_work import reports_to
from whatwhere.models.checkpoint.base import STORED_TYPES
from whatwhere.models.checkpoint.safetensors import Part, copied, read_header, write_safetensors
from whatwhere.surgery import convert_dtype, convert_format, resize_checkpoint

from ..systems import unix
from .conftest import Save, digests


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@contextmanager
def writing_calls(function: Callable[[object], object]) -> Iterator[None]:
    """Call a function when writing begins, and for each chunk that is written."""
    token = reports_to.set(lambda work: function(work) if work.step == "writing" else None)
    try:
        yield
    finally:
        reports_to.reset(token)


def test_what_is_copied_is_read_back_by_the_formats_own_reader(tmp_path: Path) -> None:
    tensors = {
        "wide": torch.arange(5, dtype=torch.float64),
        "a": torch.randn(3, 4).bfloat16(),
        "whole": torch.tensor([-1, 2**40]),
        "eight": torch.randn(4, 4).to(torch.float8_e4m3fn),
        "flag": torch.tensor([True, False, True]),
        "one": torch.tensor(3.5),
        "none": torch.zeros(0, 7),
        "ü": torch.randn(2, 2).half(),
    }
    save_file(tensors, tmp_path / "in.safetensors", {"format": "pt", "who": "é"})
    stored, metadata = read_header(tmp_path / "in.safetensors")
    progress: list[int] = []
    parts = [copied(part) for part in stored.values()]
    size = write_safetensors(tmp_path / "out.safetensors", parts, metadata, progress.append)
    assert size == (tmp_path / "out.safetensors").stat().st_size
    assert digests(tmp_path / "out.safetensors") == digests(tmp_path / "in.safetensors")
    written, metadata = read_header(tmp_path / "out.safetensors")
    assert metadata == {"format": "pt", "who": "é"}
    assert all(part.offset % STORED_TYPES[part.dtype].bytes == 0 for part in written.values()), "all are aligned"
    assert sum(progress) == sum(part.bytes for part in stored.values())


def test_a_part_of_another_size_than_declared_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="has 2 bytes rather than 3"):
        write_safetensors(tmp_path / "out", [Part("a", "uint8", (3,), lambda: [b"12"])], {})
    with pytest.raises(CheckpointError, match="two tensors with the same name"):
        write_safetensors(tmp_path / "out", [Part("a", "uint8", (1,), lambda: [b"1"])] * 2, {})
    with pytest.raises(CheckpointError, match="Q4_0, which safetensors cannot store"):
        write_safetensors(tmp_path / "out", [Part("a", "Q4_0", (32,), list)], {})


def test_no_input_is_overwritten_by_any_name(save: Save, tmp_path: Path) -> None:
    folder, _ = save("gpt2")
    weights = folder / "model.safetensors"
    before = digests(folder)
    link, hard = tmp_path / "link.safetensors", tmp_path / "hard.safetensors"
    link.symlink_to(weights)
    hard.hardlink_to(weights)
    (tmp_path / "same").symlink_to(folder)
    named = [weights, link, hard, folder / ".." / "model" / "model.safetensors"]
    pairs = [(weights, out) for out in named] + [(link, weights), (hard, weights)]
    for source, out in (*pairs, *((folder, out) for out in (folder, tmp_path / "same", tmp_path))):
        with pytest.raises(CheckpointError, match="an input is never overwritten"):
            resize_checkpoint(source, out, vocab_size=40, force=True)
        with pytest.raises(CheckpointError, match="never overwritten"):
            convert_format(source, out, "safetensors", force=True)
    assert digests(folder) == before
    assert names(tmp_path) == ["hard.safetensors", "link.safetensors", "model", "same"]


def test_a_folder_of_links_is_read_and_not_replaced(save: Save, tmp_path: Path) -> None:
    """The cache of Hugging Face is one: names here, contents there."""
    folder, _ = save("gpt2")
    cache = tmp_path / "cache"
    cache.mkdir()
    for path in folder.iterdir():
        (cache / path.name).symlink_to(path)
    with pytest.raises(CheckpointError, match="never overwritten"):
        resize_checkpoint(cache, folder, vocab_size=40, force=True)
    resize_checkpoint(cache, tmp_path / "out", vocab_size=40)
    assert not any(path.is_symlink() for path in (tmp_path / "out").iterdir())
    assert (tmp_path / "out" / "notes.txt").read_text() == "kept"


def test_what_is_there_stays_unless_forced(save: Save, tmp_path: Path) -> None:
    folder, _ = save("gpt2")
    out, file = tmp_path / "out", tmp_path / "out.safetensors"
    for source, target in ((folder, out), (folder / "model.safetensors", file)):
        resize_checkpoint(source, target, vocab_size=38)
        with pytest.raises(CheckpointError, match="exists already"):
            resize_checkpoint(source, target, vocab_size=40)
        resize_checkpoint(source, target, vocab_size=40, force=True)
        assert "(40, 64)" in digests(target)["transformer.wte.weight"]
    dangling = tmp_path / "dangling.safetensors"
    dangling.symlink_to(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="exists already"):
        resize_checkpoint(folder / "model.safetensors", dangling, vocab_size=40)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "diary.txt").write_text("dear")
    with pytest.raises(CheckpointError, match="is not the folder of a model, and --force replaces nothing else"):
        resize_checkpoint(folder, mine, vocab_size=40, force=True)
    with pytest.raises(CheckpointError, match="is not a folder, so new cannot be written there"):
        resize_checkpoint(folder, tmp_path / "not" / "new", vocab_size=40)
    assert (mine / "diary.txt").read_text() == "dear"
    assert not [name for name in names(tmp_path) if name.startswith(".")]


def test_another_who_is_faster_wins(save: Save, tmp_path: Path) -> None:
    """What appears under the name while we write is not replaced."""
    folder, _ = save("gpt2")
    out = tmp_path / "out.safetensors"
    with writing_calls(lambda _: out.write_text("theirs")), pytest.raises(CheckpointError, match="created meanwhile"):
        resize_checkpoint(folder / "model.safetensors", out, vocab_size=40)
    assert out.read_text() == "theirs"

    def appears(_: object) -> None:
        (tmp_path / "out").mkdir(exist_ok=True)
        (tmp_path / "out" / "theirs").touch()

    with writing_calls(appears), pytest.raises(CheckpointError, match="cannot be written: Directory not empty"):
        resize_checkpoint(folder, tmp_path / "out", vocab_size=40)
    assert names(tmp_path / "out") == ["theirs"]


MEMORY = """
import resource, sys
from pathlib import Path
import torch
from whatwhere.surgery import resize_checkpoint
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
resize_checkpoint(sys.argv[1], sys.argv[2], vocab_size=40)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@unix
def test_a_large_tensor_is_copied_by_chunks(tmp_path: Path) -> None:
    """160 MB that stay, beside a small table, cost a few chunks of 4 MB."""
    table = torch.randn(37, 8)
    save_file({"large": torch.zeros(40_000_000), "wte.weight": table}, tmp_path / "in.safetensors")
    command = [sys.executable, "-c", MEMORY, tmp_path / "in.safetensors", tmp_path / "out.safetensors"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 80e6
    stored, _ = read_header(tmp_path / "out.safetensors")
    assert stored["wte.weight"].shape == (40, 8)
    assert stored["large"].bytes == 160_000_000


def test_a_damaged_tokenizer_is_refused_and_not_copied(save: Save, tmp_path: Path) -> None:
    folder, _ = save("llama")
    tokenizer = folder / "tokenizer.json"
    tokenizer.write_bytes(tokenizer.read_bytes()[:-100])
    for convert, kind in ((convert_dtype, "bfloat16"), (convert_format, "safetensors")):
        with pytest.raises(CheckpointError, match=r"tokenizer\.json is not JSON"):
            convert(folder, tmp_path / "out", kind)
        assert not (tmp_path / "out").exists()
