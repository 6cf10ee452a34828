"""The input layer: the sum of token embeddings (what a token is) and position vectors (where it is)."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from whatwhere.checks import answers_names_of_others
from whatwhere.errors import DoorError, ShapeError
from whatwhere.position.positions import PositionsLike, as_positions
from whatwhere.tensor_checks import require_ids
from whatwhere.what.embedding import Init, Scale, TokenEmbedding
from whatwhere.where.base import InputEncoding
from whatwhere.where.binding import Here, Where, require_door


class InputLayer(nn.Module):
    """Token embeddings plus, if an input scheme is given, position vectors.

        x_i = s E[id_i] + input(p_i)

    Args:
        vocab_size: rows of the token table.
        dim: features of a vector.
        input: a scheme that is added to the token vectors (Sinusoidal, Learned), or None; others, such as Rotary and
            ALiBi, belong to attention.
        init, scale, padding_idx, device, dtype: of the token table, see TokenEmbedding.

    Raises:
        DoorError: If the scheme is not added to the token vectors.
        ShapeError: If the scheme has another dim.

    Examples:
        >>> layer = InputLayer(vocab_size=100, dim=8)
        >>> layer(torch.tensor([[4, 2, 7]])).shape
        torch.Size([1, 3, 8])
    """

    __call__: Callable[..., Tensor]  # nn.Module returns Any

    @answers_names_of_others
    def __init__(
        self,
        vocab_size: int,
        dim: int,
        input: InputEncoding | None = None,
        *,
        init: Init | float = "normal",
        scale: float | Scale | None = None,
        padding_idx: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require_door("InputLayer", "input", input)
        if input is not None and input.dim != dim:
            raise ShapeError(
                f"InputLayer has dim={dim}, but {type(input).__name__} has dim={input.dim}.\nMake both equal."
            )
        self.tokens = TokenEmbedding(vocab_size, dim, padding_idx, init=init, scale=scale, device=device, dtype=dtype)
        self.where = Where(input=input)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Sample the token table and the parameters of the input scheme anew.

        A layer that was built on the meta device and materialized needs this, or a load_state_dict.

        Raises:
            SettingError: If an input scheme of your own has parameters, but no `reset_parameters`.

        Examples:
            >>> layer = InputLayer(vocab_size=100, dim=8, device="meta").to_empty(device="cpu")
            >>> layer.reset_parameters(torch.Generator().manual_seed(0))
        """
        self.tokens.reset_parameters(generator)
        self.where.reset_parameters(generator)

    def forward(
        self, ids: Integer[Tensor, "batch tokens"], positions: PositionsLike | Here | None = None
    ) -> Float[Tensor, "batch tokens dim"]:
        """Return the vector of each token at its position.

        Args:
            positions: Positions, an integer tensor, or a number of tokens from 0; None counts all tokens from 0. A Here
                (a Where that the model has bound to positions) adds its own input scheme.

        Raises:
            ShapeError: If ids are not (batch, tokens), or positions have another number of tokens.
            TokenError: If an id is outside the vocabulary.
            PositionError: If the scheme does not have a position.
            DoorError: If the Here belongs to another input scheme.

        Examples:
            >>> from whatwhere import Learned, Positions
            >>> layer = InputLayer(vocab_size=100, dim=8, input=Learned(dim=8, max_length=16))
            >>> layer(torch.tensor([[4, 2, 7]]), Positions.packed([1, 2])).shape  # two documents
            torch.Size([1, 3, 8])
        """
        require_ids(ids)
        if ids.dim() != 2:
            raise ShapeError(
                f"ids need shape (batch, tokens), but these have {tuple(ids.shape)}.\nFor one sequence pass ids[None]."
            )
        given = ids.shape[1] if positions is None else positions
        here = given if isinstance(given, Here) else self.where.at(as_positions(given, ids.device))
        if self.where.input is not None and not _is_same(here.where.input, self.where.input):
            raise DoorError(
                f"this layer has its own input scheme, {type(self.where.input).__name__}, but the Here that was passed "
                "was bound with another.\n"
                "Leave the scheme to one of them: InputLayer(input=None), or bind the layer's own layer.where."
            )
        return here.embed(self.tokens, ids)


def _is_same(module: nn.Module | None, other: nn.Module) -> bool:
    """Return whether two modules are one; torch.export has a proxy for each path to a module, with its attributes."""
    # Some versions of torch.compile cannot trace the second question.
    return module is other or (module is not None and vars(module) is vars(other))
