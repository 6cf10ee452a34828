"""The first tutorial, stage 1: token vectors. Its task: 20 tokens, 64 features, expressions such as Max(1,6,2)."""

from collections.abc import Sequence
from math import log2, sqrt

import torch
from torch import Tensor
from torch.nn import functional as F

from experiments.tutorials.claim import Claim, Measured, measured_claims
from whatwhere.errors import TextError
from whatwhere.initialization import seeded
from whatwhere.models.parameter_count import parameters
from whatwhere.what.embedding import Init, TokenEmbedding
from whatwhere.what.expressions import OPERATORS, expression_tokenizer
from whatwhere.what.text import encode

EXAMPLE = "Max(1,6,2)"
EXAMPLE_IDS = (15, 17, 3, 19, 8, 19, 4, 18)

PUBLISHED = {
    "LLaMA 3, 8B": (128_256, 4096),
    "DeepSeek-V3": (129_280, 7168),
    "GPT-2": (50_257, 768),
    "GPT-3": (50_257, 12_288),
}
"""Vocabulary and features of token tables, from the configurations and papers that their authors published."""


def token_table(init: Init | float = "normal", vocab_size: int = 20, dim: int = 64, seed: int = 0) -> TokenEmbedding:
    """Return a table of random rows, by default of the tutorial's size."""
    with seeded(seed):
        return TokenEmbedding(vocab_size, dim, init=init)


def example_ids() -> Tensor:
    """Return the ids of the tutorial's example, as a batch of one."""
    return torch.tensor([EXAMPLE_IDS])


def largest_difference(a: Tensor, b: Tensor) -> float:
    """Return the largest absolute difference between two tensors of one shape."""
    return float((a - b).detach().abs().max())


def _tokenizer() -> Sequence[Measured]:
    tokenizer = expression_tokenizer()
    return (
        Measured(f"ids of {EXAMPLE}", str(tokenizer.encode(EXAMPLE).ids), str(list(EXAMPLE_IDS))),
        Measured("tokens", tokenizer.get_vocab_size(), 20),
        Measured("ids of the digits", str([tokenizer.token_to_id(d) for d in "0123456789"]), str(list(range(2, 12)))),
        Measured(
            f"ids of {', '.join(OPERATORS)}",
            str([tokenizer.token_to_id(name) for name in OPERATORS]),
            expected="[12, 13, 14, 15, 16]",
        ),
        *(
            Measured(f"{text} can be encoded", _encodes(text), expected=False)
            for text in ("Sum(1,6,2)", "Max(1,6,2)=6")
        ),
    )


def _encodes(text: str) -> bool:
    try:
        encode(expression_tokenizer(), text)
    except TextError:
        return False
    return True


def _lookup() -> Sequence[Measured]:
    table, ids = token_table(), example_ids()
    x = table(ids)[0]
    product = F.one_hot(ids, 20).float() @ table.weight
    return (
        Measured("shape of the output", str(tuple(x.shape)), "(8, 64)"),
        Measured("the two commas have one vector", torch.equal(x[3], x[5]), True),
        Measured('the vector of "6" is row 8', torch.equal(x[4], table.weight[8]), True),
        Measured("difference to the product of one-hot rows and table", largest_difference(x, product[0]), expected=0),
    )


def _expansion() -> Sequence[Measured]:
    table = token_table().weight.detach().double()
    return (
        Measured("features of a vector", table.shape[1], 64),
        Measured("dimensions that the 20 vectors span", int(torch.linalg.matrix_rank(table)), 64, expected=20),
    )


def _published_tables() -> Sequence[Measured]:
    millions = {
        name: parameters({"vocab_size": rows, "dim": dim}).tokens / 1e6 for name, (rows, dim) in PUBLISHED.items()
    }
    llama, deepseek = PUBLISHED["LLaMA 3, 8B"], PUBLISHED["DeepSeek-V3"]
    return (
        Measured("rows of LLaMA 3, 8B", llama[0], 128_256),
        Measured("features of LLaMA 3, 8B", llama[1], 4096),
        Measured("rows of DeepSeek-V3", deepseek[0], 128_000),
        Measured("features of DeepSeek-V3", deepseek[1], 7168),
        Measured("millions of numbers in the table of LLaMA 3, 8B", millions["LLaMA 3, 8B"], expected=525, within=0.5),
        Measured("millions of numbers in the table of DeepSeek-V3", millions["DeepSeek-V3"], expected=927, within=0.5),
    )


def _information() -> Sequence[Measured]:
    table = token_table(vocab_size=1000, dim=16)
    ids = torch.randint(0, 1000, (5000,), generator=torch.Generator().manual_seed(1))
    vectors = table(ids).detach()
    back = torch.cdist(vectors.double(), table.weight.detach().double()).argmin(-1)
    different = len(torch.unique(vectors, dim=0))
    return (
        Measured("bits of one of 128,256 ids", log2(PUBLISHED["LLaMA 3, 8B"][0]), 17, tolerance=0.5),
        Measured(
            "there are more different vectors than different ids", different > len(torch.unique(ids)), claimed=True
        ),
        Measured("of 5000 vectors, ids found again", int((back == ids).sum()), expected=5000),
        Measured("different ids less different vectors", len(torch.unique(ids)) - different, expected=0),
    )


