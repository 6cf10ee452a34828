"""What inspect says of tables beside the token table: norms by layer, and rows that a text reads of hashed n-grams."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

import whatwhere as ww
from whatwhere.analysis.token_tables import SiblingTables
from whatwhere.cli.app import app
from whatwhere.records import Missing
from whatwhere.report import inspection as texts
from whatwhere.report.section import Paragraph
from whatwhere.what.ngram_hash import multipliers_of_qwen4_exp, primes_from

from ..running import fitting

TEXT = "the cat sat on the mat and the dog sat on the cat and the mat"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a checkpoint with hashed n-grams (Qwen4-Exp), tables by layer (Gemma) and a tokenizer of words."""
    path = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    primes, per_layer = primes_from(11, 4), torch.randn(9, 3, 5) * torch.tensor([1.0, 10.0, 1.0])[:, None]
    per_layer[4, 2] = 0
    begin = "layers.1.ple.ple_embedding."
    tensors = {
        "embed_tokens.weight": torch.randn(9, 16),
        "embed_tokens_per_layer.weight": per_layer.flatten(1),
        "per_layer_model_projection.weight": torch.randn(15, 16),
        "per_layer_projection_norm.weight": torch.ones(5),
        f"{begin}ngram_embedding.weight": torch.randn(64, 4),
        f"{begin}layer_multipliers": torch.tensor(multipliers_of_qwen4_exp(9, 3, layer=0)),
        f"{begin}ngram_heads_vocab_sizes": torch.tensor(primes),
        f"{begin}ngram_heads_offsets": torch.tensor([0, *primes[:3]]).cumsum(0),
    }
    save_file(tensors, path / "model.safetensors")
    config = {"model_type": "qwen4_exp_text", "ngram_size": 3, "eos_token_id": 8, "rms_norm_eps": 1e-6}
    (path / "config.json").write_text(json.dumps(config))
    ww.text.words(TEXT).save(str(path / "tokenizer.json"))
    return path


def test_norms_by_layer_and_rows_of_zero(folder: Path) -> None:
    found = ww.inspect(folder, ["tables"]).tables
    assert isinstance(found, SiblingTables)
    layers, hashed = found.tables
    table = ww.Checkpoint.open(folder).array("embed_tokens_per_layer.weight").reshape(9, 3, 5)
    assert not isinstance(layers.norms, Missing)
    for layer, each in enumerate(layers.norms):
        norms = (table[:, layer] ** 2).sum(-1) ** 0.5
        assert each.layer == layer
        assert each.zero == int((norms == 0).sum()) == (layer == 2)
        assert each.median == pytest.approx(float(sorted(norms[norms > 0])[len(norms[norms > 0]) // 2]), rel=0.3)
    assert (layers.norms[1].median or 0) > 5 * (layers.norms[0].median or 0)
    assert hashed.occupancy is None


def test_rows_that_a_text_reads(folder: Path) -> None:
    found = ww.inspect(folder, ["tables"], texts=[TEXT]).tables
    assert isinstance(found, SiblingTables)
    occupancy = found.tables[1].occupancy
    assert occupancy is not None
    assert not isinstance(occupancy, Missing)
    module = ww.load_token_table(folder, found.tables[1].table.name)
    assert isinstance(module, ww.HashedNGramEmbedding)
    checkpoint = ww.Checkpoint.open(folder)
    assert checkpoint.tokenizer is not None
    rows = module.rows(torch.tensor([checkpoint.tokenizer.encode(TEXT).ids]))
    assert occupancy.occupied == len(rows.unique())
    assert [each.occupied for each in occupancy.hashes] == [len(rows[..., h].unique()) for h in range(4)]


def test_the_command_line_says_it(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text(TEXT)
    arguments = ["inspect", str(folder), "--sections", "tables", "--text", str(tmp_path / "notes.txt")]
    shown = CliRunner().invoke(app, arguments).output
    assert "16 tokens of 1 document read" in " ".join(shown.split())
    record = fitting("inspect", CliRunner().invoke(app, [*arguments, "--json"]).output)
    assert record["tables"]["tables"][1]["occupancy"]["tokens"] == 16
    assert record["tables"]["tables"][0]["num_layers"] == 3


def test_a_text_needs_a_hashed_table(tmp_path: Path) -> None:
    save_file({"wte.weight": torch.randn(9, 4)}, tmp_path / "model.safetensors")
    (tmp_path / "notes.txt").write_text(TEXT)
    arguments = ["inspect", str(tmp_path), "--text", str(tmp_path / "notes.txt")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code != 0
    assert "no such table" in " ".join(result.output.split())
    [section] = texts.sections(ww.inspect(tmp_path, ["tables"]))
    assert section.parts == [Paragraph("Token ids select rows of no other table than the token table.")]


def test_hashes_that_are_not_known_are_missing(folder: Path, tmp_path: Path) -> None:
    tensors = {
        "embed_tokens.weight": torch.randn(9, 4),
        "engram.multi_head_embedding.embedding.weight": torch.ones(5, 4),
    }
    save_file(tensors, tmp_path / "model.safetensors")
    ww.text.words(TEXT).save(str(tmp_path / "tokenizer.json"))
    found = ww.inspect(tmp_path, ["tables"], texts=[TEXT]).tables
    assert isinstance(found, SiblingTables)
    assert isinstance(found.tables[0].occupancy, Missing)
    assert "state neither its hashes" in found.tables[0].occupancy.missing
