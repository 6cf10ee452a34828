"""The constructors of positions of images and videos: grids, centers of patches, and M-RoPE."""

from collections.abc import Sequence
from math import pi
from typing import Any, SupportsIndex, TypeVar

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from whatwhere.checks import require_choice, require_positive, require_whole
from whatwhere.errors import ShapeError
from whatwhere.position.constructors import PositionConstructors
from whatwhere.position.coordinates import (
    end_of,
    require_count,
    require_integral,
    require_mask,
    require_tensor,
    slots_of,
)
from whatwhere.position.image_coordinates import (
    AFTER,
    After,
    augmented,
    checked_grids,
    checked_steps,
    grid_centers,
    multimodal_coordinates,
    require_merge,
)
from whatwhere.tensor_checks import as_whole

Made = TypeVar("Made", bound="ImagePositions")


class ImagePositions(PositionConstructors):
    """The constructors of positions of images and videos."""

    @classmethod
    def grid(cls: type[Made], *sizes: SupportsIndex, device: torch.device | str | None = None) -> Made:
        """Return positions on a grid, the last axis fastest: grid(height, width), grid(frames, height, width).

        Args:
            sizes: tokens along each axis, each at least 1; integers of any type.
            device: device of the positions.

        Raises:
            ShapeError: If there is no size, or one is not a whole number of at least 1.

        Examples:
            >>> from whatwhere import Positions
            >>> Positions.grid(2, 3).index[:, 0]
            tensor([[0, 0, 0, 1, 1, 1],
                    [0, 1, 2, 0, 1, 2]])
        """
        whole = _checked_sizes("grid", sizes)
        lines = [torch.arange(size, device=device) for size in whole]
        index = torch.stack([axis.flatten() for axis in torch.meshgrid(*lines, indexing="ij")])[:, None]
        return cls(index, slots_of(index), None, True, max(whole))

    @classmethod
    def centered_grid(
        cls: type[Made],
        *sizes: SupportsIndex,
        extent: float = 2 * pi,
        prefix: SupportsIndex = 0,
        shift: float = 0.0,
        jitter: float = 1.0,
        rescale: float = 1.0,
        batch: int = 1,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
    ) -> Made:
        """Return real coordinates of the centers of image patches, which span -extent to extent at every resolution.

            c = extent (2 (i + 0.5) / size - 1), then (c + s_a) j_a r with random numbers in training

        DINOv3 (Simeoni et al. 2025, https://arxiv.org/abs/2508.10104), whose angles are 2 pi c w: the default extent.
        So AxialRotary(head_dim, theta=100.0) on these is its encoding. In training it shifts and rescales them at
        random: rescale=2.0.

        Args:
            sizes: patches along each axis, each at least 1; integers of any type.
            extent: half the width of the grid in coordinates, above 0.
            prefix: tokens before the patches, such as CLS and registers, at 0 on all axes, where nothing is rotated.
            shift: a number is sampled from -shift..shift for each axis, as a part of half the width; 0 is none.
            jitter: a factor is sampled from 1/jitter..jitter for each axis, evenly in its logarithm; 1 is none.
            rescale: likewise one factor for all axes.
            batch: sequences, each with a sample of its own.
            generator: to sample with; None is PyTorch's global random state.
            device: device of the positions.

        Raises:
            ShapeError: If there is no size, or a size or batch is not a whole number of at least 1.
            SettingError: If extent, shift, jitter or rescale is out of range.
            PositionError: If prefix is not a whole number of at least 0.

        Examples:
            >>> from whatwhere import Positions
            >>> Positions.centered_grid(1, 2, extent=1.0, prefix=1).index[:, 0]
            tensor([[ 0.0000,  0.0000,  0.0000],
                    [ 0.0000, -0.5000,  0.5000]], dtype=torch.float64)
        """
        whole, before = _checked_sizes("centered_grid", sizes), require_count("prefix", prefix)
        require_whole("Positions.centered_grid", batch=batch)
        require_positive("Positions.centered_grid", extent=extent)
        centers = augmented(grid_centers(whole, device), shift, jitter, rescale, batch, generator)
        index = torch.nn.functional.pad(extent * centers, (before, 0))
        return cls(index, slots_of(index), None, True, None)

    @classmethod
    def multimodal(
        cls: type[Made],
        types: Integer[Tensor, "*batch tokens"],
        image_grids: Integer[Tensor, "images 3"] | None = None,
        video_grids: Integer[Tensor, "videos 3"] | None = None,
        *,
        mask: Bool[Tensor, "*batch tokens"] | Integer[Tensor, "*batch tokens"] | None = None,
        merge: SupportsIndex = 2,
        time_steps: float | Sequence[float] | Float[Tensor, " videos"] = 1.0,
        frames_apart: bool = False,
        per_second: float | None = None,
        real_times: bool = False,
        after: After = "largest",
    ) -> Made:
        """Return time, height and width of sequences of text, images and videos, for MultimodalRotary (M-RoPE).

            text      t = h = w = n, n + 1, ...
            a grid    t = n + floor(frame time_step), h = n + row, w = n + column
                      then n goes on from the largest coordinate so far, plus 1

        As the authors of Qwen2-VL, Qwen2.5-VL, Qwen3-VL and GLM-4V have it, and `get_rope_index` of transformers up to
        5.2; with per_second, as Qwen2.5-Omni and Qwen3-Omni, where sound is of type 0, as text (videos with interleaved
        sound are not supported). From 5.3 on transformers goes on by the larger of rows and columns, without time:
        after="grid", which differs behind videos (and images) that are longer in time than wide or high. To decode,
        append `p.next_text()`: the next token is at the largest coordinate so far, plus 1, on all axes (their
        `rope_deltas`, in all versions).

        Args:
            types: 0 for text, 1 for tokens of images, 2 for tokens of videos: the `mm_token_type_ids` of a processor,
                (tokens) or (batch, tokens).
            image_grids: frames, height and width of each image in patches (`image_grid_thw`), in the batch's order.
            video_grids: likewise of each video (`video_grid_thw`).
            mask: False (or 0) at padding; None is no padding.
            merge: patches that make a token along height and width (`spatial_merge_size`), which must divide both.
            time_steps: by which the time coordinate goes on from frame to frame, for all videos or for each: in
                Qwen2.5-VL tokens_per_second * second_per_grid_ts, else 1.
            frames_apart: whether each frame of a video is a run of its own between text, as in Qwen3-VL and GLM-4V,
                which write timestamps between them.
            per_second: positions in a second (`position_id_per_seconds`, 25 in Qwen2.5-Omni and Qwen3-Omni), where
                time_steps are the seconds of a frame.
            real_times: whether times keep their fractions, as in Qwen3-Omni, and so do all positions after them.
            after: what follows a grid goes on from the `largest` coordinate, or by the rows and columns of the `grid`.

        Raises:
            SettingError: If per_second is not above 0, or after is unknown.
            PositionError: If grids and tokens do not match, or types or the mask have other values.
            ShapeError: If types, mask or grids have other shapes.

        Examples:
            >>> from whatwhere import Positions
            >>> p = Positions.multimodal(torch.tensor([0, 1, 1, 0]), image_grids=torch.tensor([[1, 2, 4]]))
            >>> p.index[:, 0]
            tensor([[0, 1, 1, 3],
                    [0, 1, 1, 3],
                    [0, 1, 2, 3]])
        """
        require_tensor("token types", types, "types")
        require_integral(types)
        if types.dim() not in (1, 2):
            raise ShapeError(f"types need shape (tokens) or (batch, tokens), but have {tuple(types.shape)}.")
        require_choice("Positions.multimodal", "after", after, AFTER)
        rows = types.reshape(-1, types.shape[-1]).cpu()
        real = torch.ones_like(rows, dtype=torch.bool) if mask is None else _checked_mask(mask, types)
        patches = require_merge(merge)
        images, videos = (
            checked_grids(name, grids, patches)
            for name, grids in (("image_grids", image_grids), ("video_grids", video_grids))
        )
        steps = checked_steps(time_steps, len(videos))
        if frames_apart:
            steps = [step for step, (frames, _, _) in zip(steps, videos, strict=True) for _ in range(frames)]
            videos = [(1, height, width) for frames, height, width in videos for _ in range(frames)]
        if per_second is not None:
            require_positive("Positions.multimodal", per_second=per_second)
        grids = {1: images, 2: videos}
        index = multimodal_coordinates(rows, real, grids, steps, patches, per_second, not real_times, after)
        segment = None if bool(real.all()) else (real.long() - 1).to(types.device)
        max_length = None if real_times else end_of(index)
        index = index.to(types.device)
        return cls(index, slots_of(index), segment, segment is None, max_length)


def _checked_sizes(name: str, sizes: Sequence[SupportsIndex]) -> list[int]:
    """Return the sizes of a grid as numbers, after checking them."""
    if not sizes:
        raise ShapeError(
            f"Positions.{name} got no size, but needs at least one.\nPass that of each axis: Positions.{name}(14, 14)."
        )
    whole: list[Any] = [size if (n := as_whole(size)) is None else n for size in sizes]
    require_whole(f"Positions.{name}", **{f"axis_{n}": size for n, size in enumerate(whole)})
    return whole


def _checked_mask(mask: Tensor, types: Tensor) -> Bool[Tensor, "batch tokens"]:
    """Return the mask of real tokens as bool on the CPU, after checking it."""
    require_tensor("a mask", mask, "mask")
    if mask.shape != types.shape:
        raise ShapeError(f"mask has shape {tuple(mask.shape)}, but types {tuple(types.shape)}: equal ones are needed.")
    require_mask(mask)
    return mask.reshape(-1, mask.shape[-1]).bool().cpu()
