"""A model of the caller's own in a comparison: how it is built and called, and what is checked before any training."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import fields, replace
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional as F

from whatwhere.comparison.model import SchemeLike, Transformer, build_wheres, name_of, table_rows
from whatwhere.comparison.results import ModelRecord
from whatwhere.comparison.settings import MODEL_SETTINGS, Settings, make_settings
from whatwhere.comparison.tasks import Task
from whatwhere.errors import SettingError, WhatWhereError
from whatwhere.initialization import seeded
from whatwhere.position import Positions, positions
from whatwhere.what.embedding import TokenEmbedding
from whatwhere.where.binding import Where

BuildModel = Callable[[int, Sequence[Where], Settings], nn.Module]
"""`build(vocab_size, wheres, settings)` -> a module that is called as `model(ids, positions)` and returns logits.

`wheres` has the Where of each layer. ids are (batch, tokens), logits (batch, tokens, vocab_size).
"""

DOORS = ("input", "query_key", "score")
_CALL = "model(ids, positions) -> logits of shape (batch, tokens, vocab_size)"
_BIND = "heres = ww.bind(wheres, positions)"
_CHANGED = 1e-5  # of the largest logit: rounding in float32 changes less, another position more
_SAME = 1e-4
_NAMED = 3


class OwnModel(nn.Module):
    """A model of the caller's own, with the interface of our Transformer.

    Args:
        vocab_size: number of tokens in the vocabulary.
        wheres: one Where for each layer; they are trained and saved with the model, whether or not it keeps them.
        settings: of the run.
        build: builds the model; it samples initial values from PyTorch's global random state.
        seed: all that determines these values.

    Raises:
        SettingError: If `build` fails, or returns no module.

    Examples:
        >>> class Bag(nn.Module):
        ...     def __init__(self, vocab_size, wheres, settings):
        ...         super().__init__()
        ...         self.table = nn.Embedding(vocab_size, settings.dim)
        ...
        ...     def forward(self, ids, p):
        ...         return self.table(ids) @ self.table.weight.T
        >>> model = OwnModel(20, [Where()], Settings("expressions", (8,)), Bag)
        >>> model(torch.tensor([[12, 17, 8, 18]]), at=-1).shape, tuple(model.token_table.shape)
        (torch.Size([1, 20]), (20, 64))
    """

    def __init__(
        self, vocab_size: int, wheres: Sequence[Where], settings: Settings, build: BuildModel, seed: int = 0
    ) -> None:
        super().__init__()
        with seeded(seed), _explained(build, "was built"):
            built = build(vocab_size, list(wheres), settings)
        if not isinstance(built, nn.Module):
            raise SettingError(
                f"{model_name(build)} returned {type(built).__name__}, but must return a torch.nn.Module that is "
                f"called as\n{_CALL}."
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
        """The only table of the model with a row for each token; None where there is none or several."""
        return None if self._table is None else self.model.get_parameter(self._table)

    @property
    def device(self) -> torch.device:
        """The device of its parameters."""
        return next(self.parameters()).device

    @property
    def layer_wheres(self) -> list[Where]:
        """The Where of each layer."""
        return [where for where in self.wheres if isinstance(where, Where)]


ComparedModel = Transformer | OwnModel
AnyModel = TypeVar("AnyModel", bound=nn.Module)


def require_defined(model: ComparedModel, p: Positions) -> None:
    """Raise PositionError where the input scheme of a model has no vector for a position.

    Models do so themselves on the CPU; on a GPU such a position would end the program.

    Args:
        model: ours or the caller's own.
        p: of a test batch.

    Raises:
        PositionError: If a scheme is not defined at some position.
    """
    if p.device.type != "cpu":
        for scheme in {where.input for where in model.layer_wheres if where.input is not None}:
            scheme.require_defined(p.to("cpu"))


def is_model_builder(built: object) -> bool:
    """Return whether an object builds a model and not a scheme: a class of modules, or a function of `wheres`.

    Examples:
        >>> is_model_builder(lambda vocab_size, wheres, settings: None)
        True
        >>> is_model_builder(lambda dim, num_heads, max_length: None)
        False
    """
    if isinstance(built, type):
        return issubclass(built, nn.Module)
    try:
        return callable(built) and "wheres" in inspect.signature(built).parameters
    except ValueError:
        return False


def model_name(build: BuildModel) -> str:
    """Return the name of the function or class that builds a model."""
    return str(getattr(build, "__name__", type(build).__name__))


def check_model(build: BuildModel, scheme: SchemeLike, task: Task, settings: Settings) -> ModelRecord:
    """Raise before any training what would make the scores of a model wrong, on one small batch.

    Each run is checked with its scheme: logits have the right shape and are finite, gradients reach every parameter, a
    decoder does not see later tokens and does see earlier ones, an encoder sees later ones, and each part of the scheme
    changes the logits where it does so in our own Transformer. That is measured after noise on all parameters, so that
    layers which begin at zero hide nothing.

    Args:
        build: builds the model.
        scheme: of the run.
        task: of the run.
        settings: of the run.

    Returns:
        Its name, and the settings that it read.

    Raises:
        SettingError: If one of these does not hold.
    """
    if len(task.tokens) != task.vocab_size:
        raise SettingError(
            f"the task {task.name!r} has {len(task.tokens)} tokens, but vocab_size={task.vocab_size}: name each, or a "
            "kept model cannot be built again."
        )
    watched = _WatchedSettings(**{field.name: getattr(settings, field.name) for field in fields(Settings)})
    watched.reads.clear()
    wheres = _wheres(scheme, task, settings)
    model = OwnModel(task.vocab_size, wheres, watched, build)
    record = ModelRecord(model_name(build), tuple(sorted({*watched.reads, "layers"} & {*MODEL_SETTINGS})))
    _require_read(record, settings)
    ids = _ids(task)
    _require_logits(model, ids, task, record.name)
    _require_gradients(model, ids, record.name)
    noisy = _with_noise(model)
    _require_direction(noisy, ids, settings, record.name)
    for isolated in _isolated(wheres):
        own = noisy
        if isolated is not wheres:
            own = _with_noise(OwnModel(task.vocab_size, deepcopy(isolated), settings, build))
        _require_positions(own, isolated, ids, settings, record.name, name_of(scheme))
    return record


def own_types(model: nn.Module) -> list[type]:
    """Return the classes of a model's parts that are neither PyTorch's nor ours."""
    types = dict.fromkeys(type(part) for part in model.modules())
    return [each for each in types if not each.__module__.startswith(("whatwhere.", "torch."))]


class _WatchedSettings(Settings):
    """Settings that remember which of them were read."""

    @property
    def reads(self) -> set[str]:
        """Names of the settings that were read."""
        found: set[str] = self.__dict__.setdefault("_reads", set())
        return found

    def __getattribute__(self, name: str) -> Any:
        if name in Settings.__dataclass_fields__:
            self.reads.add(name)
        return super().__getattribute__(name)


def _wheres(scheme: SchemeLike, task: Task, settings: Settings) -> list[Where]:
    return build_wheres(scheme, settings.dim, settings.heads, table_rows(settings, task), settings.layers)


def _ids(task: Task) -> Int64[Tensor, "batch tokens"]:
    """Return two sequences of the longest trained length."""
    return task.test_set(max(task.trained), 2).ids[:2]


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
def _explained(build: BuildModel | str, when: str) -> Iterator[None]:
    """Turn an exception of the caller's own code into an error with the way to call it."""
    try:
        yield
    except WhatWhereError:
        raise
    except Exception as problem:
        name = build if isinstance(build, str) else model_name(build)
        raise SettingError(
            f"{name} raised {type(problem).__name__} when it {when}: {problem}.\nIt is built as "
            f"{name}(vocab_size, wheres, settings), and called as {_CALL}."
        ) from problem


