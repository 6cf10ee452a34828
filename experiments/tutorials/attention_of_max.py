"""What the first tutorial claims of attention, judged by the models that a comparison keeps."""

from itertools import product

import torch
from jaxtyping import Float
from torch import Tensor

from experiments.tutorials.claim import Claim, text
from experiments.tutorials.preconditions import LEARNED, PLAIN
from experiments.tutorials.trained import Precondition, TrainedClaim
from experiments.tutorials.trained_tables import AUTHOR
from whatwhere.comparison.read import Comparison
from whatwhere.comparison.results import RunResult
from whatwhere.comparison.saved_model import load_model
from whatwhere.errors import ResultsError, SettingError
from whatwhere.what.expressions import expression_tokenizer

MAX, DIGITS = 0, (2, 4, 6)
"""Positions of the tokens in Max(a,b,c)."""
EQUAL_SHARE = 1 / 8
"""Of eight tokens."""

_ENCODER = Precondition(
    "an encoder: in a decoder no token attends to later ones, and Max is the first",
    lambda results, run: results.settings(run).direction == "encoder",
    lambda results, runs: "these models are decoders: whatwhere compare --recipe author",
)


def _why_unknown(results: Comparison, run: RunResult) -> str:
    """Return why the attention of a run cannot be computed, or ""."""
    try:
        load_model(results, run)
    except (ResultsError, SettingError) as error:
        return str(error).partition("\n")[0]
    return ""


_KEPT = Precondition(
    "its model is kept",
    lambda results, run: not _why_unknown(results, run),
    lambda results, runs: _why_unknown(results, runs[0]),
)


@torch.no_grad()
def attention_of_max(results: Comparison, run: RunResult) -> Float[Tensor, "heads digits expressions"]:
    """Return the weights with which Max attends to the three digits of each Max(a,b,c), in all heads of all layers."""
    tokenizer = expression_tokenizer()
    ids = torch.tensor([tokenizer.encode(f"Max({a},{b},{c})").ids for a, b, c in product(range(10), repeat=3)])
    weights = [layer[:, :, MAX, list(DIGITS)] for layer in load_model(results, run).weights(ids)]
    return torch.cat(weights, dim=1).permute(1, 2, 0)


def _least_on_average(results: Comparison, run: RunResult) -> float:
    """Return the mean weight of the digit that gets least over all expressions, in the head where that is most."""
    return float(attention_of_max(results, run).mean(-1).amin(1).max())


def _least_in_each(results: Comparison, run: RunResult) -> float:
    """Return the weight of the digit that gets least in an expression, its mean in the head where that is most."""
    return float(attention_of_max(results, run).amin(1).mean(-1).max())


def _all_digits(results: Comparison, run: RunResult) -> float:
    """Return the mean weight of all three digits together, in the head where that is most."""
    return float(attention_of_max(results, run).sum(1).mean(-1).max())


CLAIMS: tuple[Claim, ...] = (
    TrainedClaim(
        **text("0.39"),
        command=AUTHOR,
        preconditions=(_ENCODER, PLAIN, LEARNED, _KEPT),
        quantity="weight from Max to the place of a digit that gets least over 1,000 expressions, in the best head",
        read=_least_on_average,
        holds=lambda value: value > EQUAL_SHARE,
        line="above 0.125",
        beside=(
            ("to the digit that gets least in each expression, on average", _least_in_each),
            ("to all three digits together", _all_digits),
        ),
    ),
)
