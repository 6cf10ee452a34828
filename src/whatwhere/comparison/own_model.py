"""A model of the caller's own: how it is built and called, and what is tried on a small batch before any training."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import fields, replace
from traceback import walk_tb
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from whatwhere.comparison.model import ComparedModel, SchemeLike, Transformer, build_wheres, name_of, table_rows
from whatwhere.comparison.results import ModelRecord
from whatwhere.comparison.settings import MODEL_SETTINGS, Settings, make_settings
from whatwhere.comparison.tasks import Task
from whatwhere.errors import SettingError, WhatWhereError
from whatwhere.initialization import seeded
from whatwhere.position.positions import Positions, positions
from whatwhere.what.embedding import TokenEmbedding
from whatwhere.where.base import InputEncoding, QueryKeyMap
from whatwhere.where.binding import Where
from whatwhere.where.catalogue import is_own
from whatwhere.where.score_bias import ScoreBias

BuildModel = Callable[[int, Sequence[Where], Settings], nn.Module]
"""`build(vocab_size, wheres, settings)` -> a module that is called as `model(ids, positions)` and returns logits.

`wheres` has the Where of each layer. ids are (batch, tokens), logits (batch, tokens, vocab_size).
"""

CALL = "model(ids, positions) -> logits of shape (batch, tokens, vocab_size)"


class OwnModel(ComparedModel):
    """A model of the caller's own, with the interface of our Transformer; `wheres` are trained and saved with it."""

    def __init__(
        self, vocab_size: int, wheres: Sequence[Where], settings: Settings, build: BuildModel, seed: int = 0
    ) -> None:
        super().__init__()
        with seeded(seed), explained(model_name(build), "was built"):
            built = build(vocab_size, list(wheres), settings)
        if not isinstance(built, nn.Module):
            raise SettingError(
                f"{model_name(build)} returned {type(built).__name__}, but must return a torch.nn.Module that is "
                f"called as\n{CALL}."
            )
        self.wheres = nn.ModuleList(wheres)
        self.model = built
        self._table = _find_table(built, wheres, vocab_size)

    def forward(
        self, ids: Int64[Tensor, "batch tokens"], at: int | None = None, p: Positions | None = None
    ) -> Float[Tensor, "batch *tokens vocab_size"]:
        """Compute logits; arguments as for our Transformer."""
        logits: Tensor = self.model(ids, positions(ids.shape[1], device=ids.device) if p is None else p)
        return logits if at is None else logits[:, at]

    @property
    def token_table(self) -> Tensor | None:
        """The only table of the model, outside of the schemes."""
        return None if self._table is None else self.model.get_parameter(self._table)


def is_model_builder(built: object) -> bool:
    """Return whether an object builds a model and not a scheme: a class of modules, or a function of `wheres`."""
    if isinstance(built, type):
        return issubclass(built, nn.Module) and not issubclass(built, InputEncoding | QueryKeyMap | ScoreBias)
    try:
        return callable(built) and "wheres" in inspect.signature(built).parameters
    except ValueError:
        return False


def model_name(build: BuildModel) -> str:
    """Return the name of the function or class that builds a model."""
    return str(getattr(build, "__name__", type(build).__name__))


def own_types(model: nn.Module) -> list[type]:
    """Return the classes of a model's parts that are neither PyTorch's nor ours."""
    types = dict.fromkeys(type(part) for part in model.modules())
    return [each for each in types if not each.__module__.startswith(("whatwhere.", "torch."))]


def _find_table(model: nn.Module, wheres: Sequence[Where], vocab_size: int) -> str | None:
    """Return the name of the only table with a row for each token, outside of the schemes."""
    theirs = {id(part) for where in wheres for part in where.modules()}
    tables = [
        f"{name}.weight".removeprefix(".")
        for name, part in model.named_modules()
        if isinstance(part, nn.Embedding | TokenEmbedding)
        and part.num_embeddings == vocab_size
        and id(part) not in theirs
        and isinstance(getattr(part, "weight", None), nn.Parameter)
    ]
    return tables[0] if len(tables) == 1 else None


