"""A factorized token table: narrow rows, and one projection of all of them."""

from collections.abc import Callable
from typing import final

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from whatwhere.checks import require_whole
from whatwhere.errors import ShapeError
from whatwhere.initialization import reset_linear
from whatwhere.what.embedding import Init, TokenEmbedding


@final
class FactorizedEmbedding(nn.Module):
    """Store a narrow vector for each token and project it to the dim of the model: a table of low rank, E = A B.

        x_i = B^T a_(id_i) + b        logits = (h B^T) A^T        A: (num_embeddings, token_dim), B: (token_dim, dim)

    It has V r + r D numbers instead of V D: Lan et al. 2019 (ALBERT), https://arxiv.org/abs/1909.11942. `readout` uses
    both factors again, as NeoMME does. ALBERT and ELECTRA share A alone: project hidden states to token_dim by your own
    head, then use `tokens.readout`. In these two, positions and a norm come between the factors: use the parts,
    `projection(norm(tokens(ids) + positions))`.

    Args:
        num_embeddings: V, rows.
        token_dim: r, features of a row; `embedding_size` in ALBERT, `embedding_rank` in NeoMME.
        dim: D, features of the model.
        padding_idx: as in TokenEmbedding: its row of A is zero.
        bias: whether b is added, as in ALBERT and ELECTRA; `readout` does not use it.
        init: how A is sampled, see TokenEmbedding.

    Learned: `tokens`, a TokenEmbedding with A, and `projection`, as nn.Linear.

    Raises:
        ShapeError: If a size is not a whole number of at least 1.

    Examples:
        >>> table = FactorizedEmbedding(num_embeddings=100, token_dim=4, dim=16)
        >>> x = table(torch.tensor([[3, 99]]))
        >>> x.shape, table.readout(x).shape
        (torch.Size([1, 2, 16]), torch.Size([1, 2, 100]))
    """

    __call__: Callable[..., Tensor]

    def __init__(
        self,
        num_embeddings: int,
        token_dim: int,
        dim: int,
        padding_idx: int | None = None,
        *,
        bias: bool = False,
        init: Init | float = "normal",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        require_whole("FactorizedEmbedding", token_dim=token_dim, dim=dim)
        super().__init__()
        self.tokens = TokenEmbedding(num_embeddings, token_dim, padding_idx, init=init, device=device, dtype=dtype)
        self.projection = nn.Linear(token_dim, dim, bias=bias, device=device, dtype=dtype)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Initialize both factors again.

        Args:
            generator: to sample with; None is PyTorch's global random state.

        Raises:
            SettingError: If the generator is on another device.
        """
        self.tokens.reset_parameters(generator)
        reset_linear(self.projection, generator)

    def forward(self, ids: Integer[Tensor, "*shape"]) -> Float[Tensor, "*shape dim"]:
        """Look up the row of each id and project it.

        Args:
            ids: whole numbers of any dtype.

        Raises:
            TokenError: If an id is outside the vocabulary, or ids are not whole numbers.
        """
        x: Tensor = self.projection(self.tokens(ids))
        return x

    def readout(self, hidden: Float[Tensor, "*shape dim"]) -> Float[Tensor, "*shape vocab_size"]:
        """Compute logits with both factors, transposed: <h, B^T a> for each token.

        Args:
            hidden: vectors of the last layer.

        Returns:
            Logits; those of the padding token are zero.

        Raises:
            ShapeError: If the vectors have another dim.
        """
        if hidden.shape[-1] != self.projection.out_features:
            raise ShapeError(
                f"readout needs vectors of shape (..., {self.projection.out_features}), but got "
                f"{tuple(hidden.shape)}.\nPass those of the last layer."
            )
        return self.tokens.readout(hidden @ self.projection.weight)
