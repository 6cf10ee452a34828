"""`ww.caches.of`: caches of transformers hold what the model itself puts there for the tokens that are left."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor, nn
from transformers import cache_utils

import whatwhere as ww
from whatwhere.errors import CheckpointError, PositionError, RegimeWarning, SettingError, ShapeError

from ..models.tiny import built

T = 9
MODELS = (
    "llama", "bloom", "cohere", "deepseek_v2", "deepseek_v3", "gemma2", "glm", "gpt_neox", "gpt_oss", "gptj", "olmo2",
    "phi", "t5",
)  # fmt: skip


class Quantized(cache_utils.QuantizedLayer):  # type: ignore[no-untyped-call]
    """A layer that keeps its tensors as they are where another one quantizes them."""

    def _quantize(self, tensor: Tensor, axis: int) -> Tensor:  # type: ignore[override]
        return tensor.clone()

    def _dequantize(self, q_tensor: Tensor) -> Tensor:
        return q_tensor


def made(name: str, patched: bool = False, **settings: Any) -> Any:
    model = built(name, headed=True, **settings)
    if patched:
        ww.patch(model)
    return model


def tokens(n: int = T, batch: int = 1, seed: int = 0) -> Tensor:
    return torch.randint(2, 30, (batch, n), generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def read(model: Any, ids: Tensor, past: Any = None, **inputs: Any) -> Any:
    """Read tokens behind a cache, which by default keeps all keys, and return it and the logits."""
    past = hf.DynamicCache() if past is None else past
    out = model(input_ids=ids, past_key_values=past, use_cache=True, **inputs)
    return out.past_key_values, getattr(out, "logits", None)


def first_layer(past: Any) -> tuple[Tensor, Tensor]:
    n = int(past.get_seq_length())
    return past.layers[0].keys[:, :, :n], past.layers[0].values[:, :, :n]


def same(past: Any, other: Any, allowed: float = 1e-5) -> None:
    """The hidden vectors of the first layer know no positions: both must hold the same."""
    for x, y in zip(first_layer(past), first_layer(other), strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=allowed * max(1.0, float(y.abs().amax())))


@pytest.mark.every_nth(3)
@pytest.mark.parametrize("patched", [False, True], ids=["", "patched"])
@pytest.mark.parametrize("name", MODELS)
def test_keys_of_the_first_layer_are_those_of_the_tokens_that_are_left(name: str, patched: bool) -> None:
    if name == "t5":
        model = made(name, patched, decoder_start_token_id=0)
        encoded = model.get_encoder()(tokens(seed=3))
        with torch.no_grad():
            out = model(encoder_outputs=encoded, decoder_input_ids=tokens(), use_cache=True)
        with pytest.raises(SettingError, match="pass its self_attention_cache"):
            ww.caches.of(out.past_key_values, model)
        past = out.past_key_values.self_attention_cache
        assert ww.caches.of(past, model).drop(2, 5).positions.tokens == T - 3
        return
    model, ids, more = made(name, patched), tokens(), tokens(4, seed=2)
    past, _ = read(model, ids)
    cache = ww.caches.of(past, model)
    cache.drop(2, 5)
    kept = torch.cat([ids[:, :2], ids[:, 5:]], 1)
    fresh, _ = read(model, kept)
    same(past, fresh)
    cache.paste(ww.caches.of(read(model, more)[0], model))
    same(past, read(model, torch.cat([kept, more], 1))[0])
    cache.crop(3)
    same(past, read(model, kept[:, :3])[0])
    cache.shift(40)
    moved, _ = read(model, kept[:, :3], **_at(model, torch.arange(40, 43)[None]))
    same(past, moved)


def _at(model: Any, ids: Tensor) -> dict[str, Tensor]:
    return {} if model.config.model_type in ("bloom",) else {"position_ids": ids}


@pytest.mark.parametrize("name", ["llama", "deepseek_v3", "gemma2"])
def test_a_whole_model_does_not_notice_a_shift_nor_a_crop(name: str) -> None:
    model, ids = made(name), tokens(T + 2)
    past, _ = read(model, ids[:, :T])
    _, expected = read(model, ids)
    cache = ww.caches.of(past, model).crop(-2)
    _, y = read(model, ids[:, T - 2 : T], past)
    torch.testing.assert_close(y, expected[:, T - 2 : T], rtol=0, atol=1e-4)
    cache = ww.caches.of(past, model).shift(50)
    _, y = read(model, ids[:, T:], past, position_ids=cache.next(2).index[0])
    torch.testing.assert_close(y, expected[:, T:], rtol=0, atol=1e-4)


def test_bfloat16() -> None:
    model = made("deepseek_v3").to(torch.bfloat16)
    past, _ = read(model, tokens())
    ww.caches.of(past, model).drop(0, 4)
    same(past, read(model, tokens()[:, 4:])[0], allowed=2**-6)


def caches() -> dict[str, tuple[str, Callable[[Any], Any], float]]:
    """Return kinds of caches with a model that has them, and what they round."""
    return {
        "static": ("llama", lambda c: hf.StaticCache(config=c, max_cache_len=20), 1e-5),
        "static and sliding": ("gemma2", lambda c: hf.StaticCache(config=c, max_cache_len=20), 1e-5),
        "sliding": ("mistral", lambda c: hf.DynamicCache(config=c), 1e-5),
        "quantized": ("llama", lambda c: cache_utils.Cache(
            layers=[Quantized(residual_length=4) for _ in range(c.num_hidden_layers)]), 1e-5),
        "fp8": ("llama", lambda c: hf.QuantizedCache("fp8", c), 0.1),
    }  # fmt: skip


def logits_after(model: Any, past: Any, ids: Tensor) -> Tensor:
    return torch.cat([read(model, each, past)[1] for each in ids.split(1, dim=1)], 1)


@pytest.mark.parametrize("kind", caches())
def test_a_cache_of_each_kind_goes_on_as_one_that_keeps_all_keys(kind: str) -> None:
    """Read four tokens of a window of five, drop one, and decode beyond the window."""
    name, make, allowed = caches()[kind]
    model, ids, later = made(name), tokens(4), tokens(5, seed=4)
    pasts = [read(model, ids, make(model.config))[0], read(model, ids)[0]]
    for past in pasts:
        read(model, later[:, :1], past) if "sliding" not in kind else None
        ww.caches.of(past, model).drop(1, 2)
    ours, plain = (logits_after(model, past, later[:, 1:]) for past in pasts)
    torch.testing.assert_close(ours, plain, rtol=0, atol=max(1e-4, 10 * allowed))


@pytest.mark.parametrize("kind", ["sliding", "static and sliding"])
def test_what_a_window_has_forgotten_is_not_made_up(kind: str) -> None:
    name, make, _ = caches()[kind]
    model, ids = made(name), tokens(12)
    past, _ = read(model, ids, make(model.config))
    before = [layer.keys.clone() for layer in past.layers]
    cache = ww.caches.of(past, model)
    with pytest.raises(SettingError, match="drop would bring keys into the window"):
        cache.drop(0, 2)
    with pytest.raises(PositionError, match="forgotten"):
        cache.crop(-1)
    assert all(torch.equal(layer.keys, kept) for layer, kept in zip(past.layers, before, strict=True))
    whole, _ = read(model, ids)
    later = tokens(3, seed=6)
    expected = logits_after(model, whole, later)
    shifted = ww.caches.of(past, model).shift(20)
    ys = [read(model, later[:, t : t + 1], past, position_ids=torch.tensor([[32 + t]]))[1] for t in range(3)]
    assert shifted.positions.tokens == 12
    torch.testing.assert_close(torch.cat(ys, 1), expected, rtol=0, atol=1e-4)


def test_drafts_are_rejected_in_a_sliding_cache_that_records_its_past() -> None:
    model, ids = made("mistral"), tokens(12)
    past = hf.DynamicCache(config=model.config)
    past.activate_past_recording()  # type: ignore[no-untyped-call]
    read(model, ids[:, :8], past)
    read(model, tokens(3, seed=9), past)
    ww.caches.of(past, model).crop(8)
    ys = logits_after(model, past, ids[:, 8:])
    torch.testing.assert_close(ys, read(model, ids)[1][:, 8:], rtol=0, atol=1e-4)


def test_prefixes_are_joined_in_sliding_caches() -> None:
    """The first one is exact for the whole model; here the first layer of both."""
    model, parts = made("mistral"), [tokens(8, seed=n) for n in (1, 2)]
    pasts = [read(model, part, hf.DynamicCache(config=model.config))[0] for part in parts]
    ww.caches.of(pasts[0], model).paste(ww.caches.of(pasts[1], model))
    same(pasts[0], read(model, torch.cat(parts, 1), hf.DynamicCache(config=model.config))[0])
    assert pasts[0].get_seq_length() == 16


def test_images() -> None:
    model = made("qwen2_vl_text")
    types = torch.tensor([0, 0, 1, 1, 1, 1, 0, 0, 0])
    p = ww.Positions.multimodal(types, image_grids=torch.tensor([[1, 4, 4]]))
    past, _ = read(model, tokens(), position_ids=p.index)
    cache = ww.caches.of(past, model, positions=p).drop(1, 6)
    same(past, read(model, torch.cat([tokens()[:, :1], tokens()[:, 6:]], 1))[0])
    assert cache.positions.index[:, 0].tolist() == [[0, 1, 2, 3]] * 3


def test_left_padded_rows() -> None:
    model, ids = made("llama"), tokens(batch=2)
    mask = torch.ones_like(ids)
    mask[0, :3] = 0
    p = ww.Positions.from_mask(mask)
    inputs = {"attention_mask": mask, "position_ids": p.index[0]}
    past, _ = read(model, ids, **inputs)
    cache = ww.caches.of(past, model, positions=p).drop(4, 6)
    kept = [0, 1, 2, 3, 6, 7, 8]
    q = ww.Positions.from_mask(mask[:, kept])
    fresh, _ = read(model, ids[:, kept], attention_mask=mask[:, kept], position_ids=q.index[0])
    real = mask[:, kept].bool()
    for x, y in zip(first_layer(past), first_layer(fresh), strict=True):
        torch.testing.assert_close(x.movedim(1, 2)[real], y.movedim(1, 2)[real], rtol=0, atol=1e-5)
    assert torch.equal(cache.next().index, q.next().index)
    cache.select([1])
    assert past.layers[0].keys.shape[0] == 1


LONG = {
    "rope_type": "longrope", "rope_theta": 10_000.0, "short_factor": [1.0] * 8,
    "long_factor": [1.0 + n for n in range(8)], "factor": 4.0, "original_max_position_embeddings": 8,
}  # fmt: skip


def long_model() -> Any:
    return made("phi3", rope_parameters=dict(LONG), original_max_position_embeddings=8, max_position_embeddings=32)


def test_keys_follow_longrope_beyond_its_trained_length() -> None:
    model, ids = long_model(), tokens(9)
    past, _ = read(model, ids[:, :8])
    cache = ww.caches.of(past, model).regime(9)
    whole, _ = read(model, ids)
    for x, y in zip(first_layer(past), first_layer(whole), strict=True):
        torch.testing.assert_close(x, y[:, :, :8], rtol=0, atol=1e-5)
    assert cache.positions.tokens == 8
    with pytest.raises(SettingError, match="does not record for which length"):
        ww.caches.of(whole, model)
    ww.caches.of(whole, model, regime_length=9).drop(2, 4)
    assert whole.get_seq_length() == 7


def test_a_patched_model_warns_when_it_crosses_that_length() -> None:
    model, ids = long_model(), tokens(9)
    with ww.patch(model), pytest.warns(RegimeWarning, match="trained on 8 tokens"):
        logits_after(model, read(model, ids[:, :7])[0], ids[:, 7:])
    with ww.patch(model, regime_length=9):
        past, _ = read(model, ids[:, :7])
        logits_after(model, past, ids[:, 7:])
        ww.caches.of(past, model).drop(2, 4)
        same(past, read(model, torch.cat([ids[:, :2], ids[:, 4:]], 1))[0])


def _lies(model: Any) -> Any:
    with torch.no_grad():
        model.model.rotary_emb.inv_freq *= 2
    return model


class _Without(nn.Module):
    """A model that takes no position ids."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.config, self.device = model, model.config, torch.device("cpu")

    def forward(self, input_ids: Tensor, **inputs: Any) -> Any:
        return self.model(input_ids, **inputs)


