"""Positions that are counted from the padding id: no surgery moves them, on files or live."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import AdamW

from whatwhere.errors import CheckpointError, SettingError, TokenError
from whatwhere.models.configuration.model_types import MODEL_TYPES
from whatwhere.surgery import Report, move_to_tokenizer, trim_checkpoint
from whatwhere.what.resizing import keep, resize
from whatwhere.what.token_ids import FIXED_AFTER_PADDING, LEARNED_AFTER_PADDING

from ..models.checkpoint.forms import VOCABULARY
from ..models.tiny import config_of, model_of
from .conftest import EVERY_WORD, json_of, loaded, old_ids, save_tokenizer, tensor

SPECIAL: dict[str, Any] = {"pad_token_id": 1, "bos_token_id": 5, "eos_token_id": 6}  # CamemBERT's order
MORE: dict[str, dict[str, Any]] = {
    "esm": {
        "vocab_size": VOCABULARY, "mask_token_id": 7, "position_embedding_type": "absolute", "token_dropout": False,
    },
    "layoutlmv3": {
        "visual_embed": False, "coordinate_size": 12, "shape_size": 8, "max_2d_position_embeddings": 64,
        "rel_pos_bins": 8, "rel_2d_pos_bins": 8,
    },
    "lilt": {"hidden_size": 48, "channel_shrink_ratio": 4, "max_2d_position_embeddings": 64},
    "longformer": {"attention_window": 8, "sep_token_id": 6},
    "luke": {"entity_vocab_size": 9, "entity_emb_size": 16},
    "m2m_100": {"decoder_start_token_id": 6},
    "markuplm": {"xpath_unit_hidden_size": 8},
    "nllb-moe": {"decoder_start_token_id": 6},
    "prophetnet": {
        "num_encoder_layers": 1, "num_decoder_layers": 1, "num_encoder_attention_heads": 4,
        "num_decoder_attention_heads": 4, "decoder_start_token_id": 5,
    },
    "xmod": {"default_language": "en_XX", "languages": ["en_XX"]},
}  # fmt: skip
LEARNED = [
    "roberta", "camembert", "xlm-roberta", "xlm-roberta-xl", "roberta-prelayernorm", "data2vec-text", "longformer",
    "luke", "esm", "ibert", "xmod", "lilt", "markuplm", "layoutlmv3", "prophetnet",
]  # fmt: skip
FIXED = ["m2m_100", "nllb-moe", "mpnet", "xglm"]
KEPT, TEXT = [9, 11, 12, 20], [9, 11, 20, 9, 12, 11]
LONGEST = TEXT * 8


def made(model_type: str) -> nn.Module:
    """Make a model whose tables are large, so that a shifted position is far from what it was."""
    torch.manual_seed(0)
    model = model_of(config_of(model_type, **{**SPECIAL, **MORE.get(model_type, {})}))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed" in name:
                nn.init.normal_(parameter)
    return model


def answers(model: nn.Module, ids: list[int]) -> Tensor:
    batch = torch.tensor([ids])
    more: dict[str, Tensor] = {"decoder_input_ids": batch.flip(1)} if model.config.is_encoder_decoder else {}
    if model.config.model_type in ("layoutlmv3", "lilt"):
        more["bbox"] = torch.zeros(1, len(ids), 4, dtype=torch.int64)
    with torch.no_grad():
        result = model(input_ids=batch, **more)
    logits = getattr(result, "logits", None)
    return result[0] if logits is None else logits


def same(after: Tensor, before: Tensor, old: list[int]) -> bool:
    before = before[..., old] if before.shape[-1] == VOCABULARY else before
    return torch.allclose(after, before, rtol=0, atol=1e-5 * float(before.abs().max()))


@pytest.mark.parametrize("model_type", [*LEARNED, *FIXED])
def test_trim_keeps_positions(tmp_path: Path, model_type: str) -> None:
    """Token 0 is neither special nor wanted, and stays for the sake of the padding token behind it."""
    model = made(model_type)
    model.save_pretrained(tmp_path / "model")
    trim_checkpoint(tmp_path / "model", tmp_path / "out", keep_ids=KEPT)
    old = old_ids(tmp_path / "out")
    assert old[:2] == [0, 1]
    assert len(old) < 12
    after = loaded(tmp_path / "out", model)
    assert (after.config.pad_token_id, after.config.bos_token_id) == (1, old.index(5))
    assert same(answers(after, [old.index(n) for n in TEXT]), answers(model, TEXT), old)


def save_with_tokenizer(model: nn.Module, folder: Path) -> None:
    model.save_pretrained(folder)
    save_tokenizer(folder, EVERY_WORD)


def reordered(folder: Path, first: list[int]) -> tuple[Path, list[int]]:
    """Write a tokenizer with the same words, some ids of which come first, and return the new id of each."""
    order = [*first, *(n for n in range(VOCABULARY) if n not in first)]
    save_tokenizer(folder, [f"w{n}" for n in order])
    return folder, [order.index(n) for n in range(VOCABULARY)]


def require_moved(model: nn.Module, folder: Path, first: list[int]) -> tuple[Any, Report, list[int]]:
    """Move a saved model to a tokenizer with its words in another order; check that all texts are answered as before.

    Returns:
        The model that was loaded, the report, and the new id of each word.
    """
    other, new = reordered(folder / "reordered", first)
    report = move_to_tokenizer(folder / "model", folder / "moved", other)
    after = loaded(folder / "moved", model)
    result = answers(after, [new[n] for n in LONGEST])
    result = result[..., new] if result.shape[-1] == VOCABULARY else result
    assert same(result, answers(model, LONGEST), [*range(VOCABULARY)])
    return after, report, new


@pytest.mark.every_nth(3)
@pytest.mark.parametrize("model_type", LEARNED)
@pytest.mark.parametrize("first", [[0, 3, 2, 4, 1], [1, 0]])
def test_another_tokenizer_moves_the_position_table(tmp_path: Path, model_type: str, first: list[int]) -> None:
    model = made(model_type)
    save_with_tokenizer(model, tmp_path / "model")
    after, report, new = require_moved(model, tmp_path, first)
    assert after.config.pad_token_id == new[1] == first.index(1)
    shift = new[1] - 1
    assert after.config.max_position_embeddings == 64 + shift
    assert any(f"shifted by {shift} rows" in one.what for one in report.changed)


def test_position_ids_of_older_files_are_counted_anew(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    made("roberta").save_pretrained(folder := tmp_path / "model")
    state = load_file(folder / "model.safetensors")
    state["roberta.embeddings.position_ids"] = torch.arange(64)[None]
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    save_tokenizer(folder, EVERY_WORD)
    move_to_tokenizer(folder, tmp_path / "out", reordered(tmp_path / "other", [3, 4, 5, 1])[0])
    assert torch.equal(tensor(tmp_path / "out", "roberta.embeddings.position_ids"), torch.arange(66)[None])


@pytest.mark.parametrize("model_type", FIXED)
def test_positions_without_a_table_cannot_move(tmp_path: Path, model_type: str, our_own_checks: None) -> None:
    model = made(model_type)
    save_with_tokenizer(model, tmp_path / "model")
    other, _ = reordered(tmp_path / "other", [0, 3, 2, 4, 1])
    with pytest.raises(TokenError, match="pad_token_id would become 4 instead of 1"):
        move_to_tokenizer(tmp_path / "model", tmp_path / "out", other)
    assert not (tmp_path / "out").exists()
    require_moved(model, tmp_path, [3, 1, 2])
    before = answers(model, TEXT)
    with pytest.raises(TokenError, match=r"pad_token_id would become 2 instead of 1.*\nPass ids with 1 at index 1"):
        keep(model, [9, 11, 1, 5, 6, 12, 20, 2])
    assert torch.equal(answers(model, TEXT), before)
    order = [9, 1, 11, 5, 6, 12, 20, 2]
    keep(model, order)
    assert same(answers(model, [order.index(n) for n in TEXT]), before, order)


def test_a_tokenizer_without_padding_is_refused(tmp_path: Path) -> None:
    save_with_tokenizer(made("roberta"), tmp_path / "model")
    save_tokenizer(tmp_path / "other", ["w0", "w3", "<pad>", "w4"])
    with pytest.raises(CheckpointError, match="has no padding token that is known"):
        move_to_tokenizer(tmp_path / "model", tmp_path / "out", tmp_path / "other")
    (tmp_path / "other" / "tokenizer_config.json").write_text('{"pad_token": {"content": "<pad>"}}')
    move_to_tokenizer(tmp_path / "model", tmp_path / "out", tmp_path / "other")
    assert json_of(tmp_path / "out")["pad_token_id"] == 2


@pytest.mark.parametrize("model_type", [name for name in LEARNED if name != "ibert"])
def test_live_tables_of_positions_move_with_the_padding(tmp_path: Path, model_type: str) -> None:
    model = made(model_type)
    before = answers(model, TEXT)
    order = [9, 11, 12, 1, 5, 6, 20, 0]
    keep(model, order)
    config = model.config
    assert (config.pad_token_id, config.bos_token_id, config.eos_token_id) == (3, 4, 5)
    assert config.max_position_embeddings == 66
    new = [order.index(n) for n in TEXT]
    after = answers(model, new)
    assert same(after, before, order)
    padded = answers(model, [*new, 3, 3])  # padding has no position of its own
    assert padded.shape[1] == len(new) + 2
    model.save_pretrained(tmp_path / "out")
    assert torch.equal(answers(loaded(tmp_path / "out", model), new), after)


def test_a_live_table_of_positions_is_trained_on() -> None:
    """Moments move with the rows: two models, one of which was rearranged between the steps, stay equal."""
    one, other = made("roberta"), made("roberta")
    optimizers = [AdamW(model.parameters(), lr=0.01, weight_decay=0) for model in (one, other)]
    order = [9, 11, 12, 1, 5, 6, 20, 0]

    def step(model: nn.Module, optimizer: AdamW, ids: list[int], columns: list[int]) -> None:
        optimizer.zero_grad()
        model(input_ids=torch.tensor([ids])).logits[..., columns].logsumexp(-1).sum().backward()
        optimizer.step()

    for model, optimizer in zip((one, other), optimizers, strict=True):
        step(model, optimizer, TEXT, order)
    keep(one, order, optimizer=optimizers[0])
    assert {id(p) for p in one.parameters()} == {id(p) for group in optimizers[0].param_groups for p in group["params"]}
    step(one, optimizers[0], [order.index(n) for n in TEXT], [*range(len(order))])
    step(other, optimizers[1], TEXT, order)
    tables = [model.roberta.embeddings.position_embeddings.weight for model in (one, other)]
    assert torch.allclose(tables[0][4:], tables[1][2:], atol=1e-5)


def test_what_cannot_be_done_live_is_refused_whole(our_own_checks: None) -> None:
    model = made("roberta")
    before = answers(model, TEXT)
    with pytest.raises(TokenError, match="would lose its row"):
        keep(model, [9, 11, 12, 20])
    model.roberta.embeddings.position_embeddings = nn.Identity()
    with pytest.raises(SettingError, match="is not found in RobertaForMaskedLM"):
        keep(model, [9, 11, 1])
    assert model.config.vocab_size == VOCABULARY
    assert before.shape[-1] == VOCABULARY


def test_ids_in_live_configurations_are_the_new_ones() -> None:
    """Where no position depends on it too: a real token must not be taken for padding."""
    model = model_of(config_of("llama", pad_token_id=1, bos_token_id=0, eos_token_id=[2, 4]))
    model.generation_config.suppress_tokens = [7, 9]
    keep(model, [9, 4, 1, 3])
    config, generation = model.config, model.generation_config
    assert (config.pad_token_id, config.bos_token_id, config.eos_token_id) == (2, None, [1])
    assert (generation.pad_token_id, generation.eos_token_id, generation.suppress_tokens) == (2, [1], [0])
    resize(model, 9)
    assert (config.pad_token_id, config.vocab_size) == (2, 9)


def test_positions_after_padding_are_one_list() -> None:
    """The registry and the surgery of live models agree on types and on the id where the key is absent."""
    learned, fixed = {}, {}
    for name, model_type in MODEL_TYPES.items():
        for rule in model_type.positions:
            padding_idx = model_type.defaults.get("pad_token_id")
            if rule.name == "learned_or_sinusoidal" or rule.settings.get("offset") == "padding":
                of_table = rule.name in ("learned", "learned_or_rope") and name != "mpnet"
                (learned if of_table else fixed)[name] = padding_idx
    assert learned.items() <= LEARNED_AFTER_PADDING.items()
    assert fixed.items() <= FIXED_AFTER_PADDING.items()
    known = {*LEARNED_AFTER_PADDING, *FIXED_AFTER_PADDING} & set(MODEL_TYPES)
    assert known == {*learned, *fixed}


def test_an_id_that_is_needed_is_not_lost(tmp_path: Path) -> None:
    """XGLM's configuration does not load with decoder_start_token_id null, nor can it be set to None."""
    model = made("xglm")
    assert model.config.decoder_start_token_id == 2
    with pytest.raises(TokenError, match="decoder_start_token_id=2 would lose its row"):
        keep(model, [0, 1, 5, 6])
    assert model.config.vocab_size == VOCABULARY
    save_with_tokenizer(model, tmp_path / "model")
    save_tokenizer(tmp_path / "other", ["w0", "w1", "w5", "w6"])
    with pytest.raises(CheckpointError, match=r"decoder_start_token_id of config\.json is #2"):
        move_to_tokenizer(tmp_path / "model", tmp_path / "out", tmp_path / "other")
    (tmp_path / "other" / "config.json").write_text('{"decoder_start_token_id": 3}')
    move_to_tokenizer(tmp_path / "model", tmp_path / "out", tmp_path / "other")
    assert loaded(tmp_path / "out", model).config.decoder_start_token_id == 3
