"""The token table: a vector for each token, which is the input layer's *what*."""

from collections.abc import Callable
from math import frexp, ldexp, sqrt
from typing import Any, Literal, Protocol

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.fx import Proxy
from torch.nn import functional as F

from whatwhere.checks import answers_names_of_others, require_choice, require_positive, require_whole
from whatwhere.errors import SettingError, ShapeError, TokenError
from whatwhere.initialization import sample_rows, zero_row
from whatwhere.kernels.embedding import embed, gradient_of_rows, scaled
from whatwhere.tensor_checks import require_floating, require_generator, require_ids
from whatwhere.what.loss import OutputProjection, Projection, require_tensor, require_tokens

Init = Literal["normal", "glorot_uniform", "glorot_normal", "fan_in_uniform", "torch"]
Scale = Literal["sqrt_dim", "sqrt_dim_rounded"]
SCALES: tuple[Scale, ...] = ("sqrt_dim", "sqrt_dim_rounded")
INITS: tuple[Init, ...] = ("normal", "glorot_uniform", "glorot_normal", "fan_in_uniform", "torch")


class Keeper(Protocol):
    """What a table calls before its rows are read: a table of RowAdamW, which updates rows when they are read."""

    def lookup(self, weight: Tensor, ids: Tensor, padding_idx: int | None) -> Tensor:
        """Return the rows of ids."""

    def before_readout(self) -> None:
        """Update all rows of the table."""


class _EmbedScale:
    """No property: a subclass may give its name to an attribute of its own, as BART's, or to a buffer, as Gemma's."""

    def __get__(self, table: "TokenEmbedding | None", kind: type) -> Any:
        if table is None:
            return self
        own = table._buffers.get("embed_scale")
        return own if own is not None else 1.0 if table.factor is None else table.factor


