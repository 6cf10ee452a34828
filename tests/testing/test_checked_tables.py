"""Checks of hashed n-grams and of lookups: our tables pass, and each known mistake fails the law that it breaks."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import whatwhere as ww
from whatwhere.testing import check_lookup, check_ngram_rows
from whatwhere.what.ngram_hash import (
    MERGES,
    NGramHash,
    longcat_hashes,
    multipliers_of_qwen4_exp,
    polynomial_hashes,
    xor_hashes,
)

VOCABULARY = 150_000
XOR = xor_hashes(multipliers_of_qwen4_exp(VOCABULARY, n=3, layer=0), [[10_007, 10_009], [10_037]])
SUM = polynomial_hashes([3, 5], rows=9_973, primes=(9_576_890_767,))
KNOWN = [XOR, SUM, longcat_hashes(VOCABULARY, [[10_001], [10_003]]), (NGramHash(97, (2**64 - 59, -7)),)]


def rows_of(table: ww.HashedNGramEmbedding) -> Callable[[Tensor, Tensor], Tensor]:
    def rows(ids: Tensor, segments: Tensor) -> Tensor:
        lengths = segments.unique_consecutive(return_counts=True)[1].tolist()
        return table.rows(ids[None], ww.Positions.packed(lengths))[0]

    return rows


def hashed(hashes: tuple[NGramHash, ...], padding: int, border: int | None = None) -> ww.HashedNGramEmbedding:
    return ww.HashedNGramEmbedding(hashes, 1, padding, border_id=border, device="meta")


@pytest.mark.parametrize("hashes", KNOWN, ids=["xor", "sum", "digits", "wrap"])
@pytest.mark.parametrize("border", [None, 5])
def test_our_hashes_keep_every_law(hashes: tuple[NGramHash, ...], border: int | None) -> None:
    fn = rows_of(hashed(hashes, 5, border))
    report = check_ngram_rows(fn, hashes, vocab_size=VOCABULARY, padding_id=5, border_id=border)
    report.require()
    assert (report["border"].outcome == "passes") == (border is not None)


def test_known_mistakes_are_named() -> None:
    right = rows_of(hashed(XOR, 5, 7))

    def judge(fn: Callable[[Tensor, Tensor], Tensor]) -> ww.testing.Report:
        return check_ngram_rows(fn, XOR, vocab_size=VOCABULARY, padding_id=5, border_id=7)

    across = judge(lambda ids, segments: right(ids, torch.zeros_like(segments)))
    assert {finding.law for finding in across.failed} == {"documents", "padding"}
    assert across["documents"].first == 9
    assert "reach into the document before" in across["documents"].note
    blind = judge(rows_of(hashed(XOR, 5)))
    assert [finding.law for finding in blind.failed] == ["border"]
    assert (blind["border"].note, blind["border"].first) == ("the border id is not seen", 5)
    zero = judge(rows_of(hashed(XOR, 0, 7)))
    assert zero["formula"].note == "missing tokens count as 0"
    assert zero["formula"].first == 0
    backward = tuple(NGramHash(each.rows, each.multipliers[::-1]) for each in XOR)
    assert "reverse order" in judge(rows_of(hashed(backward, 5, 7)))["formula"].note
    offsets = torch.tensor(hashed(XOR, 5).offsets[:-1])
    assert "counted from the first of each table" in judge(lambda i, s: right(i, s) - offsets)["formula"].note
    narrow = judge(lambda ids, segments: right(ids, segments).remainder(2**13))
    assert "own table" in {finding.law for finding in narrow.failed}


def test_32_bits_fail_and_one_document_is_enough_for_some() -> None:
    hashes = (NGramHash(10_007, (2_147_483_647, 3)),)

    def narrow(ids: Tensor, segments: Tensor) -> Tensor:
        if int(segments.max()):
            raise NotImplementedError("documents")
        before = torch.cat([ids.new_zeros(1), ids[:-1]])
        mixed = (ids.int() * 2_147_483_647).int() ^ (before * 3).int()
        return mixed.long().remainder(10_007)[:, None]

    report = check_ngram_rows(narrow, hashes, vocab_size=VOCABULARY, padding_id=0)
    assert {"formula", "64 bits"} <= {finding.law for finding in report.failed}
    assert report["documents"].outcome == "does not apply"


# Lookups


def test_lookups_of_all_tables_keep_every_law() -> None:
    ids = torch.tensor([3, 1, 3, 0, 3])
    per_layer = ww.PerLayerEmbedding(9, 3, 4, 8)
    fn = lambda ids: per_layer.lookup(ids).flatten(-2)  # noqa: E731
    check_lookup(fn, per_layer.tokens.weight, ids, ids[:, None], scale=2.0).require()
    values = ww.ValueEmbedding(9, 2, 4)
    nn.init.normal_(values.tokens.weight)
    check_lookup(
        lambda ids: values(ids[None])[0].transpose(0, 1).flatten(1), values.tokens.weight, ids, ids[:, None]
    ).require()
    padded = ww.TokenEmbedding(9, 4, padding_idx=0)
    report = check_lookup(padded, padded.weight, ids, ids[:, None], padding_idx=0)
    report.require()
    assert report["padding row"].outcome == "passes"
    hashes = polynomial_hashes([2, 3], rows=11)
    for merge in MERGES:
        table = ww.HashedNGramEmbedding(hashes, 4, 0, merge=merge)
        rows = table.rows(ids[None])[0]
        check_lookup(lambda ids, table=table: table(ids[None])[0], table.table.weight, ids, rows, merge=merge).require()


def test_wrong_lookups_fail_their_law() -> None:
    weight, ids = nn.Parameter(torch.randn(9, 4)), torch.tensor([3, 1, 3, 0])

    def failed(fn: Callable[[Tensor], Tensor], padding_idx: int | None = None) -> set[str]:
        report = check_lookup(fn, weight, ids, ids[:, None], padding_idx=padding_idx)
        return {finding.law for finding in report.failed}

    before = weight.detach().clone()
    assert failed(lambda ids: weight[ids]) == set()
    assert failed(lambda ids: weight[ids + 1]) == {"lookup", "these rows alone", "gradient", "other rows"}
    assert failed(lambda ids: weight[ids] + 1e-9 * (weight.sum() - weight.sum().detach())) == {"other rows"}
    assert failed(lambda ids: weight[ids].detach()) == {"gradient", "other rows"}
    assert failed(lambda ids: 2 * weight[ids]) == {"lookup", "gradient"}
    assert failed(lambda ids: weight[ids], padding_idx=0) == {"gradient", "padding row"}
    assert torch.equal(weight, before)
