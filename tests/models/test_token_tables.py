"""Tables beside the token table: found by name, loaded, equal to transformers' own, refused where damaged."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from transformers import CONFIG_MAPPING, AutoModel, BltConfig
from transformers.models.blt.modeling_blt import compute_hash_embeddings
from transformers.models.neomme.configuration_neomme import NeoMMEConfig
from transformers.models.neomme.modeling_neomme import NeoMMEForMaskedLM
from transformers.models.qwen4_exp.configuration_qwen4_exp import Qwen4ExpTextConfig
from transformers.models.qwen4_exp.modeling_qwen4_exp import Qwen4ExpTextNGramEmbedding

import whatwhere as ww
from whatwhere.what.ngram_hash import xor_hashes

from .tiny import model_of

IDS = torch.tensor([[3, 0, 3, 29, 7], [7, 28, 1, 2, 3]])
_GEMMA: dict[str, Any] = {
    "vocab_size": 30, "vocab_size_per_layer_input": 28, "hidden_size": 16, "hidden_size_per_layer_input": 6,
    "num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "intermediate_size": 16,
    "num_kv_shared_layers": 0, "pad_token_id": 0, "rms_norm_eps": 1e-5,
}  # fmt: skip
_SMALL: dict[str, Any] = {
    "vocab_size": 30, "embedding_size": 6, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16,
    "num_hidden_layers": 1,
}  # fmt: skip


def noisy(model: Any) -> Any:
    """Give every weight, norms and biases too, a value of its own."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.3)
    return model.eval()


def saved(folder: Path, tensors: dict[str, torch.Tensor], config: dict[str, Any] | None = None) -> ww.Checkpoint:
    """Write tensors and a configuration, and open them."""
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return ww.Checkpoint.open(folder)


# Equal to transformers


@pytest.mark.parametrize("kind", ["gemma3n", "gemma4"])
def test_per_layer_tables_of_gemma(kind: str, tmp_path: Path) -> None:
    own = {"activation_sparsity_pattern": [0.0] * 4} if kind == "gemma3n" else {}
    model = noisy(model_of(CONFIG_MAPPING[f"{kind}_text"](**_GEMMA, **own)))
    model.save_pretrained(tmp_path)
    checkpoint = ww.Checkpoint.open(tmp_path)
    [found] = checkpoint.token_tables
    assert (found.kind, found.rows, found.features, found.bytes) == ("per layer", 28, 24, 28 * 24 * 4)
    table, inner, x = ww.load_token_table(checkpoint), model.model, torch.randn(2, 5, 16)
    assert isinstance(table, ww.PerLayerEmbedding)
    assert (table.num_layers, table.layer_dim, table.eps) == (4, 6, 1e-5)
    ids = IDS if kind == "gemma3n" else IDS.clamp(max=27)  # 28 and 29 have rows in the token table only
    with torch.no_grad():
        rows = inner.get_per_layer_inputs(ids) if kind == "gemma3n" else inner.get_per_layer_inputs(ids, x)
        wanted = inner.project_per_layer_inputs(x, rows)
        torch.testing.assert_close(table(ids, x), wanted, rtol=0, atol=1e-6)
        torch.testing.assert_close(table(None, x), inner.project_per_layer_inputs(x), rtol=0, atol=1e-6)
        assert float(wanted.abs().max()) > 1  # a thousand times the tolerance, at least
    if kind == "gemma4":
        with pytest.raises(ww.errors.TokenError):
            table.lookup(IDS)


_OPT: dict[str, Any] = {
    "vocab_size": 30, "hidden_size": 16, "word_embed_proj_dim": 6, "num_hidden_layers": 1, "ffn_dim": 16,
    "num_attention_heads": 2, "max_position_embeddings": 16,
}  # fmt: skip


