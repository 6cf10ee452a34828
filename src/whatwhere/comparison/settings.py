"""What a comparison is told: one frozen value, checked when it is made."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch

from whatwhere.checks import require_choice, require_positive, require_whole
from whatwhere.errors import SettingError, ShapeError
from whatwhere.where.binding import Where
from whatwhere.where.catalogue import scheme as build_scheme

Build = Callable[[int, int, int], Where | Sequence[Where]]
"""`build(dim, num_heads, max_length)` -> the Where of all layers, or one for each layer."""
SchemeLike = str | tuple[str, Build]

_BY_TASK: Mapping[str, Mapping[str, Any]] = {
    "expressions": {"steps": 800, "batch": 64, "lengths": (8, 12, 16, 24, 32)},
    "recall": {"steps": 2000, "batch": 64, "lengths": (12, 16, 20, 26)},
    "text": {"steps": 1500, "batch": 24, "lengths": (128, 256, 512)},
}
# The first tutorial's own program: an encoder on three arguments, 50 epochs of 8,000 expressions in batches of 32.
_AUTHOR: Mapping[str, Any] = {
    "steps": 12_500,
    "batch": 32,
    "learning_rate": 1e-3,
    "betas": (0.9, 0.999),
    "weight_decay": 0.0,
    "schedule": "constant",
    "token_std": 0.01,
    "direction": "encoder",
    "trained": (3,),
    "lengths": (4, 6, 8),
}
_SEQUENCES = {"lengths": "[8, 16]", "trained": "[1, 2, 3]", "betas": "(0.9, 0.98)"}


@dataclass(frozen=True)
class Settings:
    """Hold every setting of a comparison; two runs of equal settings give equal numbers.

    Args:
        task: `expressions`, `recall`, `text`, or the name of a task of your own.
        lengths: tested lengths beyond the trained ones, in the task's unit.
        trained: trained lengths; None is the task's own choice.
        steps, batch: optimizer steps, and sequences in each.
        learning_rate, weight_decay, betas: of AdamW; gradients are clipped at norm 1.
        schedule: `cosine` (warm-up over a twelfth of the steps, then down to 5 %) or `constant`.
        dim, layers, heads, feedforward: of the Transformer.
        direction: `decoder` (causal) or `encoder`.
        token_std: spread of the initial token table.
        tied: read logits out with the token table instead of a matrix of their own.
        exam: sequences of each test, fewer where they are long.
        positions: where tokens stand, `plain` (0, 1, 2, ...), `randomized` or `random_offset`, drawn anew for each
            sequence in training and in the exam.
        longest: how many positions to draw from; None is twice the tokens of the longest sequence.
        exam_positions: `same`, or `plain`, which is warned about where training draws.
        device: `cpu`, `cuda` or `auto`; on cuda the training runs in bfloat16.
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
    token_std: float = 0.15
    tied: bool = False
    exam: int = 1000
    positions: str = "plain"
    longest: int | None = None
    exam_positions: str = "same"
    device: str = "auto"

    def __post_init__(self) -> None:
        """Check every setting by itself and against the others."""
        sizes = ("steps", "batch", "dim", "layers", "heads", "feedforward", "exam")
        require_whole("compare", **{name: getattr(self, name) for name in sizes})
        require_positive("compare", learning_rate=self.learning_rate, token_std=self.token_std)
        _require_adamw(self.betas, self.weight_decay)
        if not isinstance(self.tied, bool):
            raise SettingError(f"compare got tied={self.tied!r}, but needs True or False.")
        require_choice("compare", "schedule", self.schedule, ("cosine", "constant"))
        require_choice("compare", "direction", self.direction, ("decoder", "encoder"))
        require_choice("compare", "device", self.device, ("auto", "cpu", "cuda"))
        _require_positions(self.positions, self.longest, self.exam_positions)
        if self.device == "cuda" and not torch.cuda.is_available():
            raise SettingError("compare got device='cuda', but PyTorch sees no such device here: pass device='auto'.")
        if self.dim % self.heads:
            raise ShapeError(
                f"compare got dim={self.dim} and heads={self.heads}: each head needs the same number of features, so "
                f"heads must divide dim."
            )
        for length in self.lengths:
            require_whole("compare", length=length)
        for length in self.trained or ():
            require_whole("compare", trained=length)

    @property
    def place(self) -> str:
        """The device that the runs use."""
        return ("cuda" if torch.cuda.is_available() else "cpu") if self.device == "auto" else self.device

    def as_dict(self) -> dict[str, Any]:
        """Give the settings as JSON holds them."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def make_settings(task: str, lengths: Sequence[int] | None, recipe: str = "quick", **given: Any) -> Settings:
    """Fill in the task's own choices, then a recipe's, then what was given.

    Args:
        recipe: `quick`, which solves the expressions in 800 steps; `author`, the first tutorial's own 50 epochs.
    """
    known = {field.name for field in fields(Settings)} - {"task", "lengths"}
    unknown = sorted(set(given) - known)
    if unknown:
        raise SettingError(f"compare does not know the setting {unknown[0]!r}; it knows {', '.join(sorted(known))}.")
    require_choice("compare", "recipe", recipe, ("quick", "author"))
    if recipe == "author" and task != "expressions":
        raise SettingError(f"recipe='author' is the program of the expressions task, not of {task!r}.")
    chosen = dict(_BY_TASK.get(task, {"lengths": ()})) | (dict(_AUTHOR) if recipe == "author" else {})
    chosen |= {name: value for name, value in given.items() if value is not None}
    if lengths is not None:
        chosen["lengths"] = lengths
    for name, example in _SEQUENCES.items():
        if (value := chosen.get(name)) is not None:
            if isinstance(value, str) or not isinstance(value, Iterable):
                raise SettingError(f"compare got {name}={value!r}, but needs several, as in {name}={example}.")
            chosen[name] = tuple(value)
    return Settings(task=task, **chosen)


def name_of(scheme: SchemeLike) -> str:
    """Give the name that a scheme has in results."""
    if isinstance(scheme, str):
        return scheme
    is_pair = isinstance(scheme, tuple) and len(scheme) == 2 and isinstance(scheme[0], str)
    # A module is callable too, but what it gives is no scheme.
    if is_pair and callable(scheme[1]) and not isinstance(scheme[1], torch.nn.Module):
        return scheme[0]
    raise SettingError(
        f"compare got the scheme {scheme!r}, but needs a name of the catalogue, or a pair of your own name and a "
        'function that builds it:\n("mine", lambda dim, num_heads, max_length: Where(score=ALiBi(num_heads))).'
    )


def build_wheres(scheme: SchemeLike, dim: int, num_heads: int, max_length: int, layers: int) -> list[Where]:
    """Build the Where of each layer: one for all, or a mixture by layer such as "rotary/none".

    >>> [where.query_key is not None for where in build_wheres("rotary/none", 32, 2, 16, layers=4)]
    [True, False, True, False]
    """
    if isinstance(scheme, str):
        parts: Sequence[Where] = [build_scheme(part, dim, num_heads, max_length) for part in scheme.split("/")]
    else:
        built = scheme[1](dim, num_heads, max_length)
        parts = [built] if isinstance(built, Where) else list(built) if isinstance(built, Sequence) else []
        if not parts or not all(isinstance(part, Where) for part in parts):
            raise SettingError(
                f"the scheme {scheme[0]!r} built {type(built).__name__}, but must build a Where, or a list of them."
            )
    if len(parts) > layers:
        raise SettingError(
            f"the scheme {name_of(scheme)!r} has {len(parts)} parts, but the model only {layers} layers: "
            f"pass layers={len(parts)}, or leave parts out."
        )
    wheres = [parts[n % len(parts)] for n in range(layers)]
    if any(where.input is not None and where.input is not wheres[0].input for where in wheres):
        raise SettingError(
            f"the scheme {name_of(scheme)!r} has an input scheme in a later layer, but token vectors are made once: "
            "put it into the first part."
        )
    return wheres


def _is_from_zero(value: object, below: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < below


def _require_positions(chosen: str, longest: int | None, in_exam: str) -> None:
    require_choice("compare", "positions", chosen, ("plain", "randomized", "random_offset"))
    require_choice("compare", "exam_positions", in_exam, ("same", "plain"))
    if longest is None:
        return
    require_whole("compare", longest=longest)
    if chosen == "plain":
        raise SettingError(
            f"compare got longest={longest}, but plain positions are not drawn: pass positions='randomized' or "
            "'random_offset' with it, or leave it out."
        )


def _require_adamw(betas: tuple[float, ...], weight_decay: float) -> None:
    if not _is_from_zero(weight_decay, below=math.inf):
        raise SettingError(f"compare got weight_decay={weight_decay!r}, but needs a finite number of at least 0.")
    if len(betas) != 2 or not all(_is_from_zero(beta, below=1.0) for beta in betas):
        raise SettingError(
            f"compare got betas={betas!r}, but AdamW needs two numbers from 0 to below 1, as in "
            f"betas={_SEQUENCES['betas']}."
        )
