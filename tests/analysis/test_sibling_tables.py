"""What inspect says of tables beside the token table: norms by layer, and rows that a text reads of hashed n-grams."""

import json
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

import whatwhere as ww
from whatwhere.analysis.token_tables import expected_sharing, ngram_occupancy
from whatwhere.cli.app import app
from whatwhere.records import Missing
from whatwhere.report import inspection as texts
from whatwhere.what.ngram_hash import multipliers_of_qwen4_exp, polynomial_hashes, primes_from, xor_hashes

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
    layers, hashed = found.tables
    table = ww.Checkpoint.open(folder).array("embed_tokens_per_layer.weight").reshape(9, 3, 5)
    for layer, each in enumerate(layers.norms):
        norms = (table[:, layer] ** 2).sum(-1) ** 0.5
        assert each.layer == layer
        assert each.zero == int((norms == 0).sum()) == (layer == 2)
        assert each.median == pytest.approx(float(sorted(norms[norms > 0])[len(norms[norms > 0]) // 2]), rel=0.3)
    assert (layers.norms[1].median or 0) > 5 * (layers.norms[0].median or 0)
    assert hashed.occupancy is None


def test_rows_that_a_text_reads(folder: Path) -> None:
    found = ww.inspect(folder, ["tables"], texts=[TEXT]).tables
    occupancy = found.tables[1].occupancy
    module = ww.load_token_table(folder, found.tables[1].table.name)
    checkpoint = ww.Checkpoint.open(folder)
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
    assert section.parts == ["Token ids select rows of no other table than the token table."]


def test_hashes_that_are_not_known_are_missing(folder: Path, tmp_path: Path) -> None:
    tensors = {
        "embed_tokens.weight": torch.randn(9, 4),
        "engram.multi_head_embedding.embedding.weight": torch.ones(5, 4),
    }
    save_file(tensors, tmp_path / "model.safetensors")
    ww.text.words(TEXT).save(str(tmp_path / "tokenizer.json"))
    found = ww.inspect(tmp_path, ["tables"], texts=[TEXT]).tables
    assert isinstance(found.tables[0].occupancy, Missing)
    assert "state neither its hashes" in found.tables[0].occupancy.missing


# Occupancy and collisions of hashed tables: counted one by one, and expected of a uniform hash


VOCABULARY = 50_000


def embedding(rows: list[list[int]], **settings) -> ww.HashedNGramEmbedding:
    hashes = xor_hashes(multipliers_of_qwen4_exp(VOCABULARY, n=len(rows) + 1, layer=0), rows)
    return ww.HashedNGramEmbedding(hashes, 1_000, padding_id=3, device="meta", **settings)


def by_hand(documents: list[list[int]], n: int, multipliers: tuple[int, ...], size: int) -> dict[tuple[int, ...], int]:
    """Return the row of each n-gram of a text by the reference, one document and one token at a time."""
    found = {}
    for ids in documents:
        rows = ww.reference.ngram_rows(np.array(ids), list(multipliers), size, 3)
        padded = [3] * (n - 1) + ids
        found |= {tuple(padded[at : at + n]): int(row) for at, row in enumerate(rows)}
    return found


def test_counts_are_those_of_counting_one_by_one() -> None:
    generator = random.Random(0)
    documents = [[generator.randrange(12) for _ in range(size)] for size in (40, 1, 0, 25)]
    table = embedding([[31, 37], [41]])
    counted = ngram_occupancy(table, documents)
    assert (counted.documents, counted.tokens, counted.left_out) == (3, 66, False)
    joint: list[Counter[tuple[int, ...]]] = []
    for found, each in zip(counted.hashes, table.hashes, strict=True):
        rows = by_hand(documents, each.n, each.multipliers, each.rows)
        counts = Counter(rows.values())
        assert (found.ngrams, found.occupied, found.fullest) == (len(rows), len(counts), max(counts.values()))
        assert found.sharing == sum(many for many in counts.values() if many > 1) > 0
    first, second = (by_hand(documents, 2, each.multipliers, each.rows) for each in table.hashes[:2])
    joint = Counter((first[gram], second[gram]) for gram in first)
    assert counted.joint[0].confused == sum(many for many in joint.values() if many > 1)
    assert counted.occupied == sum(each.occupied for each in counted.hashes)


def test_confused_in_all_tables_is_counted() -> None:
    table = ww.HashedNGramEmbedding(polynomial_hashes([2], 7, (31, 31)), 4, padding_id=0, device="meta")
    counted = ngram_occupancy(table, [list(range(60))])
    assert counted.joint[0].confused == counted.hashes[0].sharing == 60


def test_expectations_are_those_of_a_uniform_hash() -> None:
    """20,000 n-grams in 10,007 rows, three standard deviations of about 30 and 55."""
    ids = torch.randint(0, VOCABULARY, (20_000,), generator=torch.Generator().manual_seed(1)).tolist()
    [found] = ngram_occupancy(embedding([[10_007]]), [ids]).hashes
    assert found.expected_occupied == pytest.approx(ww.reference.expected_occupied(found.ngrams, 10_007), rel=1e-9)
    assert abs(found.occupied - found.expected_occupied) < 90
    assert abs(found.sharing - found.expected_sharing) < 165
    generator, sharing = random.Random(0), []
    for _ in range(2_000):
        counts = Counter(generator.randrange(50) for _ in range(40))
        sharing.append(sum(many for many in counts.values() if many > 1))
    assert np.mean(sharing) == pytest.approx(expected_sharing(40, 50), abs=0.4)


def test_a_long_text_is_cut_and_an_empty_one_refused() -> None:
    counted = ngram_occupancy(embedding([[31]]), [[1, 2], [3, 4, 5], [6]], max_tokens=4)
    assert (counted.documents, counted.tokens, counted.left_out) == (2, 4, True)
    whole = ngram_occupancy(embedding([[31]]), [[1, 2], [3, 4]], max_tokens=4)
    assert not whole.left_out
    with pytest.raises(ww.errors.TextError, match="no tokens"):
        ngram_occupancy(embedding([[31]]), [[]])