def _require_read(record: ModelRecord, settings: Settings) -> None:
    """Raise where a setting was changed that the model does not read: all its values would give the same numbers."""
    default = make_settings(settings.task, settings.lengths)
    changed = [name for name in MODEL_SETTINGS if getattr(settings, name) != getattr(default, name)]
    unread = [name for name in changed if name not in record.reads]
    if unread:
        raise SettingError(
            f"{unread[0]}={getattr(settings, unread[0])!r} changes nothing: {record.name} does not read "
            f"settings.{unread[0]}.\nRead it where the model is built, or leave it out."
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
    if _change(first, second) > _SAME:
        raise SettingError(
            f"{name} returns other logits when it is called again in evaluation mode: no score could be repeated.\n"
            "Sample only where self.training is true."
        )


def _logits(model: ComparedModel, ids: Tensor, p: Positions, name: str) -> Tensor:
    model.eval()
    with torch.no_grad(), _explained(name, "was called"):
        logits = model(ids, None, p)
    if not isinstance(logits, Tensor) or not logits.is_floating_point():
        raise SettingError(f"{name} returned {type(logits).__name__}, but is needed as {_CALL}.")
    return logits.float()


def _require_gradients(model: OwnModel, ids: Tensor, name: str) -> None:
    model.train()
    with seeded(0), _explained(name, "was trained"):
        logits = model(ids, None, positions(ids.shape[1])).float()
        F.cross_entropy(logits.flatten(0, -2), ids.flatten()).backward()
    trained = [(key, value) for key, value in model.named_parameters() if value.requires_grad]
    missed = [key.removeprefix("model.") for key, value in trained if value.grad is None]
    model.zero_grad(set_to_none=True)
    if not trained:
        raise SettingError(f"{name} has no parameter to train.")
    if missed:
        more = f" and {len(missed) - _NAMED} more" if len(missed) > _NAMED else ""
        raise SettingError(
            f"no gradient reaches {', '.join(missed[:_NAMED])}{more} of {name}: they would be counted, but not "
            f"trained.\nUse them (schemes by {_BIND}), remove them, or call requires_grad_(False) on them."
        )


@torch.no_grad()
def _with_noise(model: AnyModel) -> AnyModel:
    """Return a copy, all of whose parameters have noise above zero, so that no zero hides a dependence."""
    copy, generator = deepcopy(model), torch.Generator().manual_seed(0)
    for parameter in copy.parameters():
        parameter.add_(0.1 * torch.rand(parameter.shape, generator=generator).to(parameter))
    return copy


def _require_direction(model: OwnModel, ids: Tensor, settings: Settings, name: str) -> None:
    if ids.shape[1] < 2:
        return
    p, causal = positions(ids.shape[1]), settings.direction == "decoder"
    before = _logits(model, ids, p, name)
    later = _logits(model, _with_another(ids, -1), p, name)
    if causal and _change(before[:, :-1], later[:, :-1]) > _SAME:
        raise SettingError(
            f"{name} sees later tokens: the last one changes logits before it, so its scores would be worth nothing.\n"
            "Use here.attention(q, k, v), which is causal, or pass direction='encoder'."
        )
    read, at = (-2, -1) if causal else (1, 0)
    if _change(before[:, at], _logits(model, _with_another(ids, read), p, name)[:, at]) <= _CHANGED:
        side = "the token before it" if causal else "the token after it, which direction='encoder' needs"
        raise SettingError(f"{name} computes the logits of a token without {side}: it has no working attention.")


def _with_another(ids: Tensor, at: int) -> Tensor:
    """Return the ids with another token in one slot, one that is in the sequence: it may be any."""
    other = ids.clone()
    others = [ids[n][ids[n] != ids[n, at]] for n in range(len(ids))]
    for n, choices in enumerate(others):
        other[n, at] = choices[0] if len(choices) else 1 - ids[n, at].clamp(max=1)
    return other


def _isolated(wheres: list[Where]) -> list[list[Where]]:
    """Return layers with one part of a mixture each, by door and by layer; the layers themselves of a single part."""
    parts = list({id(where): where for where in wheres}.values())
    doors = [(part, door) for part in parts for door in DOORS if getattr(part, door) is not None]
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
            f"Transformer do.\nPass the positions on: {_BIND}; each layer uses its own here: here.query_key(q, k) and "
            "here.attention(q, k, v), the input here.embed(tokens, ids)."
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
