"""Loss and log-probabilities of an output projection, without a tensor of all logits."""

import math
import sys
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, Literal, NamedTuple, TypeVar, cast

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional as F

from whatwhere.checks import answers_names_of_others, require_choice, require_positive, require_whole
from whatwhere.errors import SettingError, ShapeError, TokenError
from whatwhere.kernels.linear_cross_entropy import SumByTokens, largest_logits, loss_of, numbers_by_rows, wide
from whatwhere.tensor_checks import require_ids, require_range

Method = TypeVar("Method", bound=Callable[..., Any])
Reduction = Literal["mean", "sum", "none"]
Operands = tuple[Tensor, Tensor, Tensor | None, int, float]
"""Vectors, of the dtype in which products are rounded, weight, bias, padding row or -1, softcap or 0."""


class Projection(NamedTuple):
    """An output projection and the vectors that it reads; `shards` is the table of which its rows are a part.

    `bias` and `padding_idx` are those of the part, from row `first` on. If `computed`, the vectors are logits already.
    """

    hidden: Tensor
    weight: Tensor
    bias: Tensor | None = None
    padding_idx: int | None = None
    first: int = 0
    shards: Any = None
    computed: bool = False

    @property
    def vocab_size(self) -> int:
        """The rows of all parts."""
        return len(self.weight) if self.shards is None else int(self.shards.num_embeddings)

    def is_plain(self) -> bool:
        """Return whether its logits can be made in parts: of plain tensors, outside of the transforms of torch.func."""
        if self.computed or torch.compiler.is_compiling():
            return not self.computed
        return all(type(each) in (Tensor, nn.Parameter, type(None)) for each in self[:3]) and not _is_transformed()

    def is_by_tokens(self, given: Operands) -> bool:
        """Return whether gradients are made with the loss: of a whole table, whose dtype sums have too."""
        needed = torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in self[:3])
        dtype = given[0].dtype
        return needed and self.shards is None and dtype == self.weight.dtype == wide(dtype) and self.is_plain()

    def operands(self, softcap: float | None) -> Operands:
        """Return what logits are computed from, as autocast has it; ShapeError if vectors and rows do not fit."""
        x, weight, device = self.hidden, self.weight, self.hidden.device.type
        if softcap is not None:
            require_positive("the loss", softcap=softcap)
        if self.computed:
            return x, weight, None, -1, softcap or 0.0
        require_dim(x, weight.shape[-1])
        if device != "meta" and torch.is_autocast_enabled(device) and torch.float64 not in (x.dtype, weight.dtype):
            x = x.to(torch.get_autocast_dtype(device))
        elif x.dtype != weight.dtype:
            raise ShapeError(
                f"vectors are {x.dtype}, but the output projection is {weight.dtype}.\nPass hidden.to({weight.dtype})."
            )
        return x, weight, self.bias, -1 if self.padding_idx is None else self.padding_idx, softcap or 0.0


def forward_method(method: Method) -> Method:
    """Make a method of a unit of `fully_shard` gather its parameters, as `forward` does."""
    name = method.__qualname__  # a subclass may have a method of the same short name, which calls this one

    @wraps(method)
    def run(self: Any, *args: Any, **settings: Any) -> Any:
        if not hasattr(self, "_get_fsdp_state"):
            return method(self, *args, **settings)
        if name not in vars(self):
            setattr(self, name, partial(method, self))
            sys.modules["torch.distributed.fsdp"].register_fsdp_forward_method(self, name)
        return getattr(self, name)(*args, **settings)

    return cast(Method, run)


