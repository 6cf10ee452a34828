"""Record what reaches each attention of a running model, and give all positions the same content."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

NAME = "whatwhere-probe"
"""The attention implementation under which transformers knows the recorder."""
MASKED = -1e4
"""Scores below this are masked: a bias does not reach it at the distances of a probe."""

_SOFTMAX = (torch.softmax, Tensor.softmax, nn.functional.softmax)
_PRODUCTS = (torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm)
_RECENT = 6


@dataclass
class Call:
    """One call of attention; queries and keys are (batch, heads, tokens, features) in float64."""

    module: str
    query: Tensor
    key: Tensor
    scale: float | None = None  # None is the default, 1 / sqrt(features)
    mask: Tensor | None = None  # added to the scores, or True where a key may be seen
    bias: Tensor | None = None  # added apart from the mask
    sinks: Tensor | None = None  # the logit of each head's
    query_sinks: bool = False  # one of each query, which its token determines (Inkling 2)
    window: int | None = None  # passed by name
    softcap: float | None = None
    causal: bool = False  # by a flag instead of a mask
    scores: Tensor | None = None  # what reached the softmax, where no interface names the parts

    @property
    def crosses(self) -> bool:
        """Whether keys are of another sequence: another number of tokens, as the probe passes."""
        return self.query.shape[2] != self.key.shape[2]


class _Functions(TorchFunctionMode):
    """Record softmax over scores that are the product of queries and keys, in the module that runs."""

    def __init__(self, model: nn.Module, contents: int, calls: list[Call], running: list[str]) -> None:
        super().__init__()
        self.model, self.contents, self.calls, self.running = model, contents, calls, running
        self.products: list[tuple[Tensor, Tensor, Tensor]] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run a function, and keep products and what reaches a softmax."""
        result = func(*args, **(kwargs or {}))
        if func in _PRODUCTS and result.dim() >= 3:
            self._keep(result, args[0], args[1])
        elif func in (torch.baddbmm, Tensor.baddbmm):
            factors = (*args[1:3], *((kwargs or {}).get(name) for name in ("batch1", "batch2")))
            self._keep(result, *[factor for factor in factors if isinstance(factor, Tensor)][:2])
        elif func is torch.einsum and len(args) == 3 and isinstance(args[1], Tensor):
            self._einsum(result, args[0], args[1], args[2])
        elif func is nn.functional.scaled_dot_product_attention:
            self._sdpa(args, dict(kwargs or {}))
        elif func in _SOFTMAX and args[0].dim() >= 3:
            self._softmax(args[0])
        return result

    def _keep(self, result: Tensor, left: Tensor, right: Tensor) -> None:
        self.products = [*self.products[1 - _RECENT :], (result, left, right)]

    def _einsum(self, result: Tensor, equation: str, left: Tensor, right: Tensor) -> None:
        """Keep a product by an equation such as ibnd,jbnd->bnij, with its factors as a matrix product takes them."""
        terms = re.fullmatch(r"(\w+),(\w+)->(\w+)", equation.replace(" ", ""))
        if terms is None or len(terms[3]) != 4:
            return
        *batch, row, column = list(terms[3])
        shared = set(terms[1]) & set(terms[2]) - set(terms[3])
        orders = [[*batch, row, *shared], [*batch, *shared, column]]
        if len(shared) == 1 and all(
            set(term) == set(order) for term, order in zip(terms.groups(), orders, strict=False)
        ):
            factors = [
                each.permute(*[term.index(letter) for letter in order])
                for each, term, order in zip((left, right), terms.groups(), orders, strict=False)
            ]
            self._keep(result, *factors)

    def _sdpa(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        query, key = (given[name].detach().double() for name in ("query", "key"))
        scale, mask = _number(given.get("scale")), _detached(given.get("attn_mask"))
        self.calls.append(Call(self._attention(), query, key, scale, mask, causal=bool(given.get("is_causal", False))))

    def _softmax(self, scores: Tensor) -> None:
        for result, left, right in reversed(self.products):
            fits = result.shape[-2:] == scores.shape[-2:] and result.numel() == scores.numel()
            if fits and left.dim() == right.dim() and right.dim() >= 3:
                split = self.contents if len(scores) % self.contents == 0 else 1
                batch = scores.shape[0] if scores.dim() == 4 else split
                query, key = (each.detach().double().reshape(batch, -1, *each.shape[-2:]) for each in (left, right.mT))
                recorded = scores.detach().double().reshape(batch, -1, *scores.shape[-2:])
                self.calls.append(Call(self._attention(), query, key, scores=recorded))
                return

    def _attention(self) -> str:
        """Return the name of the innermost running module that is called an attention, or else of the innermost one."""
        name = self.running[-1] if self.running else ""
        parts = name.split(".")
        for end in range(len(parts), 0, -1):
            module = ".".join(parts[:end])
            if re.search("attention|attn", type(self.model.get_submodule(module)).__name__, re.IGNORECASE):
                return module
        return name


@contextmanager
def recorded(model: nn.Module, contents: int, *, by_interface: bool) -> Iterator[list[Call]]:
    """Record the calls of attention within a block; the model's own implementation is restored afterwards.

    Args:
        contents: number of sequences, by which queries of all sequences and heads in one axis are split.
        by_interface: replace attention through transformers' AttentionInterface, so that it returns the values of each
            token itself; otherwise watch PyTorch's functions while the model computes its scores step by step.
    """
    from transformers import AttentionInterface
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface

    calls: list[Call] = []
    names = {id(module): name for name, module in model.named_modules()}

    def attend(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None = None,
        **options: Any,
    ) -> tuple[Tensor, None]:
        causal = options.get("is_causal")
        calls.append(
            Call(
                names.get(id(module), type(module).__name__),
                query.detach().double(),
                key.detach().double(),
                _number(options.get("scaling")),
                None if attention_mask is None else attention_mask.detach(),
                _detached(options.get("position_bias")),
                _detached(options.get("s_aux")),
                options.get("sinks") is not None,
                options.get("sliding_window"),
                _number(options.get("softcap")),
                bool(getattr(module, "is_causal", False) if causal is None else causal),
            )
        )
        own = value.repeat_interleave(query.shape[1] // value.shape[1], dim=1)
        if own.shape[2] != query.shape[2]:
            own = own.mean(dim=2, keepdim=True).expand(-1, -1, query.shape[2], -1)
        return own.transpose(1, 2).contiguous(), None

    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, ALL_MASK_ATTENTION_FUNCTIONS["eager"])
    configs: dict[int, Any] = {
        id(module.config): module.config
        for module in model.modules()
        if hasattr(getattr(module, "config", None), "_attn_implementation_internal")
    }
    before = {key: config._attn_implementation_internal for key, config in configs.items()}
    for config in configs.values():
        config._attn_implementation_internal = NAME if by_interface else "eager"
    try:
        if by_interface:
            yield calls
        else:
            with _running(model) as running, _Functions(model, contents, calls, running):
                yield calls
    finally:
        for key, config in configs.items():
            config._attn_implementation_internal = before[key]


@contextmanager
def _running(model: nn.Module) -> Iterator[list[str]]:
    """Keep the names of the modules that run within a block, the innermost last."""
    running: list[str] = []
    with ExitStack() as hooks:
        for name, module in model.named_modules():
            hooks.enter_context(module.register_forward_pre_hook(lambda *_, name=name: running.append(name)))
            hooks.enter_context(module.register_forward_hook(lambda *_: running.pop() and None, always_call=True))
        yield running


@contextmanager
def same_content(model: nn.Module, modules: tuple[str, ...], contents: int, tokens: int) -> Iterator[set[str]]:
    """Replace the hidden states that reach modules by random ones that are the same at all positions.

    What differs between positions within such a module then comes from the positions that this module is given.

    Args:
        tokens: length of each; the other sequence of an encoder and decoder has one more.

    Yields:
        The names of the modules whose hidden states were replaced.
    """
    generator = torch.Generator().manual_seed(0)
    names: dict[int, str] = {}
    replaced: set[str] = set()

    def replace(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        hidden = kwargs.get("hidden_states", args[0] if args else kwargs.get("query"))
        axis = _token_axis(hidden, contents, tokens)
        if axis is None or hidden is None:
            return args, kwargs
        shape = [1 if each == axis else size for each, size in enumerate(hidden.shape)]
        content = torch.randn(*shape, generator=generator, dtype=torch.float64)
        same = content.to(hidden).expand_as(hidden).contiguous()
        replaced.add(names[id(module)])
        given = tuple(same if each is hidden else each for each in args)  # CTRL passes it three times
        alike = {  # Inkling 2 computes queries, keys and values from different ones
            name
            for name, each in kwargs.items()
            if each is hidden or (name.endswith("_hidden_states") and getattr(each, "shape", None) == same.shape)
        }
        return given, {name: same if name in alike else each for name, each in kwargs.items()}

    with ExitStack() as hooks:
        for name in filter(None, dict.fromkeys(modules)):
            module = model.get_submodule(name)
            names[id(module)] = name
            hooks.enter_context(module.register_forward_pre_hook(replace, with_kwargs=True))
        yield replaced


def _token_axis(hidden: Any, contents: int, tokens: int) -> int | None:
    """Return the axis of tokens: (batch, tokens, features), or tokens first as in XLNet, or last as in SqueezeBERT."""
    if not isinstance(hidden, Tensor) or hidden.dim() != 3 or not hidden.is_floating_point():
        return None
    first, second, third = hidden.shape
    lengths = (tokens, tokens + 1)
    if first == contents:
        return 1 if second in lengths or third not in lengths else 2
    return 0 if second == contents and first in lengths else None


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _detached(value: Any) -> Tensor | None:
    return value.detach().double() if isinstance(value, Tensor) and value.dtype != torch.bool else value
