"""M-RoPE's positions equal `get_rope_index` of transformers' models of images and videos, and their authors' rule.

Transformers up to 5.2 has the authors' rule; from 5.3 on text goes on behind a grid without its time (after="grid").
"""

from itertools import product, repeat
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.models.glm4v.modeling_glm4v import Glm4vModel
from transformers.models.qwen2_5_omni.modeling_qwen2_5_omni import Qwen2_5OmniThinkerForConditionalGeneration
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLModel
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLModel
from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import Qwen3OmniMoeThinkerForConditionalGeneration
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLModel

import whatwhere as ww

MODELS: dict[str, type] = {
    "qwen2_vl": Qwen2VLModel, "qwen2_5_vl": Qwen2_5_VLModel, "qwen3_vl": Qwen3VLModel, "glm4v": Glm4vModel,
}  # fmt: skip
PER_SECOND = 2
SEEDS = range(8)


def model(name: str) -> Any:
    """Return what the model's methods read of it, without its weights."""
    vision = SimpleNamespace(spatial_merge_size=2, tokens_per_second=PER_SECOND)
    kind = MODELS[name]
    one = kind.__new__(kind)
    torch.nn.Module.__init__(one)
    one.config, one.rope_deltas = SimpleNamespace(vision_config=vision), None
    return one


class Mixture:
    """Sequences of text, images and videos, sampled at random, padded on the left."""

    def __init__(self, seed: int, frames_apart: bool) -> None:
        generator = torch.Generator().manual_seed(seed)

        def number(low: int, high: int) -> int:
            return int(torch.randint(low, high, (), generator=generator))

        self.images, self.videos, rows = [], [], []
        for _ in range(3):
            row = [0] * number(1, 5)
            for _ in range(number(0, 5)):
                kind, height, width = number(1, 3), 2 * number(1, 4), 2 * number(1, 4)
                frames = number(1, 6) if kind == 2 else 1
                (self.videos if kind == 2 else self.images).append((frames, height, width))
                tokens = height * width // 4
                runs = [tokens] * frames if kind == 2 and frames_apart else [tokens * frames]
                for run in runs:
                    row += [kind] * run + [0] * number(1, 6)
            rows.append(row)
        self.steps = [0.25 * number(1, 9) for _ in self.videos]
        longest = max(map(len, rows)) + number(0, 2)
        self.types = torch.tensor([[0] * (longest - len(row)) + row for row in rows])
        self.mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])

    def grids(self, of: list[tuple[int, int, int]]) -> Tensor | None:
        """Return grids as the processors do."""
        return torch.tensor(of) if of else None


def both(name: str, seed: int) -> tuple[ww.Positions, Tensor, Tensor, Mixture]:
    """Return our positions of a mixture, and theirs with their deltas."""
    apart = name in ("qwen3_vl", "glm4v")
    given = Mixture(seed, apart)
    images, videos = given.grids(given.images), given.grids(given.videos)
    seconds = {"second_per_grid_ts": torch.tensor(given.steps)} if name == "qwen2_5_vl" else {}
    theirs, deltas = model(name).get_rope_index(
        given.types, given.types, images, videos, attention_mask=given.mask, **seconds
    )
    steps: Any = [PER_SECOND * step for step in given.steps] if name == "qwen2_5_vl" else 1.0
    ours = ww.Positions.multimodal(
        given.types, images, videos, mask=given.mask, time_steps=steps, frames_apart=apart, after="grid"
    )
    return ours, theirs, deltas, given


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("seed", SEEDS)
def test_random_mixtures(seed: int, name: str) -> None:
    """Of three sequences of text, images and videos, with padding on the left."""
    ours, theirs, _, given = both(name, seed)
    assert torch.equal(ours.index, theirs)
    assert ours.max_length == int(theirs.max()) + 1
    if bool(given.mask.all()):
        assert ours.segment is None
    else:
        assert torch.equal(ours.segment, given.mask - 1)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("seed", SEEDS)
def test_decoding_goes_on_by_the_delta(seed: int, name: str) -> None:
    """Their position in decoding: tokens so far, plus the delta of the prompt."""
    p, _, deltas, given = both(name, seed)
    one, mask = model(name), given.mask
    one.rope_deltas = deltas
    for _ in range(3):
        mask = torch.cat([mask, torch.ones(3, 1, dtype=torch.long)], dim=1)
        cache = SimpleNamespace(get_seq_length=lambda n=p.tokens: n)
        nothing = dict.fromkeys(("input_ids", "image_grid_thw", "video_grid_thw"))
        whole = torch.zeros(3, mask.shape[1], 1)
        theirs = one.compute_3d_position_ids(**nothing, inputs_embeds=whole, attention_mask=mask, past_key_values=cache)
        step = p.next_text()
        p = p.append(step)
        assert torch.equal(step.index, theirs[:, :, -1:])


