"""Rows that are broken get values; all others keep their bits, and logits are finite again."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerFast

import whatwhere as ww
from tests.running import error_of, json_of
from whatwhere.errors import SettingError
from whatwhere.surgery import repair_checkpoint

from .conftest import WORDS, Save, digests, loaded, logits, save_tokenizer, tensor

IDS = torch.tensor([[3, 5, 36, 0, 11]])
TABLE, HEAD = "model.embed_tokens.weight", "lm_head.weight"


@pytest.fixture
def broken(save: Save) -> Path:
    """Return a folder: two rows of zeros and one with NaN in the table, one of zeros in the output projection."""
    folder, model = save("llama")
    with torch.no_grad():
        model.model.embed_tokens.weight[[5, 9]] = 0
        model.model.embed_tokens.weight[11, 3] = float("nan")
        model.lm_head.weight[7] = 0
    model.save_pretrained(folder)
    return folder


def typical_norm(table: torch.Tensor, broken: list[int]) -> torch.Tensor:
    whole = [n for n in range(len(WORDS)) if n not in broken]
    return torch.tensor(np.median(table[whole].double().norm(dim=1)))


def test_broken_rows_get_the_direction_of_the_output_row_at_the_usual_norm(
    broken: Path, tmp_path: Path, save: Save
) -> None:
    report = repair_checkpoint(broken, tmp_path / "out")
    rows = {table.name: {row.id: (row.why, row.made_of) for row in table.rows} for table in report.measured.tables}
    assert rows == {
        TABLE: {5: ("zero", "output row"), 9: ("zero", "output row"), 11: ("not finite", "output row")},
        HEAD: {7: ("zero", "covariance")},  # its direction is not that of the token row: nothing relates the two
    }
    old, new = tensor(broken, TABLE), tensor(tmp_path / "out", TABLE)
    head, norm = tensor(broken, HEAD).double(), typical_norm(old, [5, 7, 9, 11])
    for n in (5, 9, 11):
        torch.testing.assert_close(new[n].double(), head[n] / head[n].norm() * norm, rtol=1e-6, atol=1e-7)
    sampled = tensor(tmp_path / "out", HEAD)[7].double()
    torch.testing.assert_close(sampled.norm(), typical_norm(tensor(broken, HEAD), [5, 7, 9, 11]), rtol=1e-6, atol=0)
    others = [n for n in range(len(old)) if n not in (5, 9, 11)]
    assert torch.equal(old[others].view(torch.int32), new[others].view(torch.int32))
    before, after = digests(broken), digests(tmp_path / "out")
    assert {name for name in before if before[name] != after[name]} == {TABLE, HEAD}
    assert torch.isfinite(logits(loaded(tmp_path / "out", save("llama")[1]), IDS)).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bits_stay(tmp_path: Path, dtype: torch.dtype, save: Save) -> None:
    folder, model = save("llama")
    with torch.no_grad():
        model.model.embed_tokens.weight[5] = 0
    model.to(dtype).save_pretrained(folder)
    repair_checkpoint(folder, tmp_path / "out")
    old, new = tensor(folder, TABLE), tensor(tmp_path / "out", TABLE)
    row = tensor(folder, HEAD)[5].double()
    assert torch.equal(new[5], (row * (typical_norm(old, [5]) / row.norm())).to(dtype))


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_of_every_kind_are_found_and_none_afterwards(
    save: Save, tmp_path: Path, tied: bool, dtype: torch.dtype
) -> None:
    folder, model = save("llama", vocab_size=400, tie_word_embeddings=tied)
    save_tokenizer(folder, [f"w{n}" for n in range(400)])
    g = torch.Generator().manual_seed(0)
    planted = dict.fromkeys(range(20, 50), "low norm") | dict.fromkeys(range(60, 70), "low norm") | {80: "low norm"}
    planted |= dict.fromkeys(range(90, 100), "near the mean") | {110: "high norm", 111: "high norm"}
    for table in {id(one): one for one in (model.model.embed_tokens.weight, model.lm_head.weight)}.values():
        rows = torch.randn(table.shape, generator=g) * torch.exp(0.2 * torch.randn(len(table), 1, generator=g)) + 1
        rows[20:50] = 0.02 * torch.randn(30, table.shape[1], generator=g)
        rows[60:70] /= 50
        rows[80] /= 1e4
        rows[90:100] = rows[200:].mean(0) + 0.02 * torch.randn(10, table.shape[1], generator=g)
        rows[110:112] *= 40
        with torch.no_grad():
            table.copy_(rows)
    model.to(dtype).save_pretrained(folder)
    far = ww.inspect(folder, sections=["diagnostics"]).diagnostics.far
    assert {row.id: row.why for row in far.examples} == planted
    assert far.lowest[0].id == 80
    report = repair_checkpoint(folder, tmp_path / "out")
    for table in report.measured.tables:
        assert {row.id: row.why for row in table.rows} == planted
        assert {row.made_of for row in table.rows} == {"covariance"}  # the row of the output projection is broken too
    assert len(report.measured.tables) == (1 if tied else 2)
    after = ww.inspect(tmp_path / "out", sections=["diagnostics"]).diagnostics
    assert after.far.count == after.duplicates.rows == after.under_trained.count == after.zero.count == 0
    assert "nothing to repair" in error_of("repair", tmp_path / "out", tmp_path / "again")


def test_a_special_token_may_be_far_from_the_others(save: Save, tmp_path: Path) -> None:
    folder, model = save("llama")
    contents = json.loads((folder / "tokenizer.json").read_text())
    contents["added_tokens"] = [
        {"id": 3, "content": "w3", "special": True} | dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
        | {"normalized": False}
    ]  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(contents))
    with torch.no_grad():
        model.model.embed_tokens.weight[[3, 8]] /= 1e4
    model.save_pretrained(folder)
    report = repair_checkpoint(folder, tmp_path / "out")
    assert [row.id for row in report.measured.tables[0].rows] == [8]
    assert "special tokens stay" in report.notes[0]
    assert ": 3;" in report.notes[0]


def test_subtokens_are_those_of_a_tokenizer_without_the_broken_ones(save: Save, tmp_path: Path) -> None:
    """Of "abc" and its parts in BPE: "abc" is broken, so its text is "ab" and "c"; "d" alone has no parts."""
    folder, model = save("llama")
    letters = ["[UNK]", "a", "b", "c", "ab", "abc", "d"]
    contents = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": None, "post_processor": None, "decoder": None,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": "[UNK]", "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
            "vocab": {letter: n for n, letter in enumerate(letters)}, "merges": [["a", "b"], ["ab", "c"]],
        },
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(contents))
    with torch.no_grad():
        model.model.embed_tokens.weight[[5, 6]] = 0
    model.save_pretrained(folder)
    report = repair_checkpoint(folder, tmp_path / "out", rows="subtokens")
    (table,) = report.measured.tables
    assert {row.token: row.pieces for row in table.rows} == {"abc": (4, 3), "d": ()}
    assert [row.made_of for row in table.rows] == ["pieces", "output row"]
    old, new = tensor(folder, TABLE), tensor(tmp_path / "out", TABLE)
    norm, head = old[:5].norm(dim=1).median(), tensor(folder, HEAD)
    pieces = old[[4, 3]]
    torch.testing.assert_close(new[5], pieces.sum(0) / pieces.sum(0).norm() * pieces.norm(dim=1).mean())
    torch.testing.assert_close(new[6], head[6] / head[6].norm() * norm)
    assert any("cannot be split" in note for note in report.notes)


def test_the_padding_row_and_rows_without_a_token_may_be_zero(save: Save, tmp_path: Path) -> None:
    folder, model = save("llama")
    PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json")).save_pretrained(folder)
    model.config.pad_token_id = 4
    with torch.no_grad():
        model.model.embed_tokens.weight[[4, 36]] = 0
    model.save_pretrained(folder)
    with pytest.raises(SettingError, match="nothing to repair"):
        repair_checkpoint(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_ids_that_are_requested_are_repaired_in_every_table(broken: Path, tmp_path: Path) -> None:
    report = repair_checkpoint(broken, tmp_path / "out", ids=[11, 5, 9, 20])
    assert [[row.id for row in table.rows] for table in report.measured.tables] == [[11, 5, 9, 20]] * 2
    assert np.isfinite(ww.read(tmp_path / "out").array(TABLE)).all()
    result = json_of("repair", broken, tmp_path / "all")
    assert [row["why"] for row in result["measured"]["tables"][0]["rows"]] == ["zero", "zero", "not finite"]


def test_rows_of_a_real_model_are_under_trained_no_more(minilm: Path, tmp_path: Path) -> None:
    report = repair_checkpoint(minilm, tmp_path / "out", rows="subtokens")
    (table,) = report.measured.tables
    assert len(table.rows) > 1000
    assert {row.why for row in table.rows} == {"under-trained"}
    found = ww.inspect(tmp_path / "out", sections=["diagnostics"]).diagnostics
    composed = {row.id for row in table.rows if len(row.pieces) > 1}  # a single one is copied, be it what it may
    assert len(composed) > 1000
    assert not composed.intersection(found.under_trained.ids.tolist())
    assert not {row.id for row in table.rows}.intersection(found.far.ids.tolist())
