"""A model of the caller's own in a comparison: how it is built and called."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from whatwhere.comparison.model import Transformer
from whatwhere.comparison.settings import Settings
from whatwhere.errors import SettingError, WhatWhereError
from whatwhere.initialization import seeded
from whatwhere.position.positions import Positions, positions
from whatwhere.what.embedding import TokenEmbedding
from whatwhere.where.binding import Where

BuildModel = Callable[[int, Sequence[Where], Settings], nn.Module]
"""`build(vocab_size, wheres, settings)` -> a module that is called as `model(ids, positions)` and returns logits.

`wheres` has the Where of each layer. ids are (batch, tokens), logits (batch, tokens, vocab_size).
"""

CALL = "model(ids, positions) -> logits of shape (batch, tokens, vocab_size)"


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
        with seeded(seed), explained(build, "was built"):
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


def require_defined(model: ComparedModel, p: Positions) -> None:
    """Raise PositionError where the input scheme of a model has no vector for a position.

    Models do so themselves on the CPU; on a GPU such a position would end the program.
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
def explained(build: BuildModel | str, when: str) -> Iterator[None]:
    """Turn an exception of the caller's own code into an error with the way to call it, in a `with` block."""
    try:
        yield
    except WhatWhereError:
        raise
    except Exception as problem:
        name = build if isinstance(build, str) else model_name(build)
        raise SettingError(
            f"{name} raised {type(problem).__name__} when it {when}: {problem}.\nIt is built as "
            f"{name}(vocab_size, wheres, settings), and called as {CALL}."
        ) from problem