def by_the_authors(types: list[int], grids: dict[int, Any]) -> list[list[int]]:
    """Return the coordinates of tokens: what follows begins at the largest coordinate so far, plus 1."""
    found: list[list[int]] = []
    while len(found) < len(types):
        first = 1 + max((number for token in found for number in token), default=-1)
        frames, height, width, step = next(grids[types[len(found)]])
        cells = product(range(frames), range(height // 2), range(width // 2))
        found += [[first + int(t * step), first + h, first + w] for t, h, w in cells]
    return found


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_random_mixtures_by_the_rule_of_the_authors(seed: int, apart: bool) -> None:
    given = Mixture(seed, apart)
    images, videos = given.grids(given.images), given.grids(given.videos)
    steps = [2 * step for step in given.steps]
    ours = ww.Positions.multimodal(given.types, images, videos, mask=given.mask, time_steps=steps, frames_apart=apart)
    runs = [grid if not apart else (1, *grid[1:]) for grid in given.videos for _ in range(grid[0] if apart else 1)]
    of_videos = [] if apart else steps
    grids: dict[int, Any] = {
        0: repeat((1, 2, 2, 1)),
        1: iter([(*grid, 1) for grid in given.images]),
        2: iter([(*grid, step) for grid, step in zip(runs, of_videos or [1] * len(runs), strict=True)]),
    }
    after = ours.next_text(2).index
    for row, (types, real) in enumerate(zip(given.types, given.mask.bool(), strict=True)):
        expected = by_the_authors(types[real].tolist(), grids)
        assert ours.index[:, row, real].T.tolist() == expected
        largest = max(map(max, expected))
        assert after[:, row].tolist() == [[largest + 1, largest + 2]] * 3


OMNI: dict[str, type] = {
    "qwen2_5_omni": Qwen2_5OmniThinkerForConditionalGeneration,
    "qwen3_omni": Qwen3OmniMoeThinkerForConditionalGeneration,
}
IMAGE, VIDEO, AUDIO, START, END, AUDIO_START, AUDIO_END = range(101, 108)


def omni(name: str, per_second: float) -> Any:
    """Return what the method reads of a model of images, videos and sound."""
    kind = OMNI[name]
    one = kind.__new__(kind)
    torch.nn.Module.__init__(one)
    one.spatial_merge_size = 2
    one.config = SimpleNamespace(
        image_token_id=IMAGE, video_token_id=VIDEO, audio_token_id=AUDIO, vision_start_token_id=START,
        audio_start_token_id=AUDIO_START, position_id_per_seconds=per_second, seconds_per_chunk=2,
        audio_config=SimpleNamespace(n_window=50),
    )  # fmt: skip
    return one


def omni_row(generator: torch.Generator) -> tuple[list[int], list[tuple[int, ...]], list[tuple[int, ...]], list[int]]:
    """Return the ids of a sequence, the grids of its images and videos, and the lengths of its sounds."""

    def number(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=generator))

    ids, images, videos, sounds = [7] * number(1, 5), [], [], []
    for _ in range(number(1, 6)):
        kind, height, width = number(0, 3), 2 * number(1, 4), 2 * number(1, 4)
        if kind == 2:
            sounds.append(8)  # of spectrogram frames: two tokens, in both models' own formula of theirs
            ids += [AUDIO_START, AUDIO, AUDIO, AUDIO_END]
        else:
            frames = number(1, 6) if kind else 1
            (videos if kind else images).append((frames, height, width))
            ids += [START, *[VIDEO if kind else IMAGE] * (frames * height * width // 4), END]
        ids += [7] * number(1, 5)
    return ids, images, videos, sounds


@pytest.mark.parametrize("name", OMNI)
@pytest.mark.parametrize("seed", SEEDS)
def test_seconds_of_video(seed: int, name: str) -> None:
    """Sequences of text, sounds, images and videos, whose times are seconds: floored, or with their fractions."""
    generator = torch.Generator().manual_seed(seed)
    rows, images, videos, sounds = zip(*(omni_row(generator) for _ in range(3)), strict=True)
    longest = max(map(len, rows))
    ids = torch.tensor([[0] * (longest - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
    grids = [
        torch.tensor([grid for row in of for grid in row], dtype=torch.int64).view(-1, 3) for of in (images, videos)
    ]
    whole = name == "qwen2_5_omni"
    # Fractions of the first are such that an order of multiplication matters; those of the second are exact.
    seconds = torch.rand(len(grids[1]), generator=generator) if whole else torch.arange(1, 1 + len(grids[1])) / 8
    heard = torch.tensor([sound for row in sounds for sound in row])
    per_second, heard = (25.0, heard) if whole else (2.0, heard + 8)
    one = omni(name, per_second)
    theirs, _ = one.get_rope_index(ids, *grids, mask, False, heard, seconds)
    types = (ids == IMAGE) + 2 * (ids == VIDEO)
    ours = ww.Positions.multimodal(
        types, *grids, mask=mask, time_steps=seconds, per_second=per_second, real_times=not whole
    )
    real = mask.bool()
    torch.testing.assert_close(ours.index[:, real], theirs[:, real].to(ours.index.dtype), rtol=0, atol=0)
    assert whole != ours.index.is_floating_point()
    after = theirs.masked_fill(~real, 0).amax((0, 2)) + 1
    assert torch.equal(ours.next_text().index[:, :, 0], after.expand(3, -1).to(ours.index.dtype))


def test_times_that_keep_their_fractions() -> None:
    given = {"types": torch.tensor([0, 2, 2, 0]), "video_grids": torch.tensor([[2, 2, 2]]), "time_steps": 0.75}
    real = ww.Positions.multimodal(**given, per_second=2.0, real_times=True)
    assert real.index[0, 0].tolist() == [0, 1, 2.5, 3.5]
    assert ww.Positions.multimodal(**given, per_second=2.0).index[0, 0].tolist() == [0, 1, 2, 3]
    with pytest.raises(ww.errors.SettingError, match=r"per_second=0\.0"):
        ww.Positions.multimodal(**given, per_second=0.0)


@pytest.mark.usefixtures("our_own_checks")
@pytest.mark.parametrize(
    ("grid", "step", "text", "by_the_grid"),
    [
        ((3, 4, 4), 50.0, 101, 2),  # the example of Qwen2.5-VL's docstring: times 0, 50, 100
        ((8, 4, 4), 1.0, 8, 2),  # Qwen2-VL
        ((8, 4, 4), 0.25, 2, 2),  # times 0 and 1
        ((2, 4, 12), 1.0, 6, 6),  # wider than long
    ],
)
def test_text_behind_a_long_video(grid: tuple[int, int, int], step: float, text: int, by_the_grid: int) -> None:
    """A next token by decoding is where a token in the prompt would have been; only transformers says otherwise."""
    number, grids = grid[0] * grid[1] * grid[2] // 4, torch.tensor([grid])
    types = torch.tensor([2] * number + [0] * 3)
    p = ww.Positions.multimodal(types, video_grids=grids, time_steps=step)
    assert p.index[:, 0, -3:].tolist() == [[text, text + 1, text + 2]] * 3
    assert torch.equal(
        ww.Positions.multimodal(types[:-3], None, grids, time_steps=step).next_text(3).index, p[-3:].index
    )
    q = ww.Positions.multimodal(types, video_grids=grids, time_steps=step, after="grid")
    assert q.index[:, 0, -3:].tolist() == [[by_the_grid, by_the_grid + 1, by_the_grid + 2]] * 3
    image = ww.Positions.multimodal(torch.tensor([1] * number + [0]), grids)
    assert image.index[0, 0, -1] == max(grid[0], grid[1] // 2, grid[2] // 2)
    with pytest.raises(ww.errors.SettingError, match="after='frames'"):
        ww.Positions.multimodal(types, video_grids=grids, after="frames")  # type: ignore[arg-type]


def test_the_position_is_not_the_slot() -> None:
    """An image of 8 by 12 patches has 24 tokens, and the text after it is 6 positions on."""
    types = torch.tensor([0, *[1] * 24, 0, 0])
    p = ww.Positions.multimodal(types, torch.tensor([[1, 8, 12]]))
    assert p.index[:, 0, -2:].tolist() == [[7, 8]] * 3
    assert p.next_text().index.flatten().tolist() == [9, 9, 9]
