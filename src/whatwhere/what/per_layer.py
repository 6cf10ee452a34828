"""Per-layer embeddings: a vector of each token for each layer, beside the token table."""

from collections.abc import Callable
from math import sqrt
from typing import final

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.nn import functional as F

from whatwhere.checks import require_positive, require_whole
from whatwhere.errors import ShapeError, TokenError
from whatwhere.initialization import reset_linear
from whatwhere.what.embedding import TokenEmbedding, require_equal_shape


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
        """Initialize all parameters again.

        Args:
            generator: to sample with; None is PyTorch's global random state.

        Raises:
            SettingError: If the generator is on another device.
        """
        self.tokens.reset_parameters(generator)
        reset_linear(self.projection, generator)
        nn.init.ones_(self.norm)

    def lookup(self, ids: Integer[Tensor, "*shape"]) -> Float[Tensor, "*shape layers layer_dim"]:
        """Look up what the tokens are in each layer: sqrt(d) E[id, l].

        Args:
            ids: whole numbers.

        Raises:
            TokenError: If an id has no row and `outside` is None.
        """
        if self.outside is not None:
            ids = torch.where((ids >= 0) & (ids < self.tokens.num_embeddings), ids, self.outside)
        rows: Tensor = self.tokens(ids).unflatten(-1, (self.num_layers, self.layer_dim))
        return rows

    def project(self, x: Float[Tensor, "*shape dim"]) -> Float[Tensor, "*shape layers layer_dim"]:
        """Compute what the input vectors give to each layer: their projection, normalized for each layer.

        Args:
            x: input vectors; those of images and sounds too.

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
        """Compute the vectors for all layers.

        Args:
            ids: of the tokens; None where there are none, and the projection alone is returned, as Gemma does.
            x: input vectors of the same tokens.

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