class OutputProjection:
    """What a table that is the output projection computes: logits, or without a tensor of all what depends on them.

    Where a subclass overrides `readout`, it is what depends on its logits, by a tensor of all.
    """

    _project: Callable[..., Projection]  # of vectors (..., dim), and the ids whose logits are read, or None
    _overridden = False  # whether `readout` is a subclass's own, of which nothing is known but its logits

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        owner: type[OutputProjection] = next((kind for kind in cls.__mro__ if "_project" in vars(kind)), cls)
        cls._overridden = cls.readout is not owner.readout

    def _read(self, hidden: Tensor, ids: Tensor | None = None) -> Projection:
        """Return what `readout` multiplies, of vectors in one row; logits, of a subclass's own `readout`."""
        if self._overridden:
            z = self.readout(hidden)
            return Projection(z.reshape(-1, z.shape[-1]), z.new_empty(z.shape[-1], 0), computed=True)
        return self._project(hidden.reshape(-1, hidden.shape[-1]), ids)

    @forward_method
    def readout(self, hidden: Float[Tensor, "*shape dim"]) -> Float[Tensor, "*shape vocab_size"]:
        """Compute logits <hidden, E[token]>, zero for the padding token; ShapeError if vectors have another dim."""
        p = self._project(hidden)
        return logits(p.hidden, p.weight, p.padding_idx)

    @answers_names_of_others
    @forward_method
    def loss(
        self,
        hidden: Float[Tensor, "*shape dim"],
        targets: Integer[Tensor, "*targets"],
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        softcap: float | None = None,
        z_loss: float = 0.0,
        label_smoothing: float = 0.0,
    ) -> Float[Tensor, "*losses"]:
        """Compute the cross-entropy of `readout(hidden)`: `linear_cross_entropy` has the arguments and errors."""
        project = partial(self._read, hidden, targets)
        return _loss(project, hidden, targets, ignore_index, reduction, softcap, z_loss, label_smoothing)

    @forward_method
    def log_probs(
        self, hidden: Float[Tensor, "*shape dim"], ids: Integer[Tensor, "*ids"], softcap: float | None = None
    ) -> Float[Tensor, "*ids"]:
        """Compute log-probabilities of tokens, in float32 at least, with gradients.

        Args:
            hidden: vectors of the last layer, (..., dim).
            ids: a token for each vector, (...), or several, (..., k).
            softcap: as in `linear_cross_entropy`, whose errors these are too.
        """
        require_ids(ids)
        shape = hidden.shape[:-1]
        if ids.shape != shape and ids.shape[:-1] != shape:
            raise _mismatch("ids", ids, hidden)
        p = self._read(hidden, ids)
        require_tokens(ids, p.vocab_size)
        flat = ids.long().reshape(len(p.hidden), 1 if ids.shape == shape else ids.shape[-1])
        numbers = _numbers(p, p.operands(softcap), flat)
        return (numbers[:, 2:] - numbers[:, :1]).reshape(ids.shape)

    @forward_method
    def top(
        self, hidden: Float[Tensor, "*shape dim"], k: int, softcap: float | None = None
    ) -> tuple[Float[Tensor, "*shape k"], Integer[Tensor, "*shape k"]]:
        """Return the log-probabilities of the k most likely tokens, which have gradients, and their ids.

        Raises:
            ShapeError: If k is more than the tokens of the vocabulary; the other errors are those of `log_probs`.

        Examples:
            >>> from whatwhere import TokenEmbedding
            >>> log_probs, ids = TokenEmbedding.from_weight(torch.eye(3)).top(torch.tensor([1.0, 3.0, 2.0]), k=2)
            >>> ids
            tensor([1, 2])
        """
        require_whole("top", k=k)
        p = self._read(hidden)
        if k > p.vocab_size:
            raise ShapeError(f"top got k={k}, but the vocabulary has {p.vocab_size} tokens.\nPass at most as many.")
        with torch.no_grad():
            given = p.operands(softcap)
            logits, ids = largest_logits(*given, k) if p.is_plain() else _all_logits(p, given).topk(k)
        ids = ids if p.shards is None else p.shards.gathered_top(logits, ids + p.first)
        ids = ids.reshape(*hidden.shape[:-1], k)
        return self.log_probs(hidden, ids, softcap), ids