@contextmanager
def explained(name: str, when: str) -> Iterator[None]:
    """Turn an exception of the caller's own code into an error with its place and the calls, in a `with` block."""
    try:
        yield
    except WhatWhereError:
        raise
    except Exception as problem:
        calls = [(frame.f_globals.get("__name__", ""), frame, line) for frame, line in walk_tb(problem.__traceback__)]
        places = [f" ({frame.f_code.co_filename}, line {line})" for module, frame, line in calls if is_own(module)]
        raise SettingError(
            f"{name} raised {type(problem).__name__} when it {when}: {problem}{''.join(places[-1:])}.\nA scheme is "
            "built as build(dim, num_heads, max_length); a model as build(vocab_size, wheres, settings) and called as\n"
            f"{CALL}."
        ) from problem


AnyModel = TypeVar("AnyModel", bound=nn.Module)

_DOORS = ("input", "query_key", "score")
_BIND = "heres = ww.bind(wheres, positions)"
_CHANGED = 1e-5  # of the largest logit: rounding in float32 changes less, another position more
_SAME = 1e-4
_ROUNDING = {torch.float32: 1e-5, torch.float64: 1e-12}
_NAMED = 3
_WINDOW = 256  # tokens in which a decoder is tried for later ones: attention takes as much as its square


def check_model(build: BuildModel, scheme: SchemeLike, task: Task, settings: Settings) -> ModelRecord:
    """Raise before any training what would make the scores of a model wrong, on one small batch.

    Each run is checked with its scheme: logits have the right shape and are finite, gradients reach every parameter, a
    decoder does not see later tokens, in training neither, and does see earlier ones, an encoder sees later ones, and
    each part of the scheme changes the logits where it does so in our own Transformer. That is measured after noise on
    all parameters, so that layers which begin at zero hide nothing.
    """
    if len(task.tokens) != task.vocab_size:
        raise SettingError(
            f"the task {task.name!r} has {len(task.tokens)} tokens, but vocab_size={task.vocab_size}: name each, or a "
            "kept model cannot be built again."
        )
    watched = _WatchedSettings(**{field.name: getattr(settings, field.name) for field in fields(Settings)})
    watched.reads.clear()
    wheres = build_wheres(scheme, settings.dim, settings.heads, table_rows(settings, task), settings.layers)
    model = OwnModel(task.vocab_size, wheres, watched, build)
    record = ModelRecord(model_name(build), tuple(sorted({*watched.reads, "layers"} & {*MODEL_SETTINGS})))
    _require_read(record, settings)
    ids = task.test_set(max(task.trained), 2).ids[:2]
    _require_logits(model, ids, task, record.name)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise SettingError(f"{record.name} has no parameter to train.")
    more = task.test_set(max(task.trained), settings.batch).ids
    _require_gradients(model, model, ids, more, record.name, f"Use them (schemes by {_BIND}), remove them")
    noisy = _with_noise(model)
    _require_direction(noisy, ids, settings, record.name)
    for isolated in _isolated(wheres):
        alone = isolated is not wheres
        own = _with_noise(OwnModel(task.vocab_size, deepcopy(isolated), settings, build)) if alone else noisy
        _require_positions(own, isolated, ids, settings, record.name, name_of(scheme))
    return record


class _WatchedSettings(Settings):
    """Settings that remember which of them were read."""

    @property
    def reads(self) -> set[str]:
        found: set[str] = self.__dict__.setdefault("_reads", set())
        return found

    def __getattribute__(self, name: str) -> Any:
        if name in Settings.__dataclass_fields__:
            self.reads.add(name)
        return super().__getattribute__(name)


def _require_read(record: ModelRecord, settings: Settings) -> None:
    """Raise where a setting was changed that the model does not read: all its values would give the same numbers."""
    default = make_settings(settings.task, settings.lengths)
    for name in MODEL_SETTINGS:
        if name not in record.reads and (value := getattr(settings, name)) != getattr(default, name):
            raise SettingError(
                f"{name}={value!r} changes nothing: {record.name} does not read settings.{name}.\nRead it where the "
                "model is built, or leave it out."
            )


