"""The settings of a comparison, checked when they are made. Reading them needs no PyTorch."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from whatwhere.checks import require_choice, require_positive, require_whole
from whatwhere.errors import SettingError, ShapeError

_TEXT: Mapping[str, Any] = {"steps": 1500, "batch": 24, "lengths": (128, 256, 512)}
_BY_TASK: Mapping[str, Mapping[str, Any]] = {
    "expressions": {"steps": 800, "batch": 64, "lengths": (8, 12, 16, 24, 32)},
    "recall": {"steps": 2000, "batch": 64, "lengths": (12, 16, 20, 26)},
    "text": _TEXT,
    "text in tokens": _TEXT,
}
# The first tutorial has 50 epochs and three arguments, and states nothing else. The rest is ours: an encoder, epochs of
# 8,000 expressions in batches of 32, Adam at 0.001.
_AUTHOR: Mapping[str, Any] = {
    "steps": 12_500,
    "batch": 32,
    "learning_rate": 1e-3,
    "betas": (0.9, 0.999),
    "weight_decay": 0.0,
    "schedule": "constant",
    "init": 0.01,
    "direction": "encoder",
    "trained": (3,),
    "lengths": (4, 6, 8),
}
TABLES = ("learned", "frozen", "onehot", "ids")
"""Names of token tables; beside them `rank1`, `rank2`, ...."""
MODEL_SETTINGS = ("dim", "layers", "heads", "feedforward", "init", "table", "tied")
"""The settings of our Transformer; a model of the caller's own may read some of them."""
INITS = ("normal", "glorot_uniform", "glorot_normal", "fan_in_uniform", "torch")
"""The names of initial values that TokenEmbedding knows, here without PyTorch; a test compares the two."""
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "schedule": ("cosine", "constant"),
    "direction": ("decoder", "encoder"),
    "device": ("auto", "cpu", "cuda"),
    "positions": ("plain", "randomized", "random_offset"),
    "test_positions": ("same", "plain"),
}
_SEQUENCES = {"lengths": "[8, 16]", "trained": "[1, 2, 3]", "betas": "(0.9, 0.98)"}


@dataclass(frozen=True)
class Settings:
    """The settings of a comparison; runs of equal settings, versions and seeds give equal numbers on one machine.

    Args:
        task: `expressions`, `recall`, `text`, or the name of a task of your own.
        lengths: lengths to test beyond the trained ones, in the task's unit.
        trained: lengths to train on; None is the task's own choice.
        steps: optimizer steps of a run; 0 measures a kept model that it starts from, untrained.
        batch: sequences in each step.
        learning_rate: peak learning rate of AdamW; gradients are clipped at norm 1.
        weight_decay: decoupled weight decay of AdamW.
        betas: decay rates of AdamW's two moments.
        schedule: `cosine` (linear warm-up over a twelfth of the steps, then down to 5 %) or `constant`.
        dim: features of a token vector.
        layers: Transformer blocks.
        heads: attention heads of a block; they divide dim.
        feedforward: hidden features of the feed-forward network.
        direction: `decoder` (causal attention) or `encoder` (bidirectional).
        init: of the token table: a standard deviation, or a name of `TokenEmbedding`: normal, glorot_uniform, ....
        table: of tokens: `learned`; `frozen` (random rows that are not trained); `onehot` (row t is the unit vector
            e_t, not trained; dim must reach the vocabulary); `rank2` or another rank (a product of two factors, which
            are trained); `ids` (not trained: the raw id, standardized, as a number along one direction).
        tied: use the token table as the output projection instead of a matrix of its own.
        test_sequences: sequences of each test set, fewer where they are long; where every token has a target, of the
            shortest, and as many tokens at the other lengths.
        positions: `plain` (0, 1, 2, ...), `randomized` or `random_offset`, sampled for each sequence in training and in
            the tests.
        max_length: positions to sample from; None is twice the tokens of the longest sequence.
        test_positions: `same` as in training, or `plain`, which raises a warning where training samples positions.
        device: `cpu`, `cuda` or `auto`; on CUDA the training runs in bfloat16.
        deterministic: compute on one thread, by PyTorch's deterministic algorithms alone. Runs of `compare` on the CPU
            have equal bytes without it; on CUDA it is slower.

    Raises:
        SettingError: If an option is outside its range, or two exclude each other.
        ShapeError: If a size is not a whole number above 0, or heads do not divide dim.

    Examples:
        >>> Settings("recall", lengths=(12, 16), steps=100).layers
        2
    """

    task: str
    lengths: tuple[int, ...]
    trained: tuple[int, ...] | None = None
    steps: int = 800
    batch: int = 64
    learning_rate: float = 2e-3
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.98)
    schedule: str = "cosine"
    dim: int = 64
    layers: int = 2
    heads: int = 4
    feedforward: int = 256
    direction: str = "decoder"
    init: float | str = 0.15
    table: str = "learned"
    tied: bool = False
    test_sequences: int = 1000
    positions: str = "plain"
    max_length: int | None = None
    test_positions: str = "same"
    device: str = "auto"
    deterministic: bool = False

    def __post_init__(self) -> None:
        sizes = ("batch", "dim", "layers", "heads", "feedforward", "test_sequences")
        require_whole("a run", **{name: getattr(self, name) for name in sizes})
        require_whole("a run", 0, steps=self.steps)
        require_positive("a run", learning_rate=self.learning_rate)
        for name, known in _CHOICES.items():
            require_choice("a run", name, getattr(self, name), known)
        for name in ("tied", "deterministic"):
            if not isinstance(value := getattr(self, name), bool):
                raise SettingError(f"a run got {name}={value!r}, but needs True or False.")
        if isinstance(self.init, str):
            require_choice("a run", "init", self.init, INITS)
        else:
            require_positive("a run", init=self.init)
        rank = rank_of(self.table)
        if rank is None:
            require_choice("a run", "table", self.table, (*TABLES, "rank2"))
        elif rank > self.dim:
            raise SettingError(f"a run got table={self.table!r}, but dim={self.dim}: a rank is at most dim.")
        if not _is_from_zero(self.weight_decay, below=math.inf):
            raise SettingError(
                f"a run got weight_decay={self.weight_decay!r}, but needs a finite number of at least 0."
            )
        if len(self.betas) != 2 or not all(_is_from_zero(beta, below=1.0) for beta in self.betas):
            raise SettingError(
                f"a run got betas={self.betas!r}, but AdamW needs two numbers from 0 to below 1, as in "
                f"betas={_SEQUENCES['betas']}."
            )
        if self.max_length is not None:
            require_whole("a run", max_length=self.max_length)
            if self.positions == "plain":
                raise SettingError(
                    f"a run got max_length={self.max_length}, but plain positions are not sampled: pass "
                    "positions='randomized' or 'random_offset' with it, or leave it out."
                )
        if self.dim % self.heads:
            raise ShapeError(
                f"a run got dim={self.dim} and heads={self.heads}: each head needs the same number of features, so "
                f"heads must divide dim."
            )
        for name, lengths in (("length", self.lengths), ("trained", self.trained or ())):
            for length in lengths:
                require_whole("a run", **{name: length})

    @property
    def resolved_device(self) -> str:
        """The device that the runs use: "cpu" or "cuda"."""
        return ("cuda" if _has_cuda() else "cpu") if self.device == "auto" else self.device


