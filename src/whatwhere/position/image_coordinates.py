"""Coordinates of image patches and video frames, as plain tensors: centers of a grid, and those of M-RoPE."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from math import log
from typing import Literal

import torch
from jaxtyping import Bool, Float64, Int64, Integer
from torch import Tensor

from whatwhere.errors import PositionError, SettingError, ShapeError
from whatwhere.tensor_checks import as_whole

After = Literal["largest", "grid"]
AFTER: tuple[After, ...] = ("largest", "grid")
TEXT, IMAGE, VIDEO = 0, 1, 2
"""Types of tokens, as the `mm_token_type_ids` of Hugging Face's processors have them."""

_NAMES = {IMAGE: "image", VIDEO: "video"}


def grid_centers(sizes: Sequence[int], device: torch.device | str | None = None) -> Float64[Tensor, "axes tokens"]:
    """Return the centers of the cells of a grid that spans -1 to 1 on each axis, the last axis fastest.

    Args:
        sizes: cells along each axis.
        device: of the result.

    Examples:
        >>> grid_centers([1, 4])
        tensor([[ 0.0000,  0.0000,  0.0000,  0.0000],
                [-0.7500, -0.2500,  0.2500,  0.7500]], dtype=torch.float64)
    """
    lines = [(2 * torch.arange(n, dtype=torch.float64, device=device) + 1 - n) / n for n in sizes]
    return torch.stack([axis.flatten() for axis in torch.meshgrid(*lines, indexing="ij")])


def augmented(
    centers: Float64[Tensor, "axes tokens"],
    shift: float,
    jitter: float,
    rescale: float,
    batch: int,
    generator: torch.Generator | None = None,
) -> Float64[Tensor, "axes batch tokens"]:
    """Return coordinates shifted and rescaled at random, as in the training of DINOv3.

        (c + s_a) j_a r        s_a uniform in -shift..shift;  ln j_a in -ln jitter..ln jitter;  ln r likewise of rescale

    Args:
        centers: coordinates of a grid.
        shift: 0 or more; a shift is sampled for each axis.
        jitter, rescale: 1 or more; a factor is sampled for each axis, and one for all axes.
        batch: sequences, each with a sample of its own.
        generator: to sample with; None is PyTorch's global random state.

    Raises:
        SettingError: If a setting is out of range.

    Examples:
        >>> augmented(torch.ones(2, 1, dtype=torch.float64), 0.0, 1.0, 1.0, batch=1).flatten()
        tensor([1., 1.], dtype=torch.float64)
    """
    for name, value, least in (("shift", shift, 0), ("jitter", jitter, 1), ("rescale", rescale, 1)):
        if isinstance(value, bool) or not least <= value < float("inf"):
            raise SettingError(
                f"Positions.centered_grid got {name}={value!r}, but needs a finite number of at least {least}.\n"
                f"{least} is none."
            )
    device = centers.device if generator is None else generator.device

    def uniform(bound: float, columns: int) -> Tensor:
        numbers = torch.empty(batch, columns, device=device)  # float32, as theirs: one seed samples the same
        return numbers.uniform_(-bound, bound, generator=generator).to(centers.device, torch.float64)

    coordinates = centers.expand(batch, *centers.shape)  # (batch, axes, tokens)
    axes = len(centers)
    if shift:
        coordinates = coordinates + uniform(shift, axes)[..., None]
    if jitter > 1:
        coordinates = coordinates * uniform(log(jitter), axes).exp()[..., None]
    if rescale > 1:
        coordinates = coordinates * uniform(log(rescale), 1).exp()[..., None]
    return coordinates.movedim(0, 1)


def multimodal_coordinates(
    types: Integer[Tensor, "batch tokens"],
    real: Bool[Tensor, "batch tokens"],
    grids: dict[int, list[tuple[int, int, int]]],
    steps: Sequence[float],
    merge: int,
    per_second: float | None = None,
    whole: bool = True,
    after: After = "largest",
) -> Int64[Tensor, "3 batch tokens"] | Float64[Tensor, "3 batch tokens"]:
    """Return time, height and width of each token of sequences of text, images and videos; 0 at padding.

        text      t = h = w = n, n + 1, ...
        a grid    t = n + floor(frame step), h = n + row, w = n + column;  then n is the largest of all coordinates + 1

    With per_second, t = n + floor(frame step per_second).

    Args:
        types: 0 for text, 1 for tokens of images, 2 of videos.
        real: False at padding.
        grids: (frames, height, width) of the images and of the videos, in patches, in the order of the batch.
        steps: of the time coordinate between frames, for each video.
        merge: patches that make a token, along height and width.
        per_second: positions in a second, where steps are seconds; None where they are positions.
        whole: whether times are floored.
        after: `grid` goes on by the larger of rows and columns instead.

    Raises:
        PositionError: If grids and tokens do not match, or a type is none of these.
    """
    dtype = torch.int64 if whole else torch.float64
    index = torch.zeros(3, *types.shape, dtype=dtype)
    left = {kind: iter(grids[kind]) for kind in _NAMES}
    times = iter(steps)
    for row in range(types.shape[0]):
        slots = real[row].nonzero().flatten()
        parts, n = [torch.zeros(3, 0, dtype=dtype)], 0.0 if not whole else 0
        for kind, run in groupby(types[row, slots].tolist()):
            tokens = len(list(run))
            if kind == TEXT:
                parts.append((n + torch.arange(tokens, dtype=dtype)).expand(3, -1))
                n += tokens
                continue
            if kind not in _NAMES:
                raise PositionError(
                    f"token types are 0 (text), 1 (image) and 2 (video), but sequence {row} has {kind}.\n"
                    "Pass the mm_token_type_ids of the processor."
                )
            while tokens > 0:
                cells, rows_or_columns = _of_a_grid(kind, left[kind], times, merge, row, per_second, whole)
                part = n + cells
                parts.append(part)
                n = n + rows_or_columns if after == "grid" else part.max().item() + 1
                tokens -= part.shape[1]
            if tokens:
                raise PositionError(
                    f"sequence {row} ends a run of {_NAMES[kind]} tokens within a grid: {-tokens} tokens are missing.\n"
                    f"A grid (frames, height, width) has frames height width / merge ** 2 tokens, with merge={merge}."
                )
        index[:, row, slots] = torch.cat(parts, dim=1)
    for kind, name in _NAMES.items():
        if (unused := len(list(left[kind]))) > 0:
            raise PositionError(
                f"{unused} {name} grids are left over, without tokens of type {kind}.\n"
                "Pass the grids of these sequences only; videos whose frames are separate have one run for each frame: "
                "frames_apart=True."
            )
    return index