def _require_logits(model: OwnModel, ids: Tensor, task: Task, name: str) -> None:
    first, second = (_logits(model, ids, positions(ids.shape[1]), name) for _ in range(2))
    expected = (*ids.shape, task.vocab_size)
    if tuple(first.shape) != expected:
        raise SettingError(
            f"{name} returned {tuple(first.shape)} for {tuple(ids.shape)} ids, but logits of every token are needed: "
            f"{expected}."
        )
    if not bool(first.isfinite().all()):
        raise SettingError(f"{name} returns logits that are not finite, before any training.")
    _require_equal(first, second, name)


def _require_equal(first: Tensor, second: Tensor, name: str, how: str = "called") -> None:
    if _change(first, second) > _SAME:
        raise SettingError(
            f"{name} returns other logits when it is {how} again in evaluation mode: no score could be repeated.\n"
            "Sample only where self.training is true or, by PyTorch, where it is built; keep nothing from call to call."
        )


def _logits(model: ComparedModel, ids: Tensor, p: Positions, name: str) -> Tensor:
    model.eval()
    with torch.no_grad(), explained(name, "was called"):
        logits = model(ids, None, p)
    if not isinstance(logits, Tensor) or not logits.is_floating_point():
        raise SettingError(f"{name} returned {type(logits).__name__}, but is needed as {CALL}.")
    return logits.float()


def _require_gradients(
    model: ComparedModel, part: nn.Module, few: Tensor, more: Tensor, name: str, way_out: str
) -> None:
    """Raise where the gradient of a parameter of a part of the model is zero, for few and for more sequences.

    It is taken as the model is, then under noise: experts are used for the tokens that are sent to them alone, and
    layers that begin at zero pass nothing on, nor does what is clamped, above or below.
    """
    own = set(map(id, part.parameters()))
    missed = [key for key, value in model.named_parameters() if value.requires_grad and id(value) in own]
    for ids, seed in ((few, None), (more, None), (more, 0), (more, 1)):
        each = _with_noise(model, seed).train()  # a copy: the model may keep what it computes, which nothing can copy
        with seeded(0), explained(name, "was trained"):
            logits = each(ids, None, positions(ids.shape[1], device=ids.device)).float()
            F.cross_entropy(logits.flatten(0, -2), ids.flatten()).backward()
        _require_registered(logits, each, name)
        gradients = {key: value.grad for key, value in each.named_parameters()}
        missed = [key for key in missed if (gradient := gradients[key]) is None or not bool(gradient.any())]
        if not missed:
            return
    more_names = f" and {len(missed) - _NAMED} more" if len(missed) > _NAMED else ""
    names = ", ".join(key.removeprefix("model.") for key in missed[:_NAMED])
    raise SettingError(
        f"no gradient reaches {names}{more_names} of {name}: they would be counted, but not trained.\n"
        f"{way_out}, or call requires_grad_(False) on them."
    )


def check_scheme(
    model: ComparedModel, again: ComparedModel, ids: Int64[Tensor, "batch tokens"], settings: Settings, name: str
) -> None:
    """Raise before any training what would make the scores of a scheme of the caller's own wrong.

    A parameter that gets no gradient would be counted, but keep its initial value. A gradient of zero is one where
    noise on all parameters does not change it, twice: some begin at zero. A decoder of ours does not see later tokens.
    A model that is built `again`, from the same seed, is the same.
    """
    noisy, name, p = _with_noise(model), f"the scheme {name!r}", positions(ids.shape[1], device=ids.device)
    _require_equal(_logits(noisy, ids, p, name), _logits(noisy, ids, p, name), name)
    _require_equal(_logits(noisy, ids, p, name), _logits(_with_noise(again), ids, p, name), name, "built")
    if isinstance(model, Transformer) and settings.direction == "decoder" and ids.shape[1] > 1:
        where = "cpu" if ids.device.type == "mps" else ids.device  # which has no float64
        _require_causal(noisy.to(where), ids[:, :_WINDOW].to(where), name)
    _require_gradients(model, model.wheres, ids, ids, name, "Use them without detach(), .data and no_grad()")