def make_settings(task: str, lengths: Sequence[int] | None, recipe: str = "quick", **given: Any) -> Settings:
    """Combine settings: the task's defaults, overridden by a recipe's, overridden by what is passed."""
    known = {field.name for field in fields(Settings)} - {"task", "lengths"}
    unknown = sorted(set(given) - known)
    if unknown:
        raise SettingError(f"a run has no setting {unknown[0]!r}; its settings are {', '.join(sorted(known))}.")
    require_choice("compare", "recipe", recipe, ("quick", "author"))
    if recipe == "author" and task != "expressions":
        raise SettingError(f"recipe='author' is one of the expressions task, not of {task!r}.")
    chosen = dict(_BY_TASK.get(task, {"lengths": ()})) | (dict(_AUTHOR) if recipe == "author" else {})
    chosen |= {name: value for name, value in given.items() if value is not None}
    if lengths is not None:
        chosen["lengths"] = lengths
    for name, example in _SEQUENCES.items():
        if (value := chosen.get(name)) is not None:
            if isinstance(value, str) or not isinstance(value, Iterable):
                raise SettingError(f"a run got {name}={value!r}, but needs several, as in {name}={example}.")
            chosen[name] = tuple(value)
    settings = Settings(task=task, **chosen)
    # Checked here and not with the other settings: results of another machine are read where there is no such device.
    if settings.device == "cuda" and not _has_cuda():
        raise SettingError("a run got device='cuda', but PyTorch finds no CUDA device: pass device='auto'.")
    return settings


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


def with_settings(settings: Settings, varied: Mapping[str, Any], max_length: int | None = None) -> Settings:
    """Return the settings of a variant."""
    changed = dict(varied)
    if changed.get("positions", settings.positions) == "plain":
        changed.setdefault("max_length", None)
    elif changed.get("max_length", settings.max_length) is None:
        changed["max_length"] = max_length
    return replace(settings, **changed)


def rank_of(table: str) -> int | None:
    """Return the rank that the name of a token table has; None of tables without one."""
    number = table.removeprefix("rank")
    return int(number) if table.startswith("rank") and number.isdecimal() and int(number) > 0 else None


def _is_from_zero(value: object, below: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < below