def _of_a_grid(
    kind: int,
    grids: Iterator[tuple[int, int, int]],
    times: Iterator[float],
    merge: int,
    row: int,
    per_second: float | None,
    whole: bool,
) -> tuple[Tensor, int]:
    """Return the coordinates (3, tokens) of the next image or video from 0 on, and the larger of rows and columns."""
    grid = next(grids, None)
    if grid is None:
        raise PositionError(
            f"sequence {row} has more {_NAMES[kind]} tokens than the {_NAMES[kind]} grids account for.\n"
            f"Pass one (frames, height, width) for each {_NAMES[kind]}, in patches."
        )
    step = next(times) if kind == VIDEO else 1.0
    frames, height, width = grid
    # In float32 and in this order, as the models compute it: a step such as 0.1 would floor otherwise in float64.
    time = torch.arange(frames) * torch.tensor(step, dtype=torch.float32) * (1 if per_second is None else per_second)
    dtype = torch.int64 if whole else torch.float64
    lines = (time.to(dtype), *(torch.arange(size // merge, dtype=dtype) for size in (height, width)))
    cells = torch.stack([axis.flatten() for axis in torch.meshgrid(*lines, indexing="ij")])
    return cells, max(height, width) // merge


def checked_grids(name: str, given: Integer[Tensor, "grids 3"] | None, merge: int) -> list[tuple[int, int, int]]:
    """Return grids as tuples, after checking them.

    Args:
        name: of the setting, for the error.
        given: (frames, height, width) of each, in patches; None is none.
        merge: by which height and width must divide.

    Raises:
        ShapeError: If it is not a table of three columns of whole numbers.
        PositionError: If a size is below 1, or does not divide by merge.

    Examples:
        >>> checked_grids("image_grids", torch.tensor([[1, 4, 6]]), merge=2)
        [(1, 4, 6)]
    """
    if given is None:
        return []
    if not isinstance(given, Tensor) or given.dim() != 2 or given.shape[1] != 3 or given.is_floating_point():
        raise ShapeError(
            f"{name} needs a tensor of whole numbers, (grids, 3), frames, height and width of each, but got {given!r}."
            "\nPass the image_grid_thw or video_grid_thw of the processor."
        )
    grids = [(int(t), int(h), int(w)) for t, h, w in given.tolist()]
    for frames, height, width in grids:
        if min(frames, height, width) < 1 or height % merge or width % merge:
            raise PositionError(
                f"{name} has the grid {(frames, height, width)}, but needs sizes of at least 1, of which height and "
                f"width divide by merge={merge}.\nPass merge= the model's spatial_merge_size."
            )
    return grids


def checked_steps(given: Sequence[float] | Tensor | float, videos: int) -> list[float]:
    """Return the step of the time coordinate of each video, after checking it.

    Args:
        given: one number for all, or one for each video; 0 or more.
        videos: how many.

    Raises:
        PositionError: If there is not one for each, or one is negative or not finite.

    Examples:
        >>> checked_steps(2.0, 2)
        [2.0, 2.0]
    """
    values = given.tolist() if isinstance(given, Tensor) else given
    steps = [float(values)] * videos if isinstance(values, int | float) else [float(step) for step in values]
    if len(steps) != videos or not all(0 <= step < float("inf") for step in steps):
        raise PositionError(
            f"time_steps={given!r} needs one finite number of at least 0, or one for each of the {videos} videos: how "
            "far the time coordinate goes on from frame to frame.\n"
            "For Qwen2.5-VL pass tokens_per_second * second_per_grid_ts."
        )
    return steps


def require_merge(merge: object) -> int:
    """Return merge as a number, or raise ShapeError unless it is a whole number of at least 1."""
    whole = as_whole(merge)
    if whole is None or whole < 1:
        raise ShapeError(f"Positions.multimodal got merge={merge!r}, but needs a whole number of at least 1.")
    return whole
