"""The first tutorial on order: what attention makes of it without positions."""

from collections.abc import Sequence

import torch
from torch import Tensor

from experiments.tutorials.claim import Claim, Measured, exact_claims
from experiments.tutorials.tutorial_1_tokens import EXAMPLE, largest_difference
from whatwhere.comparison.model import Transformer
from whatwhere.comparison.settings import Settings
from whatwhere.comparison.tasks import Batch, Expressions
from whatwhere.what.expressions import expression_tokenizer
from whatwhere.where.binding import Where


def transformer(layers: int, direction: str) -> Transformer:
    """Return a Transformer without positional encoding, with random weights, in float64."""
    settings = Settings(task="expressions", lengths=(), layers=layers, direction=direction, device="cpu")
    return Transformer(20, [Where()] * layers, settings, torch.Generator().manual_seed(0)).double().eval()


def all_expressions() -> Batch:
    """Return each of the 5 x 1000 expressions of three digits once."""
    digits = torch.cartesian_prod(*[torch.arange(10)] * 3).repeat(5, 1)
    operators = torch.arange(5).repeat_interleave(1000)
    ids = torch.full((5000, 8), 19)
    ids[:, 0], ids[:, 1], ids[:, 7], ids[:, 2:7:2] = operators + 12, 17, 18, digits + 2
    answers = torch.stack([*digits.unbind(1), digits.amax(1), digits.amin(1)])
    return Batch(ids, answers.gather(0, operators[None])[0] + 2, operators, 0)


def _ids(*texts: str) -> Tensor:
    return torch.tensor([expression_tokenizer().encode(text).ids for text in texts])


@torch.no_grad()
def _equivariance() -> Sequence[Measured]:
    model, x = transformer(2, "encoder"), _ids(EXAMPLE)
    order, others = torch.tensor([4, 0, 7, 2, 6, 1, 3, 5]), torch.tensor([0, 4, 7, 2, 6, 1, 3, 5])
    out, shuffled = model(x), model(x[:, order])
    one = largest_difference(model(x[:, others])[:, 0], out[:, 0])
    return (
        Measured("largest change of the output where the tokens are shuffled", largest_difference(shuffled, out),
                 claimed=0, tolerance=0.01),
        Measured("its difference to the shuffled output", largest_difference(shuffled, out[:, order]),
                 claimed=0, tolerance=1e-12, expected=0, within=1e-12),
        Measured("difference of one token's output where the others are shuffled", one, expected=0, within=1e-12),
    )  # fmt: skip


@torch.no_grad()
def _order_of_arguments() -> Sequence[Measured]:
    ids = _ids("First(1,6,2)", "First(6,2,1)")

    def same(layers: int, direction: str) -> bool:
        first, second = transformer(layers, direction)(ids, at=0 if direction == "encoder" else -1)
        difference = largest_difference(first, second)
        assert difference < 1e-12 or difference > 1e-6, difference
        return difference < 1e-12

    every = all_expressions()
    first = Batch(every.ids[:1000], every.targets[:1000], every.groups[:1000], 0)
    of_first, of_all = (Expressions(trained=(3,)).baselines(3, each)["order-free ceiling"] for each in (first, every))
    # Of three digits all are equal in 1 of 100 cases, two in 27 and none in 72; Max and Min need no order.
    by_hand = (1 * 3 / 3 + 27 * 2 / 3 + 72 * 1 / 3) / 100
    return (
        *(Measured(f"both look alike to an encoder of depth {n}", same(n, "encoder"), True) for n in (1, 2, 4)),
        Measured("both look alike to one causal layer", same(1, "decoder"), claimed=True),
        Measured("both look alike to two causal layers", same(2, "decoder"), claimed=True),
        Measured("best score of First without order", of_first, expected=by_hand, within=1e-6),
        Measured("best score without order", of_all, expected=(3 * by_hand + 2) / 5, within=1e-6),
    )


CLAIMS: tuple[Claim, ...] = exact_claims(
    {
        "0.17": _equivariance,
        "0.18": _order_of_arguments,
    }
)
