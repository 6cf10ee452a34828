"""Coordinates of image patches and video frames, as plain tensors: grids, centers of patches, and M-RoPE."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from math import log
from typing import Any, Literal, SupportsIndex

import torch
from jaxtyping import Bool, Float64, Int64, Integer
from torch import Tensor

from whatwhere.checks import require_choice, require_positive, require_whole
from whatwhere.errors import PositionError, SettingError, ShapeError
from whatwhere.position.coordinates import require_integral, require_mask, require_tensor
from whatwhere.tensor_checks import as_whole

After = Literal["largest", "grid"]
AFTER: tuple[After, ...] = ("largest", "grid")
Grid = tuple[int, int, int]  # frames, height and width of an image or video, in patches

_TEXT, _IMAGE, _VIDEO = 0, 1, 2  # types of tokens, as `mm_token_type_ids` of Hugging Face's processors have them
_NAMES = {_IMAGE: "image", _VIDEO: "video"}


def grid_sizes(name: str, sizes: Sequence[SupportsIndex]) -> list[int]:
    """Return the sizes of a grid as numbers; `name` is the constructor that the error names."""
    if not sizes:
        raise ShapeError(
            f"Positions.{name} got no size, but needs at least one.\nPass that of each axis: Positions.{name}(14, 14)."
        )
    whole: list[Any] = [size if (n := as_whole(size)) is None else n for size in sizes]
    require_whole(f"Positions.{name}", **{f"axis_{n}": size for n, size in enumerate(whole)})
    return whole


def on_grid(lines: Sequence[Tensor]) -> Tensor:
    """Return the coordinates (axes, tokens) of the cells of a grid of these lines, the last axis fastest."""
    return torch.stack([axis.flatten() for axis in torch.meshgrid(*lines, indexing="ij")])


def grid_centers(sizes: Sequence[int], device: torch.device | str | None = None) -> Float64[Tensor, "axes tokens"]:
    """Return the centers of the cells of a grid that spans -1 to 1 on each axis, the last axis fastest."""
    return on_grid([(2 * torch.arange(n, dtype=torch.float64, device=device) + 1 - n) / n for n in sizes])


def augmented(
    centers: Float64[Tensor, "axes tokens"],
    shift: float,
    jitter: float,
    rescale: float,
    batch: int,
    generator: torch.Generator | None,
) -> Float64[Tensor, "axes batch tokens"]:
    """Return coordinates shifted and rescaled at random, as in the training of DINOv3."""
    # (c + s_a) j_a r        s_a uniform in -shift..shift;  ln j_a in -ln jitter..ln jitter;  ln r likewise of rescale
    require_whole("Positions.centered_grid", batch=batch)
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


def token_types(
    types: Integer[Tensor, "*batch tokens"], mask: Tensor | None
) -> tuple[Integer[Tensor, "batch tokens"], Bool[Tensor, "batch tokens"]]:
    """Return the types of tokens, and which are real, on the CPU, after checking both."""
    require_tensor("token types", types, "types")
    require_integral(types)
    if types.dim() not in (1, 2):
        raise ShapeError(f"types need shape (tokens) or (batch, tokens), but have {tuple(types.shape)}.")
    rows = types.reshape(-1, types.shape[-1]).cpu()
    if mask is None:
        return rows, torch.ones_like(rows, dtype=torch.bool)
    require_tensor("a mask", mask, "mask")
    if mask.shape != types.shape:
        raise ShapeError(f"mask has shape {tuple(mask.shape)}, but types {tuple(types.shape)}: equal ones are needed.")
    require_mask(mask)
    return rows, mask.reshape(-1, mask.shape[-1]).bool().cpu()


def multimodal_coordinates(
    types: Integer[Tensor, "batch tokens"],
    real: Bool[Tensor, "batch tokens"],
    image_grids: Tensor | None,
    video_grids: Tensor | None,
    merge: SupportsIndex,
    time_steps: float | Sequence[float] | Tensor,
    frames_apart: bool,
    per_second: float | None,
    whole: bool,
    after: After,
) -> Int64[Tensor, "3 batch tokens"] | Float64[Tensor, "3 batch tokens"]:
    """Return time, height and width of each token of text, images and videos, 0 at padding: `Positions.multimodal`."""
    require_choice("Positions.multimodal", "after", after, AFTER)
    if per_second is not None:
        require_positive("Positions.multimodal", per_second=per_second)
    if (patches := as_whole(merge)) is None or patches < 1:
        raise ShapeError(f"Positions.multimodal got merge={merge!r}, but needs a whole number of at least 1.")
    images, videos = (
        _checked_grids("image_grids", image_grids, patches),
        _checked_grids("video_grids", video_grids, patches),
    )
    steps = _checked_steps(time_steps, len(videos))
    if frames_apart:  # each frame is a video of one
        steps = [step for step, (frames, _, _) in zip(steps, videos, strict=True) for _ in range(frames)]
        videos = [(1, height, width) for frames, height, width in videos for _ in range(frames)]

    dtype = torch.int64 if whole else torch.float64
    index = torch.zeros(3, *types.shape, dtype=dtype)
    left = {_IMAGE: iter([(grid, 1.0) for grid in images]), _VIDEO: iter(list(zip(videos, steps, strict=True)))}
    for row in range(types.shape[0]):
        slots = real[row].nonzero().flatten()
        parts, n = [torch.zeros(3, 0, dtype=dtype)], 0 if whole else 0.0
        for kind, run in groupby(types[row, slots].tolist()):
            tokens = len(list(run))
            if kind == _TEXT:
                parts.append((n + torch.arange(tokens, dtype=dtype)).expand(3, -1))
                n += tokens
                continue
            if kind not in _NAMES:
                raise PositionError(
                    f"token types are 0 (text), 1 (image) and 2 (video), but sequence {row} has {kind}.\n"
                    "Pass the mm_token_type_ids of the processor."
                )
            while tokens > 0:
                (frames, height, width), step = _next_grid(kind, left[kind], row)
                # In float32 and in this order, as the models compute it: a step such as 0.1 would floor otherwise.
                time = torch.arange(frames) * torch.tensor(step, dtype=torch.float32)
                time = time if per_second is None else time * per_second
                lines = (time, torch.arange(height // patches), torch.arange(width // patches))
                part = n + on_grid([line.to(dtype) for line in lines])
                parts.append(part)
                n = n + max(height, width) // patches if after == "grid" else part.max().item() + 1
                tokens -= part.shape[1]
            if tokens:
                raise PositionError(
                    f"sequence {row} ends a run of {_NAMES[kind]} tokens within a grid: {-tokens} tokens are missing.\n"
                    "A grid (frames, height, width) has frames height width / merge ** 2 tokens, with "
                    f"merge={patches}."
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


def _next_grid(kind: int, grids: Iterator[tuple[Grid, float]], row: int) -> tuple[Grid, float]:
    found = next(grids, None)
    if found is None:
        raise PositionError(
            f"sequence {row} has more {_NAMES[kind]} tokens than the {_NAMES[kind]} grids account for.\n"
            f"Pass one (frames, height, width) for each {_NAMES[kind]}, in patches."
        )
    return found


def _checked_grids(name: str, given: Tensor | None, merge: int) -> list[Grid]:
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


def _checked_steps(given: Sequence[float] | Tensor | float, videos: int) -> list[float]:
    values = given.tolist() if isinstance(given, Tensor) else given
    steps = [float(values)] * videos if isinstance(values, int | float) else [float(step) for step in values]
    if len(steps) != videos or not all(0 <= step < float("inf") for step in steps):
        raise PositionError(
            f"time_steps={given!r} needs one finite number of at least 0, or one for each of the {videos} videos: how "
            "far the time coordinate goes on from frame to frame.\n"
            "For Qwen2.5-VL pass tokens_per_second * second_per_grid_ts."
        )
    return steps
