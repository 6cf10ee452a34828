"""The token table: what a token is."""

from math import frexp, ldexp, sqrt
from typing import TYPE_CHECKING, Any, Literal, Protocol

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from whatwhere.checks import require_choice, require_positive, require_range, require_whole
from whatwhere.errors import ShapeError, TokenError
from whatwhere.kernels.embedding import embed, gradient_of_rows, scaled

if TYPE_CHECKING:
    from whatwhere.what.surgery import Draw

Init = Literal["normal", "glorot_uniform", "glorot_normal", "fan_in_uniform", "torch"]
Scale = Literal["sqrt_dim", "sqrt_dim_rounded"]
SCALES: tuple[Scale, ...] = ("sqrt_dim", "sqrt_dim_rounded")
INITS: tuple[Init, ...] = ("normal", "glorot_uniform", "glorot_normal", "fan_in_uniform", "torch")


class Keeper(Protocol):
    """What stands between a table and its readers: RowAdamW, which brings rows up to date when they are read."""

    def lookup(self, weight: Tensor, ids: Tensor, padding_id: int | None) -> Tensor:
        """Give the rows of ids."""

    def before_readout(self) -> None:
        """Bring the whole table up to date."""


class TokenEmbedding(nn.Module):
    """Hold one vector for each token; look rows up, and read logits out with the same weight.

        x_i = s E[id_i]        logits = h E^T        E: (vocab_size, dim)

    A lookup is the product of a one-hot row with E, and its gradient is the sum over all places of a token. Sharing
    the weight with the readout is Press and Wolf 2017, https://arxiv.org/abs/1608.05859.

    Args:
        vocab_size: V, rows.
        dim: d, features of a row.
        init: how E is drawn. `normal`: N(0, 0.02), GPT-2. `glorot_uniform`: U(-a, a), a = sqrt(6 / (V + d)), and
            `glorot_normal`: N(0, sqrt(2 / (V + d))), Glorot and Bengio 2010. `fan_in_uniform`: U(-a, a),
            a = sqrt(1 / d), after LeCun 1998. `torch`: N(0, 1), as nn.Embedding. A number: N(0, that number).
        scale: s, multiplies looked-up rows only; a number, or `sqrt_dim` for sqrt(d) as Vaswani et al. 2017 do, or
            `sqrt_dim_rounded` for sqrt(d) in the table's own type, as Gemma does: 55.4256 is 55.5 in bfloat16.
        padding_id: a token whose row is zero, gets no gradient from lookup or readout, and has logit zero.

    Ids are checked: exactly on the CPU, on the device elsewhere. Gradients of repeated tokens are summed in float32
    also where E is bfloat16 or float16.

    >>> table = TokenEmbedding(vocab_size=20, dim=64)
    >>> x = table(torch.tensor([[15, 17, 3]]))
    >>> x.shape, table.readout(x).shape
    (torch.Size([1, 3, 64]), torch.Size([1, 3, 20]))
    """

    weight: Float[Tensor, "vocab_size dim"]
    keeper: Keeper | None = None  # set by RowAdamW, whose rows may be behind

    def __init__(
        self,
        vocab_size: int,
        dim: int,
        *,
        init: Init | float = "normal",
        scale: float | Scale | None = None,
        padding_id: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require_whole("TokenEmbedding", vocab_size=vocab_size, dim=dim)
        if isinstance(init, str):
            require_choice("TokenEmbedding", "init", init, INITS)
        else:
            require_positive("TokenEmbedding", init=init)
        if isinstance(scale, str):
            require_choice("TokenEmbedding", "scale", scale, SCALES)
        elif scale is not None:
            require_positive("TokenEmbedding", scale=scale)
        if padding_id is not None and not (isinstance(padding_id, int) and 0 <= padding_id < vocab_size):
            raise TokenError(f"padding_id={padding_id} is outside the vocabulary, which has ids 0..{vocab_size - 1}.")
        self.vocab_size, self.dim, self.init, self.padding_id = vocab_size, dim, init, padding_id
        self.scale = sqrt(dim) if isinstance(scale, str) else scale
        self.scale_rounded = scale == "sqrt_dim_rounded"
        self.weight = nn.Parameter(torch.empty(vocab_size, dim, device=device, dtype=dtype))
        self.reset_parameters()

    @classmethod
    def from_weight(
        cls, weight: Float[Tensor, "vocab_size dim"], padding_id: int | None = None, freeze: bool = False
    ) -> "TokenEmbedding":
        """Make a table with given values.

        Args:
            weight: the rows; a tensor is shared, not copied, unless its padding row must be made zero.
            padding_id: as above; its row becomes zero, in a copy.
            freeze: keep training away from it.

        >>> table = TokenEmbedding.from_weight(torch.tensor([[0.1, 0.2], [0.4, 0.5]]))
        >>> table(torch.tensor([1]))
        tensor([[0.4000, 0.5000]], grad_fn=<EmbeddingBackward0>)
        """
        if weight.dim() != 2:
            raise ShapeError(f"a token table has shape (vocab_size, dim), but this one {tuple(weight.shape)}.")
        if not weight.is_floating_point():
            raise ShapeError(
                f"a token table holds floating-point numbers, but this one {weight.dtype}: pass weight.float()."
            )
        # On meta nothing is drawn: the values are about to be replaced.
        table = cls(*weight.shape, padding_id=padding_id, device="meta", dtype=weight.dtype)
        values = weight.detach()
        if padding_id is not None:
            values = values.clone()
            values[padding_id] = 0
        table.weight = nn.Parameter(values, requires_grad=not freeze)
        return table

    def reset_parameters(self) -> None:
        """Draw the table anew; the padding row stays zero."""
        span = self.vocab_size + self.dim
        if not isinstance(self.init, str):
            nn.init.normal_(self.weight, std=self.init)
        elif self.init == "glorot_uniform":
            nn.init.uniform_(self.weight, -sqrt(6 / span), sqrt(6 / span))
        elif self.init == "fan_in_uniform":
            nn.init.uniform_(self.weight, -sqrt(1 / self.dim), sqrt(1 / self.dim))
        else:
            stds = {"normal": 0.02, "glorot_normal": sqrt(2 / span), "torch": 1.0}
            nn.init.normal_(self.weight, std=stds[self.init])
        if self.padding_id is not None:
            with torch.no_grad():
                self.weight[self.padding_id].zero_()

    def forward(self, ids: Integer[Tensor, "*shape"]) -> Float[Tensor, "*shape dim"]:
        """Look up the row of each id."""
        self._require_whole(ids)
        # Narrow types, common in files of tokens, have no kernels for range checks and lookups.
        ids = ids if ids.dtype in (torch.int64, torch.int32) else ids.long()
        if self.keeper is not None:
            self._require_ids(ids)
            return scaled(self.keeper.lookup(self.weight, ids, self.padding_id), self.factor)
        rows = embed(self.weight, ids, self.factor, self.padding_id)
        if rows is not None:
            return rows
        self._require_ids(ids)
        return scaled(lookup(self.weight, ids, self.padding_id), self.factor)

    @property
    def factor(self) -> float | None:
        """What rows are multiplied by: the scale, in the table's own type where `sqrt_dim_rounded` asks for that."""
        return _rounded(self.scale, self.weight.dtype) if self.scale_rounded and self.scale is not None else self.scale

    def readout(self, hidden: Float[Tensor, "*shape dim"]) -> Float[Tensor, "*shape vocab_size"]:
        """Give the logit of each token, <hidden, E[token]>; the padding token's is zero."""
        if hidden.shape[-1] != self.dim:
            raise ShapeError(f"readout needs (..., {self.dim}), but got {tuple(hidden.shape)}.")
        if self.keeper is not None:
            self.keeper.before_readout()
        logits = F.linear(hidden, self.weight)
        if self.padding_id is not None:
            # The zero row gives logit zero already; writing it cuts the row off from the gradient.
            logits[..., self.padding_id] = 0
        return logits

    def resize(
        self, vocab_size: int, optimizer: Optimizer | None = None, *, draw: "Draw" = "mean", seed: int = 0
    ) -> None:
        """Change the number of rows in place; the first stay as they are, new ones are like the others.

        Args:
            vocab_size: rows that the table shall have.
            optimizer: that trains it, and goes on with the moments of the rows that stay; see
                `whatwhere.what.surgery.rearrange`. Where another module holds this weight too, as a tied head of a
                model of transformers does, call `whatwhere.what.surgery.resize(model, vocab_size)` with the whole.
            draw, seed: what new rows are: `mean`, `noise` or `covariance`, see Rearrangement there.

        >>> table = TokenEmbedding(vocab_size=20, dim=4)
        >>> table.resize(32)
        >>> table(torch.tensor([31])).shape
        torch.Size([1, 4])
        """
        from whatwhere.what.surgery import resize

        resize(self, vocab_size, optimizer=optimizer, draw=draw, seed=seed)

    def extra_repr(self) -> str:
        """Show the settings."""
        settings = f"vocab_size={self.vocab_size}, dim={self.dim}, init={self.init!r}"
        settings += "" if self.scale is None else f", scale={self.scale:.6g}{' rounded' if self.scale_rounded else ''}"
        return settings + ("" if self.padding_id is None else f", padding_id={self.padding_id}")

    def _require_whole(self, ids: Tensor) -> None:
        if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
            raise TokenError(f"ids are whole numbers, but these have dtype {ids.dtype}: pass ids.long().")

    def _require_ids(self, ids: Tensor) -> None:
        def outside(value: int, place: tuple[int, ...]) -> TokenError:
            return TokenError(
                f"id {value} at {place} is outside the vocabulary, which has {self.vocab_size} tokens "
                f"(0..{self.vocab_size - 1}).\n"
                "Check that the tokenizer belongs to this table, or make the table larger."
            )

        require_range(ids, self.vocab_size, outside)


def lookup(
    weight: Float[Tensor, "rows dim"], index: Integer[Tensor, "*shape"], padding_id: int | None = None
) -> Float[Tensor, "*shape dim"]:
    """Take rows of a table; the gradient of a repeated row is summed in float32 at least.

    PyTorch's CPU kernel sums in the table's own type: 4,096 gradients of 1 make 256 in bfloat16.

    Args:
        padding_id: a row that gets no gradient.

    >>> lookup(torch.tensor([[1.0], [2.0]]), torch.tensor([1, 1, 0])).flatten()
    tensor([2., 2., 1.])
    """
    if weight.dtype in (torch.bfloat16, torch.float16) and weight.device.type == "cpu":
        rows: Tensor = _LowPrecisionLookup.apply(weight, index, padding_id)  # type: ignore[no-untyped-call]
        return rows
    return F.embedding(index, weight, padding_idx=padding_id)


class _LowPrecisionLookup(torch.autograd.Function):
    """F.embedding with a float32 sum in the backward."""

    generate_vmap_rule = True

    @staticmethod
    def forward(weight: Tensor, index: Tensor, padding_id: int | None) -> Tensor:
        return F.embedding(index, weight)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, int | None], output: Tensor) -> None:
        weight, index, ctx.padding_id = inputs
        ctx.rows = weight.shape[0]
        ctx.save_for_backward(index)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return gradient_of_rows(gradients[0], ctx.saved_tensors[0], ctx.rows, ctx.padding_id), None, None


def _rounded(number: float, dtype: torch.dtype) -> float:
    """Round a number to a floating-point type.

    >>> _rounded(55.4256, torch.bfloat16)
    55.5
    """
    mantissa, exponent = frexp(number)  # 1/2 <= mantissa < 1
    steps = 2 / torch.finfo(dtype).eps
    return ldexp(round(mantissa * steps) / steps, exponent)
