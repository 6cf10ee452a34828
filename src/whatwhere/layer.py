"""The input layer: what each token is, plus where it stands."""

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from whatwhere.errors import DoorError, ShapeError
from whatwhere.ruler import positions as count
from whatwhere.what.embedding import Init, Scale, TokenEmbedding
from whatwhere.where.binding import Here, Where
from whatwhere.where.doors import InputEncoding, PositionsLike, QueryKeyMap, ScoreBias


class InputLayer(nn.Module):
    """Turn ids into vectors that say what each token is and, if an input scheme is given, where it stands.

        x_i = s E[id_i] + input(p_i)

    Args:
        vocab_size: rows of the token table.
        dim: features of a vector.
        input: a scheme of the input door (Sinusoidal, Learned), or None; schemes of the other doors go to attention.
        init, scale, padding_id: of the token table, see TokenEmbedding.

    >>> layer = InputLayer(vocab_size=100, dim=8)
    >>> layer(torch.tensor([[4, 2, 7]])).shape
    torch.Size([1, 3, 8])
    """

    def __init__(
        self,
        vocab_size: int,
        dim: int,
        input: InputEncoding | None = None,
        *,
        init: Init | float = "normal",
        scale: float | Scale | None = None,
        padding_id: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        _require_input(input, dim)
        self.tokens = TokenEmbedding(
            vocab_size, dim, init=init, scale=scale, padding_id=padding_id, device=device, dtype=dtype
        )
        self.where = Where(input=input)

    def reset_parameters(self) -> None:
        """Draw the token table and the positions anew."""
        self.tokens.reset_parameters()
        reset = getattr(self.where.input, "reset_parameters", None)
        if reset is not None:
            reset()

    def forward(
        self, ids: Integer[Tensor, "batch tokens"], positions: PositionsLike | Here | None = None
    ) -> Float[Tensor, "batch tokens dim"]:
        """Give the vector of each token at its position.

        Args:
            ids: token ids.
            positions: where they stand; None counts 0, 1, 2, .... A Here bound by the model serves as it is, and
                its input scheme is the one that is added.
        """
        if ids.dim() != 2:
            raise ShapeError(
                f"ids have shape (batch, tokens), but these {tuple(ids.shape)}.\nFor one sequence pass ids[None]."
            )
        here = positions if isinstance(positions, Here) else self._bind(ids, positions)
        if self.where.input is not None and here.where.input is not self.where.input:
            raise DoorError(
                "this layer has an input scheme of its own, but the Here that was passed was bound with another one.\n"
                "Give the scheme to one of them: InputLayer(input=None), or bind the layer's own layer.where."
            )
        return here.embed(self.tokens, ids)

    def _bind(self, ids: Tensor, positions: PositionsLike | None) -> Here:
        return self.where.at(count(ids.shape[1], device=ids.device) if positions is None else positions)


def _require_input(scheme: object, dim: int) -> None:
    name = type(scheme).__name__
    if isinstance(scheme, QueryKeyMap):
        raise DoorError(
            f"InputLayer adds position to the token vectors, but {name} acts on queries and keys.\n"
            "Pass it to your attention instead: q, k = rope(q, k, positions)."
        )
    if isinstance(scheme, ScoreBias):
        raise DoorError(
            f"InputLayer adds position to the token vectors, but {name} is added to the scores.\n"
            "Pass it to your attention instead: attn_mask=alibi(positions, causal=True)."
        )
    if isinstance(scheme, InputEncoding) and scheme.dim != dim:
        raise ShapeError(f"InputLayer has dim={dim}, but {name} has dim={scheme.dim}: make both equal.")
