"""Hashed n-grams: padding, decoding and refusals; rows, gradients and sums are laws in tests/testing."""

import pytest
import torch

import whatwhere as ww
from tests.refusals import require_refused, short_refusals
from whatwhere.what.ngram_hash import NGramHash, multipliers_of_qwen4_exp, polynomial_hashes, primes_from, xor_hashes

VOCABULARY = 150_000
XOR = xor_hashes(multipliers_of_qwen4_exp(VOCABULARY, n=4, layer=0), [[101, 103], [107], [109, 113]])
SUM = polynomial_hashes([3, 5, 8], rows=97, primes=(9_576_890_767, 31))
LARGE = (NGramHash(1_009, (2**64 - 59, -(2**63), 2**63 - 1)), NGramHash(64, (-7, 12), "sum"))
ALL = pytest.mark.parametrize("hashes", [XOR, SUM, LARGE], ids=["xor", "sum", "large"])


def embedding(hashes: tuple[NGramHash, ...], padding_id: int = 5, **settings) -> ww.HashedNGramEmbedding:
    torch.manual_seed(0)
    return ww.HashedNGramEmbedding(hashes, 4, padding_id, **settings)


def sample(tokens: int = 24, batch: int = 2) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (batch, tokens), generator=torch.Generator().manual_seed(1))


def test_left_padded_sequences_read_what_unpadded_ones_do() -> None:
    table, ids = embedding(XOR), sample(batch=1)
    mask = torch.tensor([[0] * 6 + [1] * 18])
    assert torch.equal(table(ids, ww.Positions.from_mask(mask))[:, 6:], table(ids[:, 6:]))


@ALL
def test_decoding_with_the_last_tokens_is_the_full_pass(hashes: tuple[NGramHash, ...]) -> None:
    table, ids, p = embedding(hashes, border_id=5), sample(), ww.Positions.packed([9, 1, 14])
    ids[0, 12] = 5
    full = table(ids, p)
    for t in range(24):
        start = max(0, t - table.context)
        step = table(ids[:, start : t + 1], p[start : t + 1], last=1)
        assert torch.equal(step[:, 0], full[:, t])


def test_one_token_less_of_context_is_too_few() -> None:
    table, ids = embedding(XOR), sample()
    assert not torch.equal(table(ids[:, -table.context :], last=1), table(ids, last=1))


def test_products_of_qwen4_exp_leave_no_bits() -> None:
    for layer in range(3):
        numbers = multipliers_of_qwen4_exp(VOCABULARY, n=8, layer=layer)
        assert all(m % 2 == 1 and 0 < m * (VOCABULARY - 1) < 2**63 for m in numbers)


def test_primes_are_prime_and_none_is_left_out() -> None:
    sieve = [n for n in range(2, 200) if all(n % d for d in range(2, n))]
    assert primes_from(0, len(sieve)) == tuple(sieve)
    assert primes_from(90, 3, skip=1) == tuple(p for p in sieve if p >= 90)[1:4]


def test_ids_may_be_narrow_empty_and_fewer_than_an_ngram() -> None:
    table, ids = embedding(XOR), torch.tensor([[3, 200]])
    assert torch.equal(table(ids.to(torch.uint8)), table(ids))
    assert torch.equal(table(ids[:, :1]), table(ids)[:, :1])
    assert table(ids[:, :0]).shape == (1, 0, 20)
    assert table(ids, last=0).shape == (1, 0, 20)


@short_refusals(
    r"""
table.rows(ids[0]) -> ShapeError: ids (batch, tokens)
table(ids.float()) -> TokenError: whole numbers
table(ids, ww.positions(23)) -> ShapeError: positions of the same tokens
table(ids, last=25) -> ShapeError: last=25 of 24
embedding(XOR, num_embeddings=5) -> ShapeError: have 533 rows together, but num_embeddings is 5
embedding(()) -> SettingError: no hashes
embedding(XOR, merge="mean") -> SettingError: merge
NGramHash(7, (2**64,)) -> SettingError: 64 bits
xor_hashes((3,), [[7]]) -> SettingError: need as many multipliers
"""
)
@pytest.mark.usefixtures("our_own_checks")
def test_wrong_arguments_are_refused(call: str, error: str, parts: str) -> None:
    require_refused(call, error, parts, {**globals(), "table": embedding(XOR), "ids": sample()})
