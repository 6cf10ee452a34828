"""What users write, for type checkers alone: they fail where a type is lost, or a misspelt name is not seen.

`make types` checks it with mypy, `make release-check` with mypy and pyright against the installed wheel, both strict.
"""

from typing import assert_type

import torch
from torch import Tensor

import whatwhere as ww
from whatwhere.models.configuration.description import Description


def modules(q: Tensor, k: Tensor, ids: Tensor) -> None:
    """Call modules, whose results nn.Module types as Any."""
    assert_type(ww.Rotary(head_dim=64)(q, k), tuple[Tensor, Tensor])
    assert_type(ww.Sinusoidal(dim=8)(4), Tensor)
    assert_type(ww.ALiBi(num_heads=2)(4, causal=True), Tensor)
    assert_type(ww.TokenEmbedding(10, 8)(ids), Tensor)
    assert_type(ww.InputLayer(vocab_size=10, dim=8)(ids), Tensor)
    assert_type(ww.positions(4), ww.Positions)
    assert_type(ww.Where(ww.Rotary(64)).at(8), ww.Here)


def names() -> None:
    """Misspell a name; the comment is an error where mypy sees none."""
    ww.Rotery  # type: ignore[attr-defined]  # noqa: B018
    ww.text.wrods("a")  # type: ignore[attr-defined]
    ww.analysis.neighbours  # type: ignore[attr-defined]  # noqa: B018
    ww.comparison.compere  # type: ignore[attr-defined]  # noqa: B018


def reading() -> None:
    """Read, as the README does."""
    checkpoint = ww.read("pets.vec")
    print(checkpoint.words, checkpoint.array(checkpoint.token_table, rows=[1]))
    assert_type(ww.read({"model_type": "llama"}), Description)
    print(ww.reference.lookup([[1.0]], [0]), ww.neighbors("pets.vec", ["cat"]).tokens[0].neighbors)
    print(torch.zeros(1))