@pytest.mark.parametrize(
    ("model_type", "settings", "projection", "between"),
    [
        ("albert", _SMALL, "encoder.embedding_hidden_mapping_in", "positions, token types and a norm"),
        ("electra", _SMALL, "embeddings_project", "positions, token types and a norm"),
        ("deberta-v2", {**_SMALL, "position_biased_input": True}, "embeddings.embed_proj", "positions and token types"),
        ("opt", _OPT, "decoder.project_in", ""),
    ],
)
def test_factorized_tables(
    model_type: str, settings: dict[str, Any], projection: str, between: str, tmp_path: Path
) -> None:
    made = noisy(AutoModel.from_config(CONFIG_MAPPING[model_type](**settings)))
    made.save_pretrained(tmp_path)
    [found] = ww.Checkpoint.open(tmp_path).token_tables
    assert (found.kind, found.rows, found.features, found.between) == ("factorized", 30, 6, between)
    table = ww.load_token_table(tmp_path)
    assert isinstance(table, ww.FactorizedEmbedding)
    with torch.no_grad():
        wanted = made.get_submodule(projection)(made.get_input_embeddings()(IDS))
        torch.testing.assert_close(table(IDS), wanted, rtol=0, atol=1e-6)
        assert float(wanted.abs().max()) > 0.1


def test_tables_of_neomme(tmp_path: Path) -> None:
    """A factorized token table, and one for the values; the output projection's factor is not mistaken for either."""
    config = NeoMMEConfig(
        vocab_size=30, embedding_rank=6, hidden_size=16, intermediate_size=16, num_hidden_layers=3,
        num_attention_heads=2, num_key_value_heads=2, head_dim=16,
        layer_types=["full_attention", "sliding_attention", "full_attention"],
    )  # fmt: skip
    model = noisy(NeoMMEForMaskedLM(config))
    model.save_pretrained(tmp_path)
    checkpoint = ww.Checkpoint.open(tmp_path)
    assert [table.kind for table in checkpoint.token_tables] == ["factorized", "values"]
    factors, values = (ww.load_token_table(checkpoint, table.name) for table in checkpoint.token_tables)
    assert isinstance(values, ww.ValueEmbedding)
    with torch.no_grad():
        torch.testing.assert_close(factors(IDS), model.model.embed_tokens(IDS), rtol=0, atol=1e-6)
        theirs = model.model.value_embeddings(IDS).view(2, 5, 2, 16).transpose(1, 2)
        assert torch.equal(values(IDS), theirs)
        hidden = model.model(IDS).last_hidden_state
        torch.testing.assert_close(factors.readout(hidden), model(IDS).logits, rtol=0, atol=1e-5)
    with pytest.raises(ww.errors.SettingError, match=r"2 such tables: model"):
        ww.load_token_table(checkpoint)


@pytest.mark.parametrize("stored", ["whole", "in parts", "without buffers"])
def test_hashed_ngrams_of_qwen4_exp(stored: str, tmp_path: Path) -> None:
    """One tensor, or parts of which the eleventh follows the tenth; hashes by the file, or by the configuration."""
    config = Qwen4ExpTextConfig(
        vocab_size=5_000, ngram_size=4, heads_per_ngram=2, ngram_vocab_size_base=100, num_hidden_layers=4, seed=7,
        ple_layer_ids=[1, 3], hidden_size=24, eos_token_id=7,
    )  # fmt: skip
    theirs = noisy(Qwen4ExpTextNGramEmbedding(config, 24, layer_idx=2, ple_layer_index=1))
    begin = "model.layers.2.ple.ple_embedding."
    tensors = {begin + name: tensor for name, tensor in theirs.state_dict().items()}
    if stored == "in parts":
        parts = tensors.pop(f"{begin}ngram_embedding.weight").split(60)
        assert len(parts) > 10
        tensors |= {f"{begin}ngram_embedding.shard_{n}.weight": part for n, part in enumerate(parts)}
    if stored == "without buffers":
        tensors = {name: tensor for name, tensor in tensors.items() if name.endswith("weight")}
    checkpoint = saved(tmp_path, tensors, config.to_dict())
    [found] = checkpoint.token_tables
    assert (found.kind, found.layer, found.rows) == ("hashed n-grams", 2, theirs.ngram_embedding.num_embeddings)
    table = ww.load_token_table(checkpoint)
    ids = torch.randint(0, 5_000, (3, 40))
    ids[torch.rand(3, 40) < 0.2] = 7
    with torch.no_grad():
        assert torch.equal(table(ids), theirs(ids, None))
        # The same, with the end of text in segments instead.
        segment = torch.cat([torch.zeros(3, 1, dtype=torch.long), (ids == 7).long().cumsum(-1)[:, :-1]], dim=-1)
        table.border_id, counted = None, ww.positions(40)
        by_segment = ww.Positions(counted.index.expand(-1, 3, -1), counted.order.expand(3, -1), segment, False, 40)
        assert torch.equal(table(ids, by_segment), theirs(ids, None))