def _require_registered(logits: Tensor, model: nn.Module, name: str) -> None:
    """Raise where logits depend on a tensor that wants a gradient and is not a parameter, as of a list of them."""
    known, seen, todo = set(map(id, model.parameters())), set[Any](), [logits.grad_fn]
    while todo:
        if (function := todo.pop()) is None or function in seen:
            continue
        seen.add(function)
        todo += [before for before, _ in function.next_functions]
        leaf = getattr(function, "variable", None)
        if isinstance(leaf, Tensor) and id(leaf) not in known:
            raise SettingError(
                f"{name} computes with a tensor of shape {tuple(leaf.shape)} that requires a gradient, but is not a "
                "parameter of a module: it would not be trained, nor kept.\nMake it an nn.Parameter that is an "
                "attribute of its module, or of an nn.ParameterList."
            )


@torch.no_grad()
def _with_noise(model: AnyModel, seed: int | None = 0) -> AnyModel:
    """Return a copy, all of whose parameters have noise, so that no zero hides a dependence; below zero for seed 1."""
    copy = deepcopy(model)
    if seed is None:
        return copy
    generator = torch.Generator().manual_seed(seed)
    for parameter in copy.parameters():
        noise = 0.1 * torch.rand(parameter.shape, generator=generator).to(parameter)
        parameter.add_(-noise if seed == 1 else noise)
    return copy


def _require_direction(model: OwnModel, ids: Tensor, settings: Settings, name: str) -> None:
    if ids.shape[1] < 2:
        return
    p, causal = positions(ids.shape[1]), settings.direction == "decoder"
    if causal:
        _require_causal(model, ids[:, :_WINDOW], name)
    before = _logits(model, ids, p, name)
    read, at = (-2, -1) if causal else (1, 0)
    if _change(before[:, at], _logits(model, _with_another(ids, read), p, name)[:, at]) <= _CHANGED:
        side = "the token before it" if causal else "the token after it, which direction='encoder' needs"
        raise SettingError(f"{name} computes the logits of a token without {side}: it has no working attention.")


