"""Where the tokens of a comparison stand: counted from 0, or drawn at random in training and in the exam alike."""

import warnings
from dataclasses import replace

import torch
from jaxtyping import Int64
from torch import Tensor

from whatwhere.comparison.settings import Settings
from whatwhere.comparison.tasks import Task
from whatwhere.drawn import RandomPositionsWarning, random_offset, randomized
from whatwhere.errors import SettingError
from whatwhere.ruler import Positions, positions


def with_longest(settings: Settings, task: Task) -> Settings:
    """Fill in how many positions are drawn from: twice the tokens of the longest sequence, unless it was given."""
    if settings.positions == "plain":
        return settings
    tokens = max(task.token_count(n) for n in {*task.trained, *task.tested_in_length, *settings.lengths})
    if settings.longest is None:
        return replace(settings, longest=2 * tokens)
    if settings.longest < tokens:
        raise SettingError(
            f"compare got longest={settings.longest} for positions={settings.positions!r}, but the longest sequence "
            f"has {tokens} tokens: pass longest={tokens} or more, or shorter lengths than {settings.lengths}."
        )
    return settings


def warn_of_plain_exam(settings: Settings) -> None:
    """Warn where models are trained at drawn positions and examined at 0, 1, 2, ....

    Ruoss et al. 2023 draw at evaluation too: a model trained on drawn gaps rarely meets a gap of 1. In one trial on
    expressions (800 steps) the sinusoid scored 0.98 within the trained length at drawn positions, 0.78 at plain ones.
    """
    if settings.positions != "plain" and settings.exam_positions == "plain":
        warnings.warn(
            f"models are trained at positions={settings.positions!r} and examined at plain ones, which they have "
            "hardly met: scores will be low.\nLeave exam_positions out to draw in the exam too.",
            RandomPositionsWarning,
            stacklevel=3,
        )


def rows(settings: Settings, task: Task) -> int:
    """Give how many positions training shows: what a learned table has rows for."""
    tokens = task.token_count(max(task.trained))
    return tokens if settings.positions == "plain" else max(tokens, settings.longest or 0)


def in_training(settings: Settings, ids: Int64[Tensor, "batch tokens"], generator: torch.Generator) -> Positions | None:
    """Place a batch; None counts from 0."""
    if settings.positions == "plain":
        return None
    return _draw(settings, ids, generator)


def in_exam(
    settings: Settings, ids: Int64[Tensor, "batch tokens"], generator: torch.Generator, shift: int = 0
) -> Positions:
    """Place a batch, and move all of it by a shift."""
    if settings.positions == "plain" or settings.exam_positions == "plain":
        return positions(ids.shape[1], start=shift, device=ids.device)
    drawn = _draw(settings, ids, generator)
    return replace(drawn, index=drawn.index + shift, longest=None if drawn.longest is None else drawn.longest + shift)


def exam_generator(tokens: int) -> torch.Generator:
    """Give the random numbers of an exam: the same for every run, every shift and every scheme."""
    return torch.Generator().manual_seed(7_770_000 + tokens)


def _draw(settings: Settings, ids: Tensor, generator: torch.Generator) -> Positions:
    batch, tokens = ids.shape
    draw = randomized if settings.positions == "randomized" else random_offset
    return draw(tokens, settings.longest or 2 * tokens, batch, generator).to(ids.device)
