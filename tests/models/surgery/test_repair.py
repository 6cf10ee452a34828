"""Rows that are broken get values; all others keep their bits, and logits are finite again."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerFast

import whatwhere as ww
from tests.running import error_of, json_of
from whatwhere.errors import CheckpointError, SettingError, TokenError
from whatwhere.models.surgery import repair_checkpoint

from .conftest import WORDS, Save, digests, loaded, logits, tensor

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


def test_broken_rows_become_the_mean_of_the_others(broken: Path, tmp_path: Path, save: Save) -> None:
    report = repair_checkpoint(broken, tmp_path / "out")
    rows = {table.name: {row.id: row.why for row in table.rows} for table in report.measured.tables}
    assert rows == {TABLE: {5: "zero", 9: "zero", 11: "not finite"}, HEAD: {7: "zero"}}
    old, new = tensor(broken, TABLE), tensor(tmp_path / "out", TABLE)
    whole = [n for n in range(len(WORDS)) if n not in (5, 7, 9, 11)]
    for n in (5, 9, 11):
        torch.testing.assert_close(new[n], old[whole].double().mean(0).float(), rtol=0, atol=1e-7)
    others = [n for n in range(len(old)) if n not in (5, 9, 11)]
    assert torch.equal(old[others].view(torch.int32), new[others].view(torch.int32))
    before, after = digests(broken), digests(tmp_path / "out")
    assert {name for name in before if before[name] != after[name]} == {TABLE, HEAD}
    assert torch.isfinite(logits(loaded(tmp_path / "out", save("llama")[1]), IDS)).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bits_stay(broken: Path, tmp_path: Path, dtype: torch.dtype, save: Save) -> None:
    folder, model = save("llama")
    with torch.no_grad():
        model.model.embed_tokens.weight[5] = 0
    model.to(dtype).save_pretrained(folder)
    repair_checkpoint(folder, tmp_path / "out")
    old, new = tensor(folder, TABLE), tensor(tmp_path / "out", TABLE)
    whole = [n for n in range(len(WORDS)) if n != 5]
    assert torch.equal(new[5], old[whole].double().mean(0).to(dtype))


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
    old, new = tensor(folder, TABLE), tensor(tmp_path / "out", TABLE)
    torch.testing.assert_close(new[5], (old[4] + old[3]) / 2)
    torch.testing.assert_close(new[6], old[:5].double().mean(0).float())
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


@pytest.mark.usefixtures("our_own_checks")
def test_wrong_ids_and_tables_without_a_good_row_are_refused(broken: Path, tmp_path: Path) -> None:
    with pytest.raises(TokenError, match="row 999"):
        repair_checkpoint(broken, tmp_path / "out", ids=[999])
    with pytest.raises(SettingError, match="got no ids"):
        repair_checkpoint(broken, tmp_path / "out", ids=[])
    with pytest.raises(SettingError, match="mean, subtokens"):
        repair_checkpoint(broken, tmp_path / "out", rows="median")  # type: ignore[arg-type]
    with pytest.raises(CheckpointError, match="no row that is not to be repaired"):
        repair_checkpoint(broken, tmp_path / "out", ids=range(len(tensor(broken, TABLE))))


def test_the_command_lists_the_rows_and_what_was_found(broken: Path, tmp_path: Path) -> None:
    result = json_of("repair", broken, tmp_path / "out")
    assert [row["why"] for row in result["measured"]["tables"][0]["rows"]] == ["zero", "zero", "not finite"]
    assert "nothing to repair" in error_of("repair", tmp_path / "out", tmp_path / "again")


def test_rows_of_a_real_model_are_under_trained_no_more(minilm: Path, tmp_path: Path) -> None:
    report = repair_checkpoint(minilm, tmp_path / "out", rows="subtokens")
    (table,) = report.measured.tables
    assert len(table.rows) > 1000
    assert {row.why for row in table.rows} == {"under-trained"}
    found = ww.inspect(tmp_path / "out", sections=["diagnostics"]).diagnostics
    composed = {row.id for row in table.rows if row.pieces}
    assert len(composed) > 1000
    assert not composed.intersection(found.under_trained.ids.tolist())
