"""resize, trim and convert in the terminal: what they print is what was done, and no traceback reaches the user."""

import json
import re
from pathlib import Path

import pytest
import torch

from whatwhere.models.checkpoint import Checkpoint

from ..running import error_of, whatwhere
from .conftest import Save, digests, tensor


def test_resize_prints_what_it_did(save: Save, tmp_path: Path) -> None:
    folder, _ = save("llama")
    words = ("resize", folder, tmp_path / "out", "--add-token", "w1 w2", "--rows", "subtokens", "--multiple-of", "8")
    status, out, err = whatwhere(*words)
    assert (status, err) == (0, "")
    assert re.search(r"model.embed_tokens.weight +37 x 64 float32 +40 x 64 float32 +36 rows kept, 4 new", out)
    assert "other tensors are the same byte for byte." in out
    assert "new ids: 35\n" in out
    assert f"Written: {tmp_path / 'out'}, " in out
    err = error_of(*words)
    assert (
        err == f"whatwhere: {tmp_path / 'out'} exists already.\nChoose another path, or pass --force to replace it.\n"
    )
    status, out, err = whatwhere(*words, "--force", "--json")
    assert (status, err) == (0, "")
    said = json.loads(out)
    assert said["command"] == "resize"
    assert said["kept"] == len(digests(folder)) - len(said["changed"])
    new = tensor(tmp_path / "out", "lm_head.weight")
    head = next(table for table in said["measured"]["tables"] if table["name"] == "lm_head.weight")
    assert head["new"]["rows"] == 4
    assert head["kept"]["median_norm"] == pytest.approx(float(new[[*range(35), 36]].double().norm(dim=1).median()))


def test_trim_and_convert(save: Save, tmp_path: Path) -> None:
    folder, _ = save("llama")
    (tmp_path / "corpus").write_text("w7 w9\nw7\n")
    status, out, err = whatwhere("trim", folder, tmp_path / "trimmed", "--corpus", tmp_path / "corpus")
    assert (status, err) == (0, "")
    assert "encoded as before: yes" in out
    assert "tokens of the corpus: 3" in out
    (tmp_path / "ids").write_text("[3, 4]")
    status, out, _ = whatwhere("trim", folder, tmp_path / "ids-kept", "--keep-ids", tmp_path / "ids", "--json")
    assert json.loads(out)["measured"]["tokens_requested"] == 2
    status, out, _ = whatwhere("convert", folder, tmp_path / "half", "--dtype", "bfloat16")
    assert "share of 10 nearest kept" in out
    assert re.search(r"\n   and \d+ more: --json lists them\n", out)
    status, out, _ = whatwhere("convert", folder, tmp_path / "turned", "--layout", "interleaved")
    assert "Note: code for llama expects the half layout: this file is for code that does not." in out
    for n, words in enumerate(("--format projector", f"--tokenizer {folder}", "--format safetensors --dtype float16")):
        assert whatwhere("convert", folder, tmp_path / str(n), *words.split()).status == 0
    assert [entry.shape for entry in Checkpoint.open(tmp_path / "0").tensors.values()] == [(35, 64)]
    assert torch.equal(tensor(tmp_path / "1", "lm_head.weight"), tensor(folder, "lm_head.weight")[:35])


def test_bad_input_is_a_message(save: Save, tmp_path: Path, our_own_checks: None) -> None:
    folder, _ = save("gpt2")
    out = tmp_path / "out"
    (tmp_path / "broken.safetensors").write_bytes(b"\xff" * 40)
    (tmp_path / "ids").write_text("1")
    assert "cannot be read" in error_of("convert", folder, out, "--tokenizer", tmp_path / "none")
    (folder / "tokenizer.json").write_text('{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a"]]}}')
    for words, match in (
        (("resize", tmp_path / "no", out, "--vocab-size", "40"), "cannot be read"),
        (("resize", tmp_path / "broken.safetensors", out, "--vocab-size", "40"), "its header claims"),
        (("resize", folder, out, "--positions", "8", "--rule", "quintic"), "knows only: linear, cubic"),
        (("resize", folder, out, "--add-token", "x"), "tokenizer.json: the tokenizers library cannot read it"),
        (
            ("trim", folder, out, "--keep-ids", tmp_path / "ids"),
            "tokenizer.json: the tokenizers library cannot read it",
        ),
        (("convert", folder, out, "--tokenizer", folder), "tokenizer.json: the tokenizers library cannot read it"),
        (("trim", folder, out, "--keep-ids", tmp_path / "none"), "cannot be read"),
        (("trim", folder, out, "--keep-ids", folder / "config.json"), "more than whole numbers"),
        (("trim", folder, out, "--keep-ids", __file__), "more than whole numbers"),
        (("convert", folder, out), "convert does one thing"),
        (("convert", folder, out, "--layout", "interleaved", "--dtype", "float16"), "convert does one thing"),
    ):
        assert match in error_of(*words)
    assert not out.exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