class TokenEmbedding(OutputProjection, nn.Embedding):
    """Store one vector for each token; look rows up, and compute logits with the same weight.

        x_i = s E[id_i]        logits = h E^T        E: (num_embeddings, embedding_dim)

    A lookup is the product of a one-hot row with E, and its gradient is the sum over all slots of a token. Sharing
    the weight with the output projection is Press and Wolf 2017, https://arxiv.org/abs/1608.05859.

    It is an nn.Embedding, with its arguments and attributes, so code that looks for one accepts it: resizing in
    transformers, adapters, tensor parallelism. What differs: `init` and `scale`, `readout` and, without a tensor of all
    logits, `loss`, `log_probs` and `top`, the options that are refused below, and ids that are checked, exactly on the
    CPU, on the device elsewhere. Gradients of repeated tokens are summed in float32 also for bfloat16 or float16.

    Args:
        num_embeddings: V, rows; the size of the vocabulary.
        embedding_dim: d, features of a row.
        padding_idx: a token whose row is zero, gets no gradient by lookup or `readout`, and has logit 0; -1: the last.
        max_norm, scale_grad_by_freq, sparse: refused unless None and False, with the reason; norm_type belongs to
            max_norm.
        _weight: values to share instead of sampled ones, padding row included; _freeze: keep them from training. Prefer
            `from_weight`.
        init: how E is sampled. `normal`: N(0, 0.02), GPT-2. `glorot_uniform`: U(-a, a), a = sqrt(6 / (V + d)), and
            `glorot_normal`: N(0, sqrt(2 / (V + d))), Glorot and Bengio 2010. `fan_in_uniform`: U(-a, a),
            a = sqrt(1 / d), after LeCun 1998. `torch`: N(0, 1), as nn.Embedding. A number: N(0, that number).
        scale: s, multiplies looked-up rows only; a number, or `sqrt_dim` for sqrt(d) as Vaswani et al. 2017 do, or
            `sqrt_dim_rounded` for sqrt(d) in the table's dtype, as Gemma does: 55.4256 is 55.5 in bfloat16.

    Raises:
        SettingError: If `init` or `scale` is out of range or unknown, or an option is not supported.
        TokenError: If padding_idx is not a row.
        ShapeError: If a size is not a whole number of at least 1, or `_weight` has another shape.

    Examples:
        >>> table = TokenEmbedding(num_embeddings=20, embedding_dim=64)
        >>> x = table(torch.tensor([[15, 17, 3]]))
        >>> x.shape, table.readout(x).shape
        (torch.Size([1, 3, 64]), torch.Size([1, 3, 20]))
    """

    __call__: Callable[..., Tensor]  # nn.Module returns Any

    weight: Float[Tensor, "vocab_size dim"]
    keeper: Keeper | None = None  # set by RowAdamW, which updates some rows when they are next read
    sharding: Literal["vocabulary", "owners"] | None = None  # of a table that reads its process's rows (parallel)
    embed_scale: float = _EmbedScale()  # type: ignore[assignment]  # `factor` as a number, as adapters read it (PEFT)

    @answers_names_of_others
    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Float[Tensor, "vocab_size dim"] | None = None,
        _freeze: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        init: Init | float = "normal",
        scale: float | Scale | None = None,
    ) -> None:
        require_whole("TokenEmbedding", num_embeddings=num_embeddings, embedding_dim=embedding_dim)
        _refuse(max_norm=max_norm, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse)
        if isinstance(init, str):
            require_choice("TokenEmbedding", "init", init, INITS)
        else:
            require_positive("TokenEmbedding", init=init)
        if isinstance(scale, str):
            require_choice("TokenEmbedding", "scale", scale, SCALES)
        elif scale is not None:
            require_positive("TokenEmbedding", scale=scale)
        shape = (num_embeddings, embedding_dim)
        if padding_idx is not None and not (isinstance(padding_idx, int) and -shape[0] <= padding_idx < shape[0]):
            raise TokenError(
                f"padding_idx={padding_idx} is outside the vocabulary, which has ids 0..{num_embeddings - 1}.\n"
                "Pass one of these, or None."
            )
        if _weight is not None and _weight.shape != shape:
            raise ShapeError(
                f"_weight has shape {tuple(_weight.shape)}, but the table {shape}.\n"
                "Make both equal, or use TokenEmbedding.from_weight."
            )
        values = torch.empty(shape, device=device, dtype=dtype) if _weight is None else _weight
        super().__init__(*shape, padding_idx, norm_type=norm_type, _weight=values, _freeze=_freeze)
        self.init = init
        self.scale = sqrt(embedding_dim) if isinstance(scale, str) else scale
        self.scale_rounded = scale == "sqrt_dim_rounded"
        if _weight is None:
            self.reset_parameters()

    @classmethod
    def from_weight(
        cls, weight: Float[Tensor, "vocab_size dim"], padding_idx: int | None = None, freeze: bool = False
    ) -> "TokenEmbedding":
        """Create a table from a matrix of vectors.

        Args:
            weight: the rows; a tensor is shared, not copied, unless its padding row must be made zero.
            padding_idx: as above; its row becomes zero, in a copy.
            freeze: exclude it from training.

        Raises:
            ShapeError: If weight is not a matrix of floating-point numbers.

        Examples:
            >>> table = TokenEmbedding.from_weight(torch.tensor([[0.1, 0.2], [0.4, 0.5]]))
            >>> table(torch.tensor([1]))
            tensor([[0.4000, 0.5000]], grad_fn=<EmbeddingBackward0>)
        """
        require_tensor("a token table", weight)
        if weight.dim() != 2:
            raise ShapeError(
                f"a token table needs shape (vocab_size, dim), but this one has {tuple(weight.shape)}.\n"
                "Pass a matrix with a row for each token."
            )
        require_floating("a token table", weight=weight)
        rows, dim = weight.shape
        table = cls(rows, dim, padding_idx, _weight=weight.detach(), _freeze=freeze)
        if padding_idx is not None:
            values = weight.detach().clone()
            values[padding_idx] = 0
            table.weight = nn.Parameter(values, requires_grad=not freeze)
        return table

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Float[Tensor, "vocab_size dim"],
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> "TokenEmbedding":
        """Create a table from pretrained vectors as nn.Embedding does, with its arguments: frozen, every row kept.

        The row of padding_idx gets no gradient, but keeps its values, which `from_weight` makes zero.

        Examples:
            >>> TokenEmbedding.from_pretrained(torch.eye(2)).weight.requires_grad
            False
        """
        _refuse(max_norm=max_norm, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse)
        table = cls.from_weight(embeddings, freeze=freeze)
        rows, dim = table.weight.shape
        return cls(rows, dim, padding_idx, _weight=table.weight.detach(), _freeze=freeze)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Initialize as `init` describes, the padding row as zeros; SettingError if the generator is elsewhere."""
        require_generator("TokenEmbedding", generator, self.weight)
        if self.keeper is not None:
            with torch.no_grad():
                self.keeper.before_readout()  # updates that are due belong to the old rows
        sample_rows(self.weight, self.init, (self.num_embeddings, self.embedding_dim), generator)
        if self.padding_idx is not None:
            zero_row(self.weight, self.padding_idx)

    def forward(self, input: Integer[Tensor, "*shape"]) -> Float[Tensor, "*shape dim"]:
        """Look up the row of each id, times the scale; TokenError if an id is outside, or ids are not whole numbers."""
        if isinstance(input, Proxy):  # torch.fx records a call of this module; the lookup, if all is this table
            if path := input.tracer.path_of_module(self):
                return input.tracer.create_proxy("call_module", path, (input,), {})
            rows = F.embedding(input, self.weight, self.padding_idx)
            return rows if self.factor is None else rows * self.factor
        require_ids(input)
        # Narrow types, common in files of tokens, have no kernels for range checks and lookups.
        ids = input if input.dtype in (torch.int64, torch.int32) else input.long()
        if self.keeper is not None:
            if not ids.is_cuda:  # there a lookup stops the program by itself
                self._require_ids(ids)
            return scaled(self.keeper.lookup(self.weight, ids, self.padding_idx), self.factor)
        rows = embed(self.weight, ids, self.factor, self.padding_idx)
        if rows is not None:
            return rows
        self._require_ids(ids)
        return scaled(lookup(self.weight, ids, self.padding_idx), self.factor)

    @property
    def factor(self) -> float | None:
        """What rows are multiplied by: the scale, in the dtype of the table for `sqrt_dim_rounded`; None is 1."""
        return _rounded(self.scale, self.weight.dtype) if self.scale_rounded and self.scale is not None else self.scale

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Register a buffer as every module does; one of a subclass may be called `embed_scale`."""
        if name == "embed_scale":
            self._buffers.setdefault(name, None)  # PyTorch refuses the name of an attribute, but not of a buffer
        super().register_buffer(name, tensor, persistent)

    @property
    def sparse(self) -> bool:
        """Whether its gradient is a sparse tensor: while RowAdamW trains it. DistributedDataParallel reads this."""
        return self.keeper is not None

    @sparse.setter
    def sparse(self, sparse: bool) -> None:
        _refuse(sparse=sparse)

    def _project(self, hidden: Float[Tensor, "*shape dim"], ids: Tensor | None = None) -> Projection:
        if self.keeper is not None:
            self.keeper.before_readout()
        return Projection(hidden, self.weight, padding_idx=self.padding_idx)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "TokenEmbedding":
        """Convert as every module does, but keep the parameter object also when it leaves the meta device.

        PyTorch would create another one, and an output projection tied to the table would lose its weight.
        """
        weight, materialized = self.weight, False
        if weight.is_meta and type(weight.data) is Tensor:
            with torch.no_grad():
                values = fn(weight)
            if materialized := not values.is_meta:
                torch.utils.swap_tensors(weight, nn.Parameter(values, weight.requires_grad))
        others = (lambda x: x if x is weight else fn(x)) if materialized else fn
        converted: TokenEmbedding = super()._apply(others, recurse)  # type: ignore[no-untyped-call]
        return converted

    def extra_repr(self) -> str:
        """Return the settings, for `repr`."""
        settings = f"num_embeddings={self.num_embeddings}, embedding_dim={self.embedding_dim}, init={self.init!r}"
        settings += "" if self.scale is None else f", scale={self.scale:.6g}{' rounded' if self.scale_rounded else ''}"
        return settings + ("" if self.padding_idx is None else f", padding_idx={self.padding_idx}")

    def _require_ids(self, ids: Tensor) -> None:
        require_tokens(ids, self.num_embeddings)