def _require_causal(model: ComparedModel, ids: Tensor, name: str) -> None:
    """Raise where tokens change logits before them, or the derivatives of these, by any amount but rounding.

    Float64, in which rounding is far less, separates it from a tiny change: a convolution by FFT is causal too.
    """
    for training in (False, True):  # a batch norm sees later tokens in training alone
        for cut in sorted({1, ids.shape[1] // 2, ids.shape[1] - 1}):
            if not (seen := _seen_later(deepcopy(model), ids, cut, training, name)):
                continue
            rounding = _ROUNDING[torch.float32]
            with suppress(SettingError), _Narrow() as narrow:  # raised by one that computes in float32 alone
                seen = _seen_later(deepcopy(model).double(), ids, cut, training, name)
                rounding = _ROUNDING[narrow.dtype]
            if seen > rounding:
                raise SettingError(
                    f"{name} sees later tokens{' in training' if training else ''}: those from token {cut} on change "
                    "logits before it, or how these depend on the weights, so its scores would be worth nothing.\n"
                    "Use here.attention(q, k, v), which is causal, or pass direction='encoder'."
                )
    device, half = ids.device, ids.shape[1] // 2
    alone, followed = (_logits(model, x, positions(x.shape[1], device=device), name) for x in (ids[:, :half], ids))
    declared = any(getattr(each, "follows_length", False) for each in model.modules())  # as DynamicNTK does
    if not declared and _change(followed[:, :half], alone) > _SAME:
        raise SettingError(
            f"{name} sees how many tokens follow: without the later ones, the first {half} have other logits. No step "
            "of decoding could repeat its scores.\nRead max_length, which is fixed, or pass direction='encoder'."
        )


class _Narrow(TorchFunctionMode):
    """Know whether a model in float64 computes with narrower numbers, as by `x.float()`: they round as such."""

    dtype = torch.float64

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if (
            isinstance(found, Tensor)
            and found.requires_grad
            and found.dtype != torch.float64
            and not found.is_complex()
        ):
            self.dtype = torch.float32
        return found


def _seen_later(model: ComparedModel, ids: Tensor, cut: int, training: bool, name: str) -> float:
    """Return by how much other tokens from `cut` on change what comes before; 0 where a repetition does as much."""
    other = ids
    for slot in range(cut, ids.shape[1]):
        other = _with_another(other, slot)
    model.train(training)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    found = []
    for each in (ids, ids, other):
        with seeded(0), explained(name, "was called"):  # the same dropout in each call
            logits = model(each.clone(), None, positions(ids.shape[1], device=ids.device))[:, :cut]
            factors = torch.randn(logits.shape, generator=torch.Generator().manual_seed(1)).to(logits)
            slopes = torch.autograd.grad((logits * factors).sum(), weights, materialize_grads=True, allow_unused=True)
        found.append((logits.detach(), torch.cat([slope.flatten() for slope in slopes])))
    again, change = (max(map(_change, found[0], each)) for each in found[1:])
    return change if change > again else 0.0


def _with_another(ids: Tensor, at: int) -> Tensor:
    """Return the ids with another token in one slot, one that is in the sequence: it may be any."""
    other = ids.clone()
    for n, row in enumerate(ids):
        choices = row[row != row[at]]
        other[n, at] = choices[0] if len(choices) else 1 - row[at].clamp(max=1)
    return other


def _isolated(wheres: list[Where]) -> list[list[Where]]:
    """Return layers with one part of a mixture each, by door and by layer; the layers themselves of a single part."""
    parts = list({id(where): where for where in wheres}.values())
    doors = [(part, door) for part in parts for door in _DOORS if getattr(part, door) is not None]
    if len(doors) < 2 and len(parts) == 1:
        return [wheres]
    isolated = []
    for part, door in doors:
        alone = Where(**{door: getattr(part, door)})
        if len(parts) == 1 or door == "input":
            isolated.append([alone] * len(wheres))
            continue
        layers = sorted({0, 1, len(wheres) - 1})
        isolated += [[alone if n == layer else Where() for n in range(len(wheres))] for layer in layers]
    return isolated or [wheres]


def _require_positions(
    model: OwnModel, wheres: Sequence[Where], ids: Tensor, settings: Settings, name: str, scheme: str
) -> None:
    """Raise unless positions change the logits where, and only where, they do so in our own Transformer."""
    ours = replace(settings, feedforward=8, table="learned", init=0.15, tied=False)
    generator = torch.Generator().manual_seed(0)
    vocab_size = int(ids.max()) + 1
    expected = _moves(_with_noise(Transformer(vocab_size, deepcopy(list(wheres)), ours, generator)), ids, name)
    if (found := _moves(model, ids, name)) == expected:
        return
    if not found:
        raise SettingError(
            f"the logits of {name} do not change with positions, but with the scheme {scheme!r} those of whatwhere's "
            f"Transformer do.\nPass the positions on: {_BIND}; each layer uses its own here: here(q, k, v), and the "
            "input here.embed(tokens, ids)."
        )
    raise SettingError(
        f"the logits of {name} change with positions although the scheme {scheme!r} does not use them: the model has a "
        "positional encoding of its own, which every scheme would be measured on top of.\nRemove it, and compare it "
        "as a scheme."
    )


def _moves(model: ComparedModel, ids: Tensor, name: str) -> bool:
    """Return whether other positions of the same tokens, in the same order, change the logits."""
    p = positions(ids.shape[1])
    before, after = (_logits(model, ids, each, name) for each in (p, replace(p, index=p.index // 2)))
    return _change(before, after) > _CHANGED


def _change(before: Tensor, after: Tensor) -> float:
    """Return the largest change of a logit, relative to the largest logit."""
    return ((before - after).abs().max() / before.abs().max().clamp(min=1e-30)).item()