REFUSED: dict[str, tuple[type[Exception], str, Callable[[], object]]] = {
    "empty": (SettingError, "this cache is empty", lambda: ww.caches.of(hf.DynamicCache(), made("llama"))),
    "other frequencies": (
        CheckpointError, "not rotated as its configuration states",
        lambda: ww.caches.of(read(made("llama"), tokens())[0], _lies(made("llama"))),
    ),
    "no positions": (
        CheckpointError, "takes no position_ids",
        lambda: ww.caches.of(read(made("llama"), tokens())[0], _Without(made("llama"))),
    ),
    "number of positions": (
        ShapeError, "has 9 tokens, but 4 positions",
        lambda: ww.caches.of(read(made("llama"), tokens())[0], made("llama"), positions=ww.positions(4)),
    ),
    "states": (
        SettingError, "more than keys and values",
        lambda: ww.caches.of(read(m := made("jamba"), tokens(), hf.DynamicCache(config=m.config))[0], m),
    ),
    "learned positions": (
        SettingError, "Learned is added to the token vectors",
        lambda: ww.caches.of(read(made("gpt2"), tokens())[0], made("gpt2")).crop(-2).shift(1),
    ),
    "crop": (
        PositionError, "the text has 9 tokens",
        lambda: ww.caches.of(read(made("llama"), tokens())[0], made("llama")).crop(10),
    ),
    "room": (
        ShapeError, "room for 10",
        lambda: ww.caches.of(read(m := made("llama"), tokens(), hf.StaticCache(m.config, max_cache_len=10))[0], m)
        .paste(ww.caches.of(read(m, tokens(4))[0], m)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_exact_is_refused(name: str) -> None:
    kind, words, act = REFUSED[name]
    with pytest.raises(kind) as caught:
        act()
    assert words in str(caught.value)


def test_a_model_is_measured_without_dropout_and_left_as_it_was() -> None:
    model = made("llama", attention_dropout=0.5).train()
    model.lm_head.eval()
    past, _ = read(model, tokens())
    ww.caches.of(past, model)
    assert model.training
    assert not model.lm_head.training
