"""The token tables that a comparison can train, or leave as they are: learned, frozen, one-hot, low rank, raw ids."""

from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import parametrize

from whatwhere.comparison.settings import Settings, rank_of
from whatwhere.errors import SettingError
from whatwhere.what.embedding import Init, TokenEmbedding


class LowRank(nn.Module):
    """The product of two factors as the weight of a table: E = A B, A (tokens, rank), B (rank, dim).

    It starts as the best approximation of a sampled table by this rank (Eckart and Young 1936), scaled to its norm.

    Args:
        rank: of the product.
    """

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank = rank

    def forward(self, left: Float[Tensor, "tokens rank"], right: Float[Tensor, "rank dim"]) -> Tensor:
        """Return the table."""
        return left @ right

    def right_inverse(self, table: Float[Tensor, "tokens dim"]) -> tuple[Tensor, Tensor]:
        """Return the factors of the approximation of a table."""
        u, s, v = torch.linalg.svd(table, full_matrices=False)
        kept = s[: self.rank] * (s.norm() / s[: self.rank].norm())
        return u[:, : self.rank] * kept.sqrt(), kept.sqrt()[:, None] * v[: self.rank]


def token_table(vocab_size: int, settings: Settings, generator: torch.Generator | None = None) -> TokenEmbedding:
    """Build the token table that the settings name.

        learned, frozen  rows sampled as `init` describes
        onehot           E[t] = e_t
        rankK            A B, of rank K, sampled as `init` describes
        ids              E[t] = z_t u + v,  z_t = (t - mean) / std,  u and v sampled, orthogonal and of norm 1

    `ids` is what a linear layer makes of the id as a number. Without v, the normalization before attention would leave
    of z_t its sign alone. All kinds advance the generator alike, so that the layers of a model start equal.

    Examples:
        >>> token_table(3, Settings("expressions", (8,), dim=4, table="onehot")).weight
        Parameter containing:
        tensor([[1., 0., 0., 0.],
                [0., 1., 0., 0.],
                [0., 0., 1., 0.]])
    """
    dim, kind = settings.dim, settings.table
    table = TokenEmbedding(vocab_size, dim, init=cast("Init | float", settings.init), device="meta")
    table.to_empty(device="cpu").reset_parameters(generator)
    if kind == "onehot":
        if dim < vocab_size:
            raise SettingError(f"one-hot rows of {vocab_size} tokens need dim={vocab_size} or more, but dim={dim}.")
        return TokenEmbedding.from_weight(torch.eye(vocab_size, dim), freeze=True)
    if kind == "ids":
        return TokenEmbedding.from_weight(_ids(table.weight.detach()), freeze=True)
    rank = rank_of(kind)
    if rank is not None:
        parametrize.register_parametrization(table, "weight", LowRank(rank))
    elif kind == "frozen":
        table.weight.requires_grad_(False)
    return table


def reset_table(table: TokenEmbedding, generator: torch.Generator | None = None) -> None:
    """Sample a table anew, and its factors where it has such; a table that is fixed stays."""
    if not parametrize.is_parametrized(table):
        if table.weight.requires_grad:
            table.reset_parameters(generator)
        return
    rows, dim = table.weight.shape
    sampled = TokenEmbedding(rows, dim, init=table.init, device="meta").to_empty(device=table.weight.device)
    sampled.reset_parameters(generator)
    table.weight = sampled.weight.detach()  # through right_inverse


def _ids(sampled: Float[Tensor, "tokens dim"]) -> Float[Tensor, "tokens dim"]:
    """Return a table of raw ids, in the directions of two sampled rows."""
    if min(sampled.shape) < 2:
        raise SettingError(f"table='ids' needs two tokens and dim=2 or more, but the table is {tuple(sampled.shape)}.")
    ids = torch.arange(float(len(sampled)))
    z = (ids - ids.mean()) / ids.std(correction=0)
    directions, _ = torch.linalg.qr(sampled[:2].T)
    table: Tensor = z[:, None] * directions[:, 0] + directions[:, 1]
    return table
