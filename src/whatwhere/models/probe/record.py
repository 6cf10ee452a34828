"""Run a model of transformers on sequences made for a probe, and record what reaches each of its attentions.

A sequence has the same token at all positions, and its attention modules are given the same hidden states at all of
them: what then differs between positions comes from the positions that these modules are given.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from whatwhere.errors import CheckpointError

if TYPE_CHECKING:
    from transformers.modeling_outputs import BaseModelOutput

NAME = "whatwhere-probe"  # the attention implementation under which transformers knows the recorder
MASKED = -1e4  # scores below this are masked: a bias does not reach it at the distances of a probe
FIRST_TOKEN = 5  # lower ids are left out: special tokens, among them padding, from which some models count positions
SHORT = (2, 6)  # sequences and tokens of the first run, which shows what attends

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
    sinks: bool = False  # whether each head has a logit of its own
    query_sinks: bool = False  # whether each query has one, which its token determines (Inkling 2)
    window: int | None = None  # passed by name
    softcap: float | None = None
    causal: bool = False  # by a flag instead of a mask
    scores: Tensor | None = None  # what reached the softmax, where no interface names the parts
    projected: tuple[Tensor, ...] = ()  # what linear layers of its module made at position 0: (contents, features)
    magnitude: float | None = None  # of the cosine at position 0, if its module is given one

    @property
    def crosses(self) -> bool:
        """Whether keys are of another sequence: another number of tokens, as the probe passes."""
        return self.query.shape[2] != self.key.shape[2]


class Run(TorchFunctionMode):
    """What is recorded of a model: calls of attention, rows that are looked up, and what first layers are given."""

    def __init__(
        self, model: nn.Module, contents: int, tokens: int, modules: Sequence[str], by_interface: bool
    ) -> None:
        super().__init__()
        self.model, self.contents, self.tokens = model, contents, tokens
        self.modules, self.by_interface = frozenset(modules), by_interface
        self.calls: list[Call] = []
        self.replaced: set[str] = set()  # names of the modules whose hidden states were replaced
        self.lookups: list[tuple[str | None, Tensor, Tensor]] = []  # name of a table if it has one, the table, the rows
        self.first: dict[str, Tensor] = {}  # of the first layer of a list of layers, by its name
        self._names = {id(module): name for name, module in model.named_modules()}
        self._tables = {id(each): name for name, each in (*model.named_parameters(), *model.named_buffers())}
        self._running: list[str] = []  # modules, the innermost last
        self._products: list[tuple[Tensor, Tensor, Tensor]] = []
        self._projected: list[tuple[str, Tensor]] = []
        self._magnitudes: dict[str, float] = {}
        self._generator = torch.Generator().manual_seed(0)

    # What modules are given, and return

    def enter(self, name: str, _: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Keep what a module is given, and replace the hidden states of one that attends."""
        self._running.append(name)
        cosine = options.get("position_embeddings")
        cosine = cosine[0] if isinstance(cosine, tuple | list) and len(cosine) == 2 else cosine
        if isinstance(cosine, Tensor) and cosine.dim() >= 3:
            self._magnitudes[name] = float((cosine.abs() if cosine.is_complex() else cosine)[..., 0, :].max())
        hidden = options.get("hidden_states", args[0] if args else options.get("query"))
        if name.endswith(".0") and isinstance(hidden, Tensor) and hidden.dim() == 3:
            self.first.setdefault(name, hidden.detach().double())
        if not name or name not in self.modules:
            return None
        self._projected = [each for each in self._projected if not each[0].startswith(f"{name}.")]
        axis = self._token_axis(hidden)
        if axis is None or hidden is None:
            return None
        shape = [1 if each == axis else size for each, size in enumerate(hidden.shape)]
        content = torch.randn(*shape, generator=self._generator, dtype=torch.float64)
        same = content.to(hidden).expand_as(hidden).contiguous()
        self.replaced.add(name)
        given = tuple(same if each is hidden else each for each in args)  # CTRL passes it three times
        alike = {  # Inkling 2 computes queries, keys and values from different ones
            key
            for key, each in options.items()
            if each is hidden or (key.endswith("_hidden_states") and getattr(each, "shape", None) == same.shape)
        }
        return given, {key: same if key in alike else each for key, each in options.items()}

    def leave(self, name: str, module: nn.Module, _: Any, output: Any) -> None:
        """Keep what a linear layer returns, or GPT-2's Conv1D."""
        self._running.pop()
        weight = getattr(module, "weight", None)
        projects = isinstance(weight, Tensor) and weight.dim() == 2
        if projects and isinstance(output, Tensor) and output.dim() == 3:  # tokens may be the first axis
            first = output[:, 0] if output.shape[0] == self.contents else output[0]
            self._projected.append((name, first.detach().double()))

    def _token_axis(self, hidden: Any) -> int | None:
        """Return the axis of tokens: (batch, tokens, features), or tokens first as in XLNet, or last (SqueezeBERT)."""
        if not isinstance(hidden, Tensor) or hidden.dim() != 3 or not hidden.is_floating_point():
            return None
        first, second, third = hidden.shape
        lengths = (self.tokens, self.tokens + 1)  # the other sequence of an encoder and decoder has one more
        if first == self.contents:
            return 1 if second in lengths or third not in lengths else 2
        return 0 if second == self.contents and first in lengths else None

    def _add(self, call: Call) -> None:
        """Keep a call, unless it has the queries and keys of the one before, with other values."""
        before = self.calls[-1] if self.calls else None
        again = before is not None and before.module == call.module and before.query.shape == call.query.shape
        call.projected = tuple(each for name, each in self._projected if name.startswith(f"{call.module}."))
        call.magnitude = self._magnitudes.get(call.module)
        if not (again and before is not None and torch.equal(before.query, call.query)):
            self.calls.append(call)

    def attend(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None = None,
        **options: Any,
    ) -> tuple[Tensor, None]:
        """Keep a call of transformers' attention interface, and return the values of each token itself."""
        causal = options.get("is_causal")
        call = Call(
            self._names.get(id(module), type(module).__name__),
            query.detach().double(),
            key.detach().double(),
            _number(options.get("scaling")),
            None if attention_mask is None else attention_mask.detach(),
            _detached(options.get("position_bias")),
            options.get("s_aux") is not None,
            options.get("sinks") is not None,
            options.get("sliding_window"),
            _number(options.get("softcap")),
            bool(getattr(module, "is_causal", False) if causal is None else causal),
        )
        self._add(call)
        own = value.repeat_interleave(query.shape[1] // value.shape[1], dim=1)
        if own.shape[2] != query.shape[2]:
            own = own.mean(dim=2, keepdim=True).expand(-1, -1, query.shape[2], -1)
        return own.transpose(1, 2).contiguous(), None

    # What PyTorch's functions are given

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run a function, and keep lookups, and without an interface products and what reaches a softmax."""
        options = kwargs or {}
        if func is nn.functional.embedding and len(args) >= 2:
            self._look_up(args[1], args[0])
        elif func in (torch.index_select, Tensor.index_select) and len(args) == 3 and args[1] == 0:
            self._look_up(args[0], args[2])
        result = func(*args, **options)
        if self.by_interface:
            return result
        if func in _PRODUCTS and result.dim() >= 3:
            self._keep(result, args[0], args[1])
        elif func in (torch.baddbmm, Tensor.baddbmm):
            factors = (*args[1:3], *(options.get(name) for name in ("batch1", "batch2")))
            self._keep(result, *[factor for factor in factors if isinstance(factor, Tensor)][:2])
        elif func is torch.einsum and len(args) == 3 and isinstance(args[1], Tensor):
            self._einsum(result, *args)
        elif func is nn.functional.scaled_dot_product_attention:
            names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
            given = {**dict(zip(names, args, strict=False)), **options}
            query, key = (given[name].detach().double() for name in ("query", "key"))
            scale, mask = _number(given.get("scale")), _detached(given.get("attn_mask"))
            self._add(Call(self._attention(), query, key, scale, mask, causal=bool(given.get("is_causal", False))))
        elif func in _SOFTMAX and args[0].dim() >= 3:
            self._softmax(args[0])
        return result

    def _look_up(self, table: Tensor, rows: Tensor) -> None:
        if rows.numel() % self.tokens == 0:
            by_token = rows.detach().reshape(-1, self.tokens)
            self.lookups.append((self._tables.get(id(table)), table.detach(), by_token))

    def _keep(self, result: Tensor, left: Tensor, right: Tensor) -> None:
        self._products = [*self._products[1 - _RECENT :], (result, left, right)]

    def _einsum(self, result: Tensor, equation: str, left: Tensor, right: Tensor) -> None:
        """Keep a product by an equation such as ibnd,jbnd->bnij, with its factors as a matrix product takes them."""
        terms = re.fullmatch(r"(\w+),(\w+)->(\w+)", equation.replace(" ", ""))
        if terms is None or len(terms[3]) != 4:
            return
        *batch, row, column = list(terms[3])
        shared = set(terms[1]) & set(terms[2]) - set(terms[3])
        orders = [*batch, row, *shared], [*batch, *shared, column]
        if len(shared) == 1 and (set(terms[1]), set(terms[2])) == (set(orders[0]), set(orders[1])):
            self._keep(
                result, left.permute(*map(terms[1].index, orders[0])), right.permute(*map(terms[2].index, orders[1]))
            )

    def _softmax(self, scores: Tensor) -> None:
        """Keep a call whose scores are the product of queries and keys, the last one of their shape."""
        for result, left, right in reversed(self._products):
            fits = result.shape[-2:] == scores.shape[-2:] and result.numel() == scores.numel()
            if fits and left.dim() == right.dim() and right.dim() >= 3:
                split = self.contents if len(scores) % self.contents == 0 else 1  # sequences and heads in one axis
                batch = scores.shape[0] if scores.dim() == 4 else split
                query, key, recorded = (
                    each.detach().double().reshape(batch, -1, *each.shape[-2:]) for each in (left, right.mT, scores)
                )
                return self._add(Call(self._attention(), query, key, scores=recorded))
        return None

    def _attention(self) -> str:
        """Return the name of the innermost running module that is called an attention, or else of the innermost one."""
        name = self._running[-1] if self._running else ""
        parts = name.split(".")
        for end in range(len(parts), 0, -1):
            module = ".".join(parts[:end])
            if re.search("attention|attn", type(self.model.get_submodule(module)).__name__, re.IGNORECASE):
                return module
        return name


@contextmanager
def recorded(
    model: nn.Module, contents: int, tokens: int, modules: Sequence[str] = (), *, by_interface: bool
) -> Iterator[Run]:
    """Record a model on sequences (contents, tokens) within a block; hidden states of `modules` are replaced.

    `by_interface` replaces attention through transformers' AttentionInterface; otherwise PyTorch's functions are
    watched while the model computes its scores step by step.
    """
    from transformers import AttentionInterface
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface

    run = Run(model, contents, tokens, modules, by_interface)
    AttentionInterface.register(NAME, run.attend)
    AttentionMaskInterface.register(NAME, ALL_MASK_ATTENTION_FUNCTIONS["eager"])
    configs: list[Any] = [module.config for module in model.modules() if hasattr(module, "config")]
    configs = [config for config in configs if hasattr(config, "_attn_implementation_internal")]
    before = [config._attn_implementation_internal for config in configs]
    for config in configs:
        config._attn_implementation_internal = NAME if by_interface else "eager"
    try:
        with ExitStack() as hooks, torch.no_grad(), run:
            for name, module in model.named_modules():
                hooks.enter_context(module.register_forward_pre_hook(partial(run.enter, name), with_kwargs=True))
                hooks.enter_context(module.register_forward_hook(partial(run.leave, name), always_call=True))
            yield run
    finally:
        for config, own in zip(configs, before, strict=True):
            config._attn_implementation_internal = own


@dataclass(frozen=True)
class Subject:
    """A model of transformers, and how it is asked."""

    model: nn.Module
    by_interface: bool
    modules: tuple[str, ...]  # that attend over one sequence, once for each call in order
    crossing: int  # calls that attend over another sequence
    vocab_size: int

    @property
    def names_positions(self) -> bool:
        """Whether the model's forward names position ids."""
        return "position_ids" in inspect.signature(self.model.forward).parameters

    def run(self, contents: int, tokens: int, positions: Sequence[int] | None = None) -> Run:
        """Run the model on sequences at position ids, or at its own positions; calls are those over one sequence."""
        with recorded(self.model, contents, tokens, self.modules, by_interface=self.by_interface) as run:
            _forward(self.model, contents, tokens, self.vocab_size, positions)
        run.calls = [call for call in run.calls if not call.crosses]
        if tuple(call.module for call in run.calls) != self.modules:
            raise CheckpointError("attention is called in another order when sequences differ in length or position.")
        return run


def subject_of(model: nn.Module) -> Subject:
    """Return how a model can be asked: by transformers' interface, or by watching PyTorch's functions."""
    config: Any = getattr(model, "config", None)
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    vocab_size = int(getattr(text, "vocab_size", 0) or 0)
    if vocab_size <= FIRST_TOKEN:
        raise CheckpointError("the probe runs a model on token ids, but its configuration has no vocab_size.")
    for by_interface in (True, False):
        with recorded(model, *SHORT, by_interface=by_interface) as run:
            try:
                _forward(model, *SHORT, vocab_size)
            except Exception as problem:
                before = "it fails after attention" if run.calls else "it does not run on token ids alone"
                text = " ".join(str(problem).split())[:200]
                raise CheckpointError(f"{before}: {type(problem).__name__}: {text}") from problem
        own = tuple(call.module for call in run.calls if not call.crosses)
        if own:
            return Subject(model, by_interface, own, len(run.calls) - len(own), vocab_size)
    raise CheckpointError(
        "no attention was seen: the model has none, or computes it by functions that a probe does not watch."
    )


def _forward(
    model: nn.Module, contents: int, tokens: int, vocab_size: int, positions: Sequence[int] | None = None
) -> None:
    """Run a model on sequences of one token each."""
    ids = (FIRST_TOKEN + torch.arange(contents) % (vocab_size - FIRST_TOKEN))[:, None].expand(-1, tokens)
    names = inspect.signature(model.forward).parameters
    options: dict[str, Any] = {"use_cache": False} if "use_cache" in names else {}
    if positions is not None:
        options["position_ids"] = torch.tensor(positions)[None].expand(contents, -1)
    if "decoder_input_ids" in names:
        options |= {"decoder_input_ids": ids}
        ids = ids[:, :1].expand(-1, tokens + 1)  # another length shows which attention is over another sequence
    if "bbox" in names:  # boxes on a page, all the same: rows of tables, or fractions of the page in UDOP
        fractions = any("cell_2d_embedding" in name for name, _ in model.named_parameters())
        options["bbox"] = torch.zeros(*ids.shape, 4, dtype=torch.float32 if fractions else torch.long)
    config: Any = model.config
    whisper = hasattr(config, "num_mel_bins") and hasattr(config, "max_source_positions")
    if "input_ids" in names:
        options["input_ids"] = ids
    elif "input_features" in names and whisper:  # sounds before, tokens after
        frames = (contents, config.num_mel_bins, 2 * config.max_source_positions)
        options["input_features"] = torch.randn(*frames, generator=torch.Generator())
    elif {"decoder_input_ids", "encoder_outputs"} <= set(names):
        options["encoder_outputs"] = encoded(model, contents, tokens + 1)
    else:
        options[next(iter(names))] = ids
    device = next(model.parameters()).device
    model(**{key: each.to(device) if isinstance(each, Tensor) else each for key, each in options.items()})


def encoded(model: nn.Module, contents: int, tokens: int) -> "BaseModelOutput":
    """Return random vectors in place of what a model's encoder makes of other inputs than tokens, such as sounds."""
    from transformers.modeling_outputs import BaseModelOutput

    config: Any = model.config
    dim = getattr(config, "encoder_config", config).hidden_size
    vectors = torch.randn(contents, tokens, dim, generator=torch.Generator().manual_seed(0))
    outputs: Any = BaseModelOutput(last_hidden_state=vectors.to(next(model.parameters())))
    outputs.attention_mask = None  # of the frames, which encoders of speech return besides
    return outputs  # type: ignore[no-any-return]


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _detached(value: Any) -> Tensor | None:
    return value.detach().double() if isinstance(value, Tensor) and value.dtype != torch.bool else value
