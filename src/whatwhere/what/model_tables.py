"""Tables of some models beside a plain one: factorized (ALBERT), for each layer (Gemma 3n), for values (NeoMME)."""

from collections.abc import Callable
from math import sqrt
from typing import final

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.nn import functional as F

from whatwhere.checks import require_positive, require_whole
from whatwhere.errors import SettingError, ShapeError, TokenError
from whatwhere.initialization import reset_linear
from whatwhere.what.embedding import Init, TokenEmbedding, require_equal_shape
from whatwhere.what.loss import OutputProjection, Projection, forward_method, require_dim


@final
class FactorizedEmbedding(OutputProjection, nn.Module):
    """Store a narrow vector for each token and project it to the dim of the model: a table of low rank, E = A B.

        x_i = B^T a_(id_i) + b        logits = (h B^T) A^T        A: (num_embeddings, token_dim), B: (token_dim, dim)

    It has V r + r D numbers instead of V D: Lan et al. 2019 (ALBERT), https://arxiv.org/abs/1909.11942. `readout` uses
    both factors again, as NeoMME does. ALBERT and ELECTRA share A alone: project hidden states to token_dim by your own
    head, then use `tokens.readout`. There, positions and a norm come between the factors: use the parts, `tokens`
    (a TokenEmbedding with A) and `projection`: `projection(norm(tokens(ids) + positions))`.

    Args:
        num_embeddings: V, rows.
        token_dim: r, features of a row; `embedding_size` in ALBERT, `embedding_rank` in NeoMME.
        dim: D, features of the model.
        padding_idx: as in TokenEmbedding: its row of A is zero.
        bias: whether b is added, as in ALBERT and ELECTRA; `readout` does not use it.
        init: how A is sampled, see TokenEmbedding.

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
        """Initialize both factors again; SettingError if the generator is on another device."""
        self.tokens.reset_parameters(generator)
        reset_linear(self.projection, generator)

    def forward(self, ids: Integer[Tensor, "*shape"]) -> Float[Tensor, "*shape dim"]:
        """Look up the row of each id and project it; TokenError as TokenEmbedding."""
        x: Tensor = self.projection(self.tokens(ids))
        return x

    @forward_method
    def readout(self, hidden: Float[Tensor, "*shape dim"]) -> Float[Tensor, "*shape vocab_size"]:
        """Compute logits from both factors, also of vocabulary shards; ShapeError if vectors have another dim."""
        require_dim(hidden, self.projection.out_features)
        return self.tokens.readout(hidden @ self.projection.weight)

    def _project(self, hidden: Float[Tensor, "*shape dim"], ids: Tensor | None = None) -> Projection:
        require_dim(hidden, self.projection.out_features)
        return self.tokens._project(hidden @ self.projection.weight, ids)


@final
class PerLayerEmbedding(nn.Module):
    """Store a vector of each token for each layer, and mix it with a projection of the token's input vector.

        y[i, l] = (sqrt(d) E[id_i, l] + norm_g((W x_i)_l / sqrt(D))) / sqrt(2)        norm_g(z) = g z / rms(z)

    Gemma 3n and Gemma 4 (per-layer embeddings, PLE): rows of `embed_tokens_per_layer`, and for the projection
    `per_layer_model_projection` and `per_layer_projection_norm`. What a layer l does with y[:, l] is part of the layer:
    in both, a gate of its hidden state multiplies it, and a projection of the product is added.

    The factors are exact here, as in Gemma 4; Gemma 3n rounds 1 / sqrt(D) and 1 / sqrt(2) to the dtype of x, which
    differs in bfloat16 only. The norm is computed in float32 at least.

    Args:
        num_embeddings: V, rows; Gemma's tables can be shorter than the token table.
        num_layers: L.
        layer_dim: d, features of the vector for each layer.
        dim: D, features of the input vectors x; those of the token table, after its scale.
        eps: added to the mean square.
        outside: the row that ids from num_embeddings on read: 0 in Gemma 3n, whose images and sounds have such ids.
            None: an error.
        tokens: the table of V rows and L d features, such as a FileTokenEmbedding, whose scale is set; None is a new
            TokenEmbedding.

    Learned: `tokens`, (V, L d), which starts as GPT-2's, N(0, 0.02); `projection`, as nn.Linear; and `norm`, ones.

    Raises:
        ShapeError: If a size is not a whole number of at least 1.
        SettingError: If eps is not positive.
        TokenError: If `outside` is not a row.

    Examples:
        >>> table = PerLayerEmbedding(num_embeddings=9, num_layers=2, layer_dim=4, dim=8)
        >>> ids = torch.tensor([[3, 1, 3]])
        >>> table(ids, torch.randn(1, 3, 8)).shape
        torch.Size([1, 3, 2, 4])
        >>> rows = table.lookup(ids)
        >>> torch.equal(rows[0, 0], rows[0, 2])
        True
    """

    __call__: Callable[..., Tensor]

    norm: Float[Tensor, " layer_dim"]

    def __init__(
        self,
        num_embeddings: int,
        num_layers: int,
        layer_dim: int,
        dim: int,
        *,
        eps: float = 1e-6,
        outside: int | None = None,
        tokens: TokenEmbedding | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        require_whole("PerLayerEmbedding", num_layers=num_layers, layer_dim=layer_dim, dim=dim)
        require_positive("PerLayerEmbedding", eps=eps)
        super().__init__()
        size = num_layers * layer_dim
        if tokens is None:
            tokens = TokenEmbedding(num_embeddings, size, device=device, dtype=dtype)
        require_equal_shape("PerLayerEmbedding", tokens, num_embeddings, size)
        self.tokens = tokens
        tokens.scale, tokens.scale_rounded = sqrt(layer_dim), True  # in the table's dtype, as the models round it
        self.projection = nn.Linear(dim, size, bias=False, device=device, dtype=dtype)
        self.norm = nn.Parameter(torch.ones(layer_dim, device=device, dtype=dtype))
        if outside is not None and not (isinstance(outside, int) and 0 <= outside < num_embeddings):
            raise TokenError(f"outside={outside} is not a row of 0..{num_embeddings - 1}.\nPass one of these, or None.")
        self.num_layers, self.layer_dim, self.dim, self.eps, self.outside = num_layers, layer_dim, dim, eps, outside

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Initialize all parameters again; SettingError if the generator is on another device."""
        self.tokens.reset_parameters(generator)
        reset_linear(self.projection, generator)
        nn.init.ones_(self.norm)

    def lookup(self, ids: Integer[Tensor, "*shape"]) -> Float[Tensor, "*shape layers layer_dim"]:
        """Look up what the tokens are in each layer, sqrt(d) E[id, l]; TokenError if an id has no row."""
        if self.outside is not None:
            ids = torch.where((ids >= 0) & (ids < self.tokens.num_embeddings), ids, self.outside)
        rows: Tensor = self.tokens(ids).unflatten(-1, (self.num_layers, self.layer_dim))
        return rows

    def project(self, x: Float[Tensor, "*shape dim"]) -> Float[Tensor, "*shape layers layer_dim"]:
        """Compute what the input vectors give to each layer: their projection, normalized for each layer.

        Raises:
            ShapeError: If they have another dim.
        """
        if x.shape[-1] != self.dim:
            raise ShapeError(
                f"PerLayerEmbedding needs input vectors of shape (..., {self.dim}), but got {tuple(x.shape)}.\n"
                "Pass the vectors that the first layer reads."
            )
        z = (self.projection(x) * self.dim**-0.5).unflatten(-1, (self.num_layers, self.layer_dim))
        wide = torch.promote_types(z.dtype, torch.float32)
        return F.rms_norm(z.to(wide), (self.layer_dim,), self.norm.to(wide), self.eps).to(z.dtype)

    def forward(
        self, ids: Integer[Tensor, "*shape"] | None, x: Float[Tensor, "*shape dim"]
    ) -> Float[Tensor, "*shape layers layer_dim"]:
        """Compute the vectors for all layers from ids and the input vectors of the same tokens.

        Without ids, the projection alone is returned, as Gemma does.

        Raises:
            TokenError: If an id has no row and `outside` is None.
            ShapeError: If x has another shape than the ids and dim.
        """
        if ids is not None and x.shape[:-1] != ids.shape:
            raise ShapeError(
                f"PerLayerEmbedding needs an input vector for each id, but ids have shape {tuple(ids.shape)} and x "
                f"{tuple(x.shape)}.\nPass x of shape {(*ids.shape, self.dim)}."
            )
        projected = self.project(x)
        return projected if ids is None else (projected + self.lookup(ids)) * 2**-0.5

    def extra_repr(self) -> str:
        """Return the settings, for `repr`."""
        outside = "" if self.outside is None else f", outside={self.outside}"
        return f"num_layers={self.num_layers}, layer_dim={self.layer_dim}, dim={self.dim}, eps={self.eps}{outside}"


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

    Learned: `tokens`, which starts at zero, so that the values start unchanged; and `mix`, (mixed_layers, 2), ones.

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
        """Set the table to zero and the mix to ones, where values are unchanged."""
        nn.init.zeros_(self.tokens.weight)
        if self.mix is not None:
            nn.init.ones_(self.mix)

    def forward(self, ids: Integer[Tensor, "batch tokens"]) -> Float[Tensor, "batch heads tokens head_dim"]:
        """Look up the vectors of the tokens, by head; TokenError as TokenEmbedding."""
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