@answers_names_of_others
def linear_cross_entropy(
    hidden: Float[Tensor, "*shape dim"],
    weight: Float[Tensor, "vocab_size dim"],
    targets: Integer[Tensor, "*targets"],
    bias: Float[Tensor, " vocab_size"] | None = None,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    softcap: float | None = None,
    z_loss: float = 0.0,
    label_smoothing: float = 0.0,
) -> Float[Tensor, "*losses"]:
    """Compute the cross-entropy of an output projection, and its gradients, without a tensor of all logits.

        z = cap tanh((h E^T + b) / cap)        lse = log sum_v exp z_v
        loss = lse - (1 - s) z_target - s mean_v z_v + c lse^2

    Equal to F.cross_entropy(F.linear(hidden, weight, bias), targets), of whose logits at most 64 MB (256 MB on a GPU)
    are in memory. In bfloat16 and float16, also by autocast, all sums and the softmax are in float32, and so is the
    loss. Under torch.func, in forward mode, and where weight is a subclass of Tensor, PyTorch makes all logits.

    Args:
        hidden: h, vectors of the last layer, (..., dim).
        weight: E, a row for each token.
        targets: an id for each vector, (...).
        bias: b.
        ignore_index: vectors with this target do not count, and cost nothing.
        reduction: `mean` over the targets that count, NaN if none does; `sum`; or `none`.
        softcap: cap, such as Gemma 2's 30; None: z = h E^T + b.
        z_loss: c, such as PaLM's 1e-4, which keeps lse near zero; https://arxiv.org/abs/2204.02311, section 5.
        label_smoothing: s, 0 to 1, as in F.cross_entropy.

    Returns:
        A number, or with `none` one for each target, zero where it is ignored; in float32 at least.

    Raises:
        TokenError: If a target is outside the vocabulary.
        ShapeError: If there is not one target for each vector, or dim or dtype of hidden and weight differ.
        SettingError: If a setting is out of range, or for a second derivative, which is not computed.

    Examples:
        >>> head, hidden, targets = nn.Linear(8, 50), torch.randn(2, 8), torch.tensor([3, 49])
        >>> loss = linear_cross_entropy(hidden, head.weight, targets, head.bias)
        >>> torch.allclose(loss, F.cross_entropy(head(hidden), targets))
        True
    """
    require_tensor("the output projection", weight)
    require_dim(hidden, weight.shape[-1])
    project = partial(Projection, hidden.reshape(-1, hidden.shape[-1]), weight, bias)
    return _loss(project, hidden, targets, ignore_index, reduction, softcap, z_loss, label_smoothing)


def logits(
    hidden: Float[Tensor, "*shape dim"], weight: Float[Tensor, "rows dim"], padding_idx: int | None = None
) -> Float[Tensor, "*shape rows"]:
    """Return the product of vectors with each row of a table; that of the padding row is zero."""
    require_dim(hidden, weight.shape[1])
    products = F.linear(hidden, weight)
    if padding_idx is not None:
        # The zero row gives logit zero already; writing it cuts the row off from the gradient.
        products[..., padding_idx] = 0
    return products


def require_tensor(owner: str, weight: object) -> None:
    """Raise ShapeError unless a table is a tensor, not the module that has it, or an array."""
    if not isinstance(weight, Tensor):
        way = "its weight" if isinstance(getattr(weight, "weight", None), Tensor) else "torch.tensor(rows)"
        raise ShapeError(f"{owner} was given as {type(weight).__name__}, but must be a tensor.\nPass {way}.")


def require_dim(hidden: Tensor, dim: int) -> None:
    """Raise ShapeError unless vectors have the dim of an output projection."""
    if hidden.shape[-1] != dim:
        raise ShapeError(
            f"the output projection needs vectors of shape (..., {dim}), but got {tuple(hidden.shape)}.\n"
            "Project them to the dim of the table first."
        )


def _mismatch(name: str, ids: Tensor, hidden: Tensor) -> ShapeError:
    return ShapeError(
        f"vectors of shape {tuple(hidden.shape)} need {name} of shape {tuple(hidden.shape[:-1])}, but got "
        f"{tuple(ids.shape)}.\nPass one for each vector."
    )