def test_byte_hashes_of_blt(tmp_path: Path) -> None:
    config = BltConfig(encoder_hash_byte_group_vocab=503, encoder_hash_byte_group_nb_functions=11)
    theirs = nn.Embedding(503 * 6 * 11, 4)
    weight = {"model.encoder_hash_tok_embedding.weight": theirs.weight.detach()}
    table = ww.load_token_table(saved(tmp_path, weight, config.to_dict()))
    ids, nothing = torch.randint(0, 260, (2, 30)), nn.Embedding.from_pretrained(torch.zeros(260, 4))
    local = type("Local", (), {"embed_tokens": nothing})
    with torch.no_grad():
        wanted = compute_hash_embeddings(ids, local, theirs, 11, config.encoder_hash_byte_group_size, 503)
        torch.testing.assert_close(table(ids), wanted, rtol=0, atol=1e-5)


# Equal to the formula, where transformers has no such model


def test_hashed_ngrams_of_longcat(tmp_path: Path) -> None:
    """Digits of base V, by Python's integers; ids behind an end of text are of another document."""
    rows, config = [201, 203, 205, 207], {"emb_neighbor_num": 3, "emb_split_num": 2, "vocab_size": 100}
    weights = [torch.randn(size, 4) for size in rows]
    names = [f"model.ngram_embeddings.embedders.{n}.weight" for n in range(4)]
    tensors = dict(zip(names, weights, strict=True))
    tensors |= {name.replace("embedders", "post_projs"): torch.randn(8, 4) for name in names}
    settings = config | {"model_type": "longcat_flash_ngram", "eos_token_id": 2}
    table = ww.load_token_table(saved(tmp_path, tensors, settings))
    text = [5, 99, 2, 7, 98, 99]
    before = {0: [], 1: [5], 2: [99, 5], 3: [], 4: [7], 5: [98, 7]}
    with torch.no_grad():
        ours = table(torch.tensor([text]))[0].unflatten(-1, (4, 4))
        for at, token in enumerate(text):
            for n, index in ((2, 0), (2, 1), (3, 2), (3, 3)):
                gram = [token, *before[at], 0, 0][:n]
                row = sum(each * 100**k for k, each in enumerate(gram)) % rows[index]
                assert torch.equal(ours[at, index], weights[index][row])


def test_tables_of_nanochat_have_their_layers(tmp_path: Path) -> None:
    tensors = {f"value_embeds.{n}.weight": torch.randn(30, 8) for n in (1, 3)}
    tensors |= {f"transformer.h.{n}.attn.ve_gate.weight": torch.randn(2, 32) for n in (1, 3)}
    checkpoint = saved(tmp_path, tensors, {"model_type": "nanochat", "num_key_value_heads": 2})
    assert [(table.layer, table.form) for table in checkpoint.token_tables] == [(1, "nanogpt"), (3, "nanogpt")]
    table = ww.load_token_table(checkpoint, "value_embeds.3.weight")
    assert torch.equal(table(IDS)[:, 1], tensors["value_embeds.3.weight"][IDS][..., 4:])


