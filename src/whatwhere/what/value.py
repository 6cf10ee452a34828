"""Value embeddings: a vector of each token that is added to the values of attention."""

from collections.abc import Callable
from typing import final

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from whatwhere.checks import require_whole
from whatwhere.errors import SettingError, ShapeError
from whatwhere.what.embedding import TokenEmbedding


@final
class ValueEmbedding(nn.Module):
    """Store a vector of each token for the values of attention, and mix it into those of the layers that share it.

        v'_i = a_l v_i + b_l T[id_i]        a_l = b_l = 1 unless they are learned

    NeoMME adds one table to the values of its first and last layers with full attention, after the rotation of its
    keys; modded-nanogpt learns the two numbers for each layer. A gate that depends on the hidden state is not built:
    multiply `table(ids)` by it.

    Args:
        num_embeddings: V, rows.
        num_heads: heads of keys and values.
        head_dim: features of a head.
        mixed_layers: how many layers share the table, each with learned a_l and b_l; None: both are 1 in each.

    Learned: `tokens`, (V, num_heads head_dim), which starts at zero, so that the values start unchanged; and `mix`,
    (mixed_layers, 2), ones.

    Raises:
        ShapeError: If a size is not a whole number of at least 1.

    Examples:
        >>> table = ValueEmbedding(num_embeddings=9, num_heads=2, head_dim=4)
        >>> values = torch.ones(1, 2, 3, 4)
        >>> torch.equal(table.add(values, torch.tensor([[5, 0, 5]])), values)
        True
    """

    __call__: Callable[..., Tensor]

    mix: Float[Tensor, "mixed_layers 2"] | None

    def __init__(
        self,
        num_embeddings: int,
        num_heads: int,
        head_dim: int,
        *,
        mixed_layers: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        require_whole("ValueEmbedding", num_heads=num_heads, head_dim=head_dim)
        if mixed_layers is not None:
            require_whole("ValueEmbedding", mixed_layers=mixed_layers)
        super().__init__()
        self.tokens = TokenEmbedding(num_embeddings, num_heads * head_dim, device=device, dtype=dtype)
        mix = None if mixed_layers is None else nn.Parameter(torch.empty(mixed_layers, 2, device=device, dtype=dtype))
        self.register_parameter("mix", mix)
        self.num_heads, self.head_dim = num_heads, head_dim
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Set the table to zero and the mix to ones, where values are unchanged.

        Args:
            generator: not used; nothing is sampled.
        """
        nn.init.zeros_(self.tokens.weight)
        if self.mix is not None:
            nn.init.ones_(self.mix)

    def forward(self, ids: Integer[Tensor, "batch tokens"]) -> Float[Tensor, "batch heads tokens head_dim"]:
        """Look up the vectors of the tokens, by head.

        Args:
            ids: whole numbers of any dtype.

        Raises:
            TokenError: If an id is outside the vocabulary, or ids are not whole numbers.
        """
        rows: Tensor = self.tokens(ids).unflatten(-1, (self.num_heads, self.head_dim)).transpose(-3, -2)
        return rows

    def add(
        self,
        values: Float[Tensor, "batch heads tokens head_dim"],
        ids: Integer[Tensor, "batch tokens"],
        layer: int | None = None,
    ) -> Float[Tensor, "batch heads tokens head_dim"]:
        """Return values with the vectors of their tokens mixed in.

        Args:
            values: of the new tokens, before they enter a KV cache.
            ids: of the same tokens.
            layer: which learned mix; None where there is none.

        Raises:
            ShapeError: If values are not those of the ids.
            SettingError: If `layer` is missing, or there is no learned mix for it.
            TokenError: If an id is outside the vocabulary, or ids are not whole numbers.
        """
        added = self(ids)
        if values.shape != added.shape:
            raise ShapeError(
                f"values of these tokens have shape {tuple(added.shape)}, but got {tuple(values.shape)}.\n"
                "Pass (batch, heads, tokens, head_dim), with the heads of keys and values."
            )
        mixes = 0 if self.mix is None else len(self.mix)
        if (layer is not None and not 0 <= layer < mixes) or (layer is None and mixes):
            raise SettingError(
                f"layer={layer}, but {mixes} layers have a learned mix.\nPass 0 to mixed_layers - 1, or None without."
            )
        if self.mix is None or layer is None:
            return values + added
        return self.mix[layer, 0] * values + self.mix[layer, 1] * added

    def extra_repr(self) -> str:
        """Return the settings, for `repr`."""
        mixed = "" if self.mix is None else f", mixed_layers={len(self.mix)}"
        return f"num_heads={self.num_heads}, head_dim={self.head_dim}{mixed}"