def _linear_layer_on_one_hot() -> Sequence[Measured]:
    table, ids = token_table(), example_ids()
    linear = torch.nn.Linear(20, 64, bias=False)
    linear.load_state_dict({"weight": table.weight.detach().T})
    start, one_hot = table.weight.detach().clone(), F.one_hot(ids, 20).float()
    for _ in range(3):
        for module, given in ((table, ids), (linear, one_hot)):
            optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
            module.zero_grad()
            module(given).pow(3).sum().backward()
            optimizer.step()
    moved = largest_difference(table.weight.detach(), start)
    difference = largest_difference(linear.weight.detach().T, table.weight.detach())
    return (
        Measured("three steps of SGD through one-hot rows change nothing", moved < 1e-6, claimed=True),
        Measured("they change the rows otherwise than in a table", difference > 1e-5 * moved, claimed=True),
        Measured("largest difference to the table's rows", difference, expected=0, within=1e-7),
    )


def _circle() -> Sequence[Measured]:
    angle = torch.arange(20) * 2 * torch.pi / 20
    table = TokenEmbedding.from_weight(torch.stack([angle.cos(), angle.sin()], -1))
    ids = torch.arange(20)
    right = int((table.readout(table(ids)).argmax(-1) == ids).sum())
    return (
        Measured("features in which 20 tokens are told apart", table.embedding_dim, 64, expected=2),
        Measured("of 20 tokens, those whose own logit is the highest", right, expected=20),
    )


def _glorot() -> Sequence[Measured]:
    fan_in, glorot = (token_table(init).weight.detach() for init in ("fan_in_uniform", "glorot_uniform"))
    return (
        Measured("bound by Glorot and Bengio, sqrt(6 / (20 + 64))", sqrt(6 / 84), 0.125, 5e-4, 0.267, 5e-4),
        Measured("largest of 1280 values by Glorot", float(glorot.abs().max()), 0.125, 0.002, 0.267, 0.003),
        Measured("their standard deviation", float(glorot.std()), expected=0.154, within=0.154 / 20),
        Measured("largest with the bound sqrt(1/64)", float(fan_in.abs().max()), expected=0.125, within=0.002),
        Measured("their standard deviation, with it", float(fan_in.std()), expected=0.072, within=0.072 / 20),
    )


def _initial_range() -> Sequence[Measured]:
    def largest(init: Init | float) -> Tensor:
        return torch.stack([token_table(init, seed=seed).weight.detach().abs().max() for seed in range(50)])

    fan_in = float(token_table("fan_in_uniform").weight.detach().std())
    glorot, normal = float(largest("glorot_uniform").mean()), largest(0.15)
    return (
        Measured("standard deviation by Glorot, sqrt(2 / 84)", sqrt(2 / 84), 0.15, 0.005),
        Measured("largest value by Glorot, mean of 50 tables", glorot, 0.3, 0.05, 0.267, 0.003),
        Measured("standard deviation with the bound 0.125", fan_in, 0.15, 0.005, 0.072, 0.004),
        Measured("largest value with N(0, 0.15), mean of 50 tables", float(normal.mean()), 0.3, 0.05, 0.5, 0.05),
        Measured("of these tables, those with values beyond 0.3", int((normal > 0.3).sum()), expected=50),
    )


def _update_rule() -> Sequence[Measured]:
    table = token_table()
    before = table.weight.detach().clone()
    table(example_ids()).pow(2).sum().backward()
    gradient = table.weight.grad
    assert gradient is not None
    wanted = before - 0.5 * gradient
    torch.optim.SGD(table.parameters(), lr=0.5).step()
    after = table.weight.detach()
    absent = [t for t in range(20) if t not in EXAMPLE_IDS]
    rows = token_table()
    g = torch.randn(1, 8, 64, generator=torch.Generator().manual_seed(2))
    rows(example_ids()).backward(g)
    assert rows.weight.grad is not None
    touched = rows.weight.grad.abs().sum(-1).nonzero()[:, 0].tolist()
    commas, single = rows.weight.grad[19], rows.weight.grad[15]
    return (
        Measured("difference to E - lr gradient after a step of SGD", largest_difference(after, wanted),
                 claimed=0, tolerance=1e-7),
        Measured("change of the rows of absent tokens", largest_difference(after[absent], before[absent]), expected=0),
        Measured("rows with a gradient", str(touched), expected=str(sorted(set(EXAMPLE_IDS)))),
        Measured("how many", len(touched), expected=7),
        Measured("the comma's gradient less the sum of its two", largest_difference(commas, g[0, 3] + g[0, 5]),
                 expected=0, within=1e-6),
        Measured('the gradient of "Max" less its own', largest_difference(single, g[0, 0]), expected=0, within=1e-6),
    )  # fmt: skip


def _gpt_widths() -> Sequence[Measured]:
    gpt2, gpt3 = PUBLISHED["GPT-2"], PUBLISHED["GPT-3"]
    return (
        Measured("features of GPT-2", gpt2[1], 768),
        Measured("features of GPT-3", gpt3[1], 12_288),
        Measured("rows of both, more than 50,000", min(gpt2[0], gpt3[0]) > 50_000, claimed=True),
        Measured("numbers in the table of GPT-2", _size("GPT-2"), expected=38_597_376),
        Measured("numbers in the table of GPT-3", _size("GPT-3"), expected=617_558_016),
    )


def _size(model: str) -> int:
    rows, dim = PUBLISHED[model]
    return parameters({"vocab_size": rows, "dim": dim}).tokens


CLAIMS: tuple[Claim, ...] = measured_claims(
    {
        "0.1": _tokenizer,
        "0.2": _lookup,
        "0.3": _expansion,
        "0.4": _published_tables,
        "0.5": _information,
        "0.6": _linear_layer_on_one_hot,
        "0.7": _circle,
        "0.8": _glorot,
        "0.9": _initial_range,
        "0.10": _update_rule,
        "0.16": _gpt_widths,
    }
)