def test_engram_needs_its_hashes(tmp_path: Path) -> None:
    hashes = xor_hashes((3, 5, 9), [[7, 11], [13, 17]])
    tensors = {
        "layers.1.engram.multi_head_embedding.embedding.weight": torch.randn(48, 4),
        "layers.1.engram.multi_head_embedding.offsets": torch.tensor([0, 7, 18, 31]),
    }
    checkpoint = saved(tmp_path, tensors)
    assert [(table.kind, table.layer, table.rows) for table in checkpoint.token_tables] == [("hashed n-grams", 1, 48)]
    with pytest.raises(ww.errors.CheckpointError, match="state neither its hashes"):
        ww.load_token_table(checkpoint)
    table = ww.load_token_table(checkpoint, into=ww.HashedNGramEmbedding(hashes, 4, padding_id=0, device="meta"))
    gram = ww.reference.ngram_row([8, 2, 0], [3, 5, 9], 13) + 18
    weight = tensors["layers.1.engram.multi_head_embedding.embedding.weight"]
    assert torch.equal(table(torch.tensor([[2, 8]]))[0, 1, 8:12], weight[gram])
    other = ww.HashedNGramEmbedding(xor_hashes((3, 5, 9), [[11, 7], [13, 17]]), 4, padding_id=0, device="meta")
    with pytest.raises(ww.errors.CheckpointError, match=r"offsets.* begins 0, 7, 18, 31, but .* begin at 0, 11, 18"):
        ww.load_token_table(checkpoint, into=other)


# Refused


GEMMA = {"model_type": "gemma3n_text", "rms_norm_eps": 1e-6}
PROJECTION, NORM = "per_layer_model_projection.weight", "per_layer_projection_norm.weight"
PER_LAYER = {"embed_tokens_per_layer.weight": (9, 24), PROJECTION: (24, 16)}
VALUES = {"embed_tokens.weight": (9, 16), "value_embeddings.weight": (9, 12)}
FACTORS = {"word_embeddings.weight": (9, 4), "encoder.embedding_hidden_mapping_in.weight": (6, 4)}
BLT = {"encoder_hash_byte_group_vocab": 50, "encoder_hash_byte_group_size": [3, 4], "model_type": "blt"}


@pytest.mark.parametrize(
    ("tensors", "config", "message"),
    [
        (PER_LAYER, GEMMA, "no norm for it"),
        (PER_LAYER | {NORM: (5,)}, GEMMA, r"projection_norm.weight' has the shape \(5,\), which does not divide"),
        (PER_LAYER | {NORM: (6,), PROJECTION: (20, 16)}, GEMMA, r"has the shape \(20, 16\), but \(24, 16\)"),
        (PER_LAYER | {NORM: (6,)}, {"model_type": "gemma3n_text"}, "no rms_norm_eps"),
        (VALUES, {"model_type": "neomme", "num_key_value_heads": 2, "head_dim": 8}, "12 columns, but .* 2 heads of 8"),
        (VALUES, {"model_type": "neomme"}, "no num_key_value_heads"),
        ({"encoder_hash_tok_embedding.weight": (99, 4)}, BLT, "99 rows, but the configuration has 2 tables of 50"),
        (FACTORS | {"encoder.embedding_hidden_mapping_in.bias": (7,)}, {"model_type": "albert"},
         r"mapping_in.bias' has the shape \(7,\), but \(6,\)"),
        ({"layers.0.ple.ple_embedding.ngram_embedding.weight": (9, 4)}, {"ngram_size": 3}, "has no eos_token_id"),
    ],
)  # fmt: skip
def test_damaged_tables_are_refused(
    tensors: dict[str, tuple[int, ...]], config: dict[str, Any], message: str, tmp_path: Path
) -> None:
    checkpoint = saved(tmp_path, {name: torch.zeros(shape) for name, shape in tensors.items()}, config)
    with pytest.raises(ww.errors.CheckpointError, match=message):
        ww.load_token_table(checkpoint, checkpoint.token_tables[-1].name)


def test_other_checkpoints_have_none(tmp_path: Path) -> None:
    vision = {"embed_vision.embedding_projection.weight": torch.zeros(4, 4)}
    checkpoint = saved(tmp_path, {"wte.weight": torch.zeros(9, 4), **vision})
    assert checkpoint.token_tables == ()
    with pytest.raises(ww.errors.CheckpointError, match="no table that token ids select beside"):
        ww.load_token_table(checkpoint)
