"""Numbers of RowAdamW that no change may move: a dozen steps, as an early version computed them, and dense AdamW."""

from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

import whatwhere as ww

STEPS = 12
SETTINGS = [{}, {"betas": (0.9, 0.95), "weight_decay": 0.1}, {"eps": 1e-3, "lr": 0.1}]
STORED = {
    torch.float64: [
        [-0.07128463434556924, -0.051292781296638924, -0.03642563414764287, -0.028187600475869715,
         -0.007811884787612444, 0.007811884787612444, 0.0190482718593832, 0.04344680566858872, 0.054683193513287105,
         0.07030696308851199],
        [-0.0712318428839385, -0.051251017356877024, -0.03636158111722279, -0.028136855659889326,
         -0.007806349854570132, 0.007806349854570132, 0.018960044258312617, 0.043490753774088765,
         0.054644448981990924, 0.07025714869113119],
        [-0.16537957118891178, 0.2715817262218368, 0.21587248159252082, -0.4559430014989539, -0.00775119597088553,
         0.00775119597088553, -0.3988643379881326, 0.45384445381435856, 0.05425837179619871, 0.06976076373796977],
    ],
    torch.float32: [
        [-0.07128463, -0.051292773, -0.03642564, -0.028187599, -0.007811885, 0.007811885, 0.019048274, 0.043446805,
         0.054683194, 0.070306964],
        [-0.07123186, -0.05125102, -0.03636158, -0.028136859, -0.00780635, 0.00780635, 0.018960044, 0.043490756,
         0.05464445, 0.07025715],
        [-0.16537957, 0.27158165, 0.21587242, -0.455943, -0.007751196, 0.007751196, -0.39886436, 0.45384443,
         0.054258373, 0.06976076],
    ],
    torch.bfloat16: [
        [-0.07128906, -0.05126953, -0.036376953, -0.028198242, -0.0078125, 0.0078125, 0.019042969, 0.04345703,
         0.0546875, 0.0703125],
        [-0.07128906, -0.05126953, -0.036376953, -0.028076172, -0.0078125, 0.0078125, 0.018920898, 0.04345703,
         0.0546875, 0.0703125],
        [-0.16503906, 0.27148438, 0.21582031, -0.45507812, -0.007751465, 0.007751465, -0.3984375, 0.453125,
         0.05419922, 0.06982422],
    ],
}  # fmt: skip
"""By dtype and settings: the table after the steps, by compiled kernels and by PyTorch's operations alike."""
ULPS = {torch.float64: 4, torch.float32: 1, torch.bfloat16: 1}
"""Other machines may round a coefficient of the rules, which NumPy and LAPACK compute, to the next number."""


def batch(n: int) -> tuple[Tensor, Tensor]:
    """Return ids and their gradients; row 2 has none, and row 3 has few."""
    ids = torch.tensor([0 if n % 5 else 3, n * n % 4])
    return ids, torch.tensor([[3.0, -2.0], [n - 5.0, 1.0]], dtype=torch.float64) / 64


def start() -> Tensor:
    return (torch.arange(10, dtype=torch.float64).view(5, 2) - 4.5) / 64


def halving(optimizer: torch.optim.Optimizer) -> LambdaLR:
    return LambdaLR(optimizer, lambda n: 1 - n / 16)


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("number", range(len(SETTINGS)))
@pytest.mark.parametrize("dtype", list(STORED), ids=str)
def test_numbers_are_those_that_are_stored(dtype, number, kernels):
    with nullcontext() if kernels else ww.pytorch_only():
        table = ww.TokenEmbedding.from_weight(start().to(dtype))
        optimizer = ww.RowAdamW(table, **SETTINGS[number])
        schedule = halving(optimizer)
        for n in range(STEPS):
            ids, upstream = batch(n)
            table(ids).backward(upstream.to(dtype))
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
        optimizer.flush()
    stored = torch.tensor(STORED[dtype][number], dtype=torch.float64).view(5, 2)
    moved = (table.weight.detach().double() - stored).abs()
    assert (moved <= ULPS[dtype] * torch.finfo(dtype).eps * stored.abs()).all()


@pytest.mark.parametrize("number", range(len(SETTINGS)))
def test_what_is_stored_is_dense_adamw(number):
    weight = nn.Parameter(start())
    optimizer = torch.optim.AdamW([weight], **{"lr": 1e-3, "weight_decay": 1e-2, **SETTINGS[number]})
    schedule = halving(optimizer)
    for n in range(STEPS):
        ids, upstream = batch(n)
        weight.grad = torch.zeros_like(weight).index_add(0, ids, upstream)
        optimizer.step()
        schedule.step()
    for dtype, tolerance in ((torch.float64, 1e-15), (torch.float32, 1e-7), (torch.bfloat16, 2**-9)):
        stored = torch.tensor(STORED[dtype][number], dtype=torch.float64).view(5, 2)
        assert float((stored - weight.detach()).abs().max()) < tolerance
