"""What RowAdamW refuses: settings, options, and modules that are not a token table; and the code of its page."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import whatwhere as ww
from whatwhere import RowAdamW, TokenEmbedding

from .race import D, V


class Scaled(nn.Embedding):
    """As in several models of transformers."""

    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


def patched() -> nn.Embedding:
    made = nn.Embedding(V, D)
    made.forward = lambda ids: F.embedding(ids, made.weight) * 2
    return made


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"betas": (0.9, 0.8)}, "beta1 < sqrt"),
        ({"betas": (0.9, -1.0)}, "beta1 < sqrt"),
        ({"lr": -1.0}, r"lr=-1\.0"),
        ({"lr": float("nan")}, "lr=nan"),
        ({"eps": -1e-8}, "eps"),
        ({"weight_decay": -0.1}, "weight_decay"),
        ({"lr": 2.0, "weight_decay": 0.5}, "product below 1"),
        ({"amsgrad": True}, r"amsgrad=True.*\n.*AdamW\(amsgrad=True\)"),
        ({"maximize": True}, "maximize"),
        ({"capturable": True}, "capturable"),
        ({"differentiable": True}, "differentiable"),
    ],
)
def test_settings_that_are_refused(options, words):
    with pytest.raises(ww.errors.SettingError, match=words):
        RowAdamW(TokenEmbedding(V, D), **options)
    group = {"params": [TokenEmbedding(V, D)], **options}
    with pytest.raises(ww.errors.SettingError, match=words):
        RowAdamW([group])


@pytest.mark.parametrize(("name", "value"), [("lr", -1.0), ("maximize", True), ("amsgrad", True)])
def test_settings_are_checked_at_each_step(name, value):
    table = TokenEmbedding(V, D)
    optimizer = RowAdamW(table)
    optimizer.param_groups[0][name] = value
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(ww.errors.SettingError, match=rf"{name}={value}"):
        optimizer.step()


def test_an_unknown_option():
    with pytest.raises(TypeError, match="momentum"):
        RowAdamW(TokenEmbedding(V, D), momentum=0.9)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda: nn.Linear(2, 2), "got a Linear"),
        (lambda: ww.InputLayer(V, D), r"Pass InputLayer.tokens"),
        (lambda: [TokenEmbedding(V, D).weight], "Pass the module"),
        (list, "no embedding"),
        (lambda: nn.Embedding(V, D, max_norm=1.0), "max_norm"),
        (lambda: nn.Embedding(V, D, scale_grad_by_freq=True), "scale_grad_by_freq"),
        (lambda: TokenEmbedding(V, D, device="meta"), "with values"),
        (lambda: Scaled(V, D), "Scaled has a forward of its own"),
        (patched, "a forward of its own"),
        (lambda: nn.Embedding(V, D, dtype=torch.complex64), "floating-point"),
    ],
)
@pytest.mark.usefixtures("our_own_checks")
def test_what_is_not_a_table_is_refused(given, words):
    with pytest.raises(ww.WhatWhereError, match=words):
        RowAdamW(given())