def require_tokens(ids: Tensor, vocab_size: int, name: Literal["id", "target"] = "id") -> None:
    """Raise TokenError if an id is outside the vocabulary."""

    def outside(value: int, slot: tuple[int, ...]) -> TokenError:
        way = "make the table larger" if name == "id" else "pass ignore_index where none is predicted"
        return TokenError(
            f"{name} {value} at {slot} is outside the vocabulary, which has {vocab_size} tokens "
            f"(0..{vocab_size - 1}).\nCheck that the tokenizer belongs to this table, or {way}."
        )

    require_range(ids, vocab_size, outside)


def _loss(
    project: Callable[[], Projection],
    hidden: Tensor,
    targets: Tensor,
    ignore_index: int,
    reduction: str,
    softcap: float | None,
    z_loss: float,
    label_smoothing: float,
) -> Tensor:
    if not 0 <= z_loss < math.inf or not 0 <= label_smoothing <= 1:
        raise SettingError(
            f"the loss got {z_loss=} and {label_smoothing=}.\nPass a number of at least 0, and one from 0 to 1."
        )
    require_choice("the loss", "reduction", reduction, ("mean", "sum", "none"))
    require_ids(targets, "targets")
    if targets.shape != hidden.shape[:-1]:
        raise _mismatch("targets", targets, hidden)
    p, ids = project(), targets.long()
    ids = torch.where(counted := ids != ignore_index, ids, 0)
    require_tokens(ids, p.vocab_size, "target")
    counted, ids = counted.reshape(-1), ids.reshape(-1, 1)
    settings: dict[str, Any] = {"vocab_size": p.vocab_size, "z_loss": z_loss, "label_smoothing": label_smoothing}
    eager = type(ids) is Tensor and not (ids.is_meta or torch.compiler.is_compiling() or _is_transformed())
    kept = counted.nonzero()[:, 0] if eager and not bool(counted.all()) else None
    if kept is not None:
        p, ids = p._replace(hidden=p.hidden[kept]), ids[kept]
    given = p.operands(softcap)
    if reduction != "none" and eager and len(ids) and p.is_by_tokens(given):
        losses: Tensor = SumByTokens.apply(*given, ids, settings)  # type: ignore[no-untyped-call]
    else:
        losses = loss_of(_numbers(p, given, ids, label_smoothing > 0), **settings)
        losses = losses if kept is None else losses.new_zeros(len(counted)).index_put((kept,), losses)
        losses = losses if eager else torch.where(counted, losses, 0)
    if reduction == "none":
        return losses.reshape(targets.shape)
    return losses.sum() / counted.sum() if reduction == "mean" else losses.sum()


def _is_transformed() -> bool:
    dual = not torch.compiler.is_compiling() and forward_ad._current_level >= 0
    return torch._C._are_functorch_transforms_active() or dual


def _all_logits(p: Projection, given: Operands) -> Tensor:
    x, weight, bias, padding, softcap = given
    z = (x if p.computed else F.linear(x, weight, bias)).to(wide(x.dtype))
    z = softcap * (z / softcap).tanh() if softcap else z
    return torch.where(torch.arange(z.shape[1], device=z.device) == padding, 0, z)


def _numbers(p: Projection, given: Operands, ids: Tensor, summed: bool = False) -> Tensor:
    """Return the numbers of each token, (tokens, 2 + k) for k ids; the sum of its logits may be left out."""
    ids = ids - p.first  # those of other shards are outside of the own rows
    if p.is_plain():
        numbers: Tensor = numbers_by_rows(*given, ids, summed)
    else:
        z = _all_logits(p, given)
        numbers = torch.cat([z.logsumexp(1)[:, None], z.sum(1)[:, None], z.gather(1, ids)], 1)
    return numbers if p.shards is None else p.shards.joined_numbers(numbers)