_UNSUPPORTED = {
    "max_norm": "which would write to rows while they are read.\nLimit norms after a step, or use nn.Embedding",
    "scale_grad_by_freq": "which divides gradients by how often a token occurs.\nUse nn.Embedding",
    "sparse": "whose gradient few optimizers read.\nUse RowAdamW, which gets its gradient by row, or nn.Embedding",
}


def _refuse(**options: Any) -> None:
    for name, value in options.items():
        if value is not None and value is not False:
            raise SettingError(f"TokenEmbedding got {name}={value!r}, {_UNSUPPORTED[name]}.")


def require_equal_shape(owner: str, table: TokenEmbedding, rows: int | None, dim: int) -> None:
    """Raise ShapeError unless a table that was passed has the rows and features that are needed."""
    if table.embedding_dim != dim or rows not in (None, table.num_embeddings):
        raise ShapeError(
            f"{owner} needs a table of shape ({'any' if rows is None else rows}, {dim}), but got "
            f"({table.num_embeddings}, {table.embedding_dim}).\nPass one of this shape, or None for a new one."
        )


def lookup(
    weight: Float[Tensor, "rows dim"], index: Integer[Tensor, "*shape"], padding_idx: int | None = None
) -> Float[Tensor, "*shape dim"]:
    """Look up rows of a table; the gradient of a repeated row is summed in float32 at least.

    PyTorch's CPU kernel sums in the dtype of the table: 4,096 gradients of 1 make 256 in bfloat16.
    """
    narrow = weight.dtype in (torch.bfloat16, torch.float16) and weight.device.type == "cpu"
    if narrow and type(weight) in (Tensor, nn.Parameter):
        dual = not torch.compiler.is_compiling() and forward_ad._current_level >= 0
        kind = _LowPrecisionDual if dual else _LowPrecisionLookup
        rows: Tensor = kind.apply(weight, index, padding_idx)  # type: ignore[no-untyped-call]
        return rows
    return F.embedding(index, weight, padding_idx=padding_idx)


class _LowPrecisionLookup(torch.autograd.Function):
    """F.embedding with a float32 sum in the backward."""

    generate_vmap_rule = True

    @staticmethod
    def forward(weight: Tensor, index: Tensor, padding_idx: int | None) -> Tensor:
        return F.embedding(index, weight)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, int | None], output: Tensor) -> None:
        weight, index, ctx.padding_idx = inputs
        ctx.rows = weight.shape[0]
        ctx.save_for_backward(index)
        ctx.save_for_forward(index)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return gradient_of_rows(gradients[0], ctx.saved_tensors[0], ctx.rows, ctx.padding_idx), None, None


class _LowPrecisionDual(_LowPrecisionLookup):
    """The same with forward-mode derivatives; torch.compile cannot trace a class that defines these."""

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        return F.embedding(ctx.saved_tensors[0], tangent)


def _rounded(number: float, dtype: torch.dtype) -> float:
    """Round a number to a floating-point type: 55.4256 to 55.5 in bfloat16."""
    mantissa, exponent = frexp(number)  # 1/2 <= mantissa < 1
    steps = 2 / torch.finfo(dtype).eps
    return ldexp(round(mantissa * steps) / steps, exponent)
