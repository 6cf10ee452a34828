"""Tables beside the token table equal transformers' own: by layer, factorized, added to values, and hashed."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AlbertConfig, AlbertModel, ElectraConfig, ElectraModel, Gemma3nTextConfig, Gemma4TextConfig
from transformers.models.blt.modeling_blt import byte_group_hash_function, compute_hash_embeddings
from transformers.models.gemma3n.modeling_gemma3n import Gemma3nTextModel
from transformers.models.gemma4.modeling_gemma4 import Gemma4TextModel
from transformers.models.neomme.configuration_neomme import NeoMMEConfig
from transformers.models.neomme.modeling_neomme import NeoMMEForMaskedLM
from transformers.models.qwen4_exp.configuration_qwen4_exp import Qwen4ExpTextConfig
from transformers.models.qwen4_exp.modeling_qwen4_exp import Qwen4ExpTextNGramEmbedding

import whatwhere as ww
from whatwhere.what.ngram_hash import BLT_PRIMES, multipliers_of_qwen4_exp, polynomial_hashes, primes_from, xor_hashes

from .shared import require_close

IDS = torch.tensor([[3, 0, 3, 29, 7], [7, 28, 1, 2, 3]])
_GEMMA: dict[str, Any] = {
    "vocab_size": 30, "vocab_size_per_layer_input": 30, "hidden_size": 16, "hidden_size_per_layer_input": 6,
    "num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "intermediate_size": 16,
    "num_kv_shared_layers": 0, "pad_token_id": 0,
}  # fmt: skip


def noise(model: nn.Module) -> None:
    """Give every weight, norms too, a value of its own."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.3)


def gemma3n(**settings: Any) -> Gemma3nTextModel:
    return Gemma3nTextModel(Gemma3nTextConfig(**_GEMMA | {"activation_sparsity_pattern": [0.0] * 4} | settings)).eval()


def gemma4(**settings: Any) -> Gemma4TextModel:
    return Gemma4TextModel(Gemma4TextConfig(**_GEMMA | settings)).eval()


def ours_of(model: Gemma3nTextModel | Gemma4TextModel, outside: int | None = None) -> ww.PerLayerEmbedding:
    table = ww.PerLayerEmbedding(30, 4, 6, 16, eps=model.config.rms_norm_eps, outside=outside)
    with torch.no_grad():
        table.tokens.weight.copy_(model.embed_tokens_per_layer.weight)
        table.projection.weight.copy_(model.per_layer_model_projection.weight)
        table.norm.copy_(model.per_layer_projection_norm.weight)
    return table


@pytest.mark.parametrize("build", [gemma3n, gemma4])
def test_per_layer_inputs_of_gemma(build: Callable[[], Gemma3nTextModel | Gemma4TextModel]) -> None:
    model = build()
    noise(model)
    table, x = ours_of(model), torch.randn(2, 5, 16)
    with torch.no_grad():
        rows = model.get_per_layer_inputs(IDS, x) if build is gemma4 else model.get_per_layer_inputs(IDS)
        torch.testing.assert_close(table.lookup(IDS), rows, rtol=0, atol=1e-6)
        wanted = model.project_per_layer_inputs(x, rows)
        torch.testing.assert_close(table(IDS, x), wanted, rtol=0, atol=1e-6)
        torch.testing.assert_close(table(None, x), model.project_per_layer_inputs(x), rtol=0, atol=1e-6)
        assert float(wanted.abs().max()) > 1  # a thousand times the tolerance, at least


def test_ids_outside_the_table_of_gemma_3n_read_its_first_row() -> None:
    model = gemma3n(vocab_size=40)
    ids = torch.tensor([[3, 30, 39, 0]])
    with torch.no_grad():
        wanted = model.get_per_layer_inputs(ids)
        torch.testing.assert_close(ours_of(model, outside=0).lookup(ids), wanted, rtol=0, atol=0)


def qwen4_exp(layer: int) -> tuple[Qwen4ExpTextNGramEmbedding, ww.HashedNGramEmbedding]:
    """Return its module, and ours with the same hashes, from the settings alone, and with the same rows."""
    config = Qwen4ExpTextConfig(vocab_size=5_000, ngram_size=4, heads_per_ngram=2, ngram_vocab_size_base=100)
    config.eos_token_id = 7
    theirs = Qwen4ExpTextNGramEmbedding(config, 24, layer_idx=3, ple_layer_index=layer)
    multipliers = multipliers_of_qwen4_exp(5_000, n=4, layer=layer, seed=config.seed)
    primes = primes_from(100, 6, skip=6 * layer)
    hashes = xor_hashes(multipliers, [primes[0:2], primes[2:4], primes[4:6]])
    rows = theirs.ngram_embedding.num_embeddings
    ours = ww.HashedNGramEmbedding(hashes, dim=4, padding_id=7, border_id=7, num_embeddings=rows)
    with torch.no_grad():
        ours.table.weight.copy_(theirs.ngram_embedding.weight)
    return theirs, ours


@pytest.mark.parametrize("layer", [0, 1])
def test_hashed_ngrams_of_qwen4_exp(layer: int) -> None:
    theirs, ours = qwen4_exp(layer)
    ids = torch.randint(0, 5_000, (3, 40))
    ids[torch.rand(3, 40) < 0.2] = 7
    ids[0, :2] = 7
    assert torch.equal(ours(ids), theirs(ids, None))
    # The same, with the end of text in segments instead.
    ends = (ids == 7).long().cumsum(-1)
    segment = torch.cat([torch.zeros(3, 1, dtype=torch.long), ends[:, :-1]], dim=-1)
    counted = ww.positions(40)
    by_segment = ww.Positions(counted.index.expand(-1, 3, -1), counted.order.expand(3, -1), segment, False, 40)
    ours.border_id = None
    assert torch.equal(ours(ids, by_segment), theirs(ids, None))


@pytest.mark.parametrize("functions", [1, 3])
def test_byte_hashes_of_blt(functions: int) -> None:
    """BLT's powers of large primes overflow 64 bits, and wrap around."""
    lengths, rows = [3, 4, 8], 503
    theirs = nn.Embedding(rows * len(lengths) * functions, 6)
    bytes_ = nn.Embedding(260, 6)
    local = SimpleNamespace(embed_tokens=bytes_)
    ids = torch.randint(0, 260, (2, 30))
    hashes = polynomial_hashes(lengths, rows, BLT_PRIMES[:functions])
    ours = ww.HashedNGramEmbedding(hashes, dim=6, padding_id=0, merge="sum")
    with torch.no_grad():
        ours.table.weight.copy_(theirs.weight)
        wanted = compute_hash_embeddings(ids, local, theirs, functions, lengths, rows)
        torch.testing.assert_close(bytes_(ids) + ours(ids), wanted, rtol=0, atol=1e-5)
    prime = BLT_PRIMES[functions - 1]
    last = byte_group_hash_function(ids, 8, prime, rows)
    assert torch.equal(ours.rows(ids)[..., -1] - ours.offsets[-2], last)


def neomme() -> NeoMMEForMaskedLM:
    config = NeoMMEConfig(
        vocab_size=30,
        embedding_rank=6,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=3,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=16,
        layer_types=["full_attention", "sliding_attention", "full_attention"],
    )
    model = NeoMMEForMaskedLM(config).eval()
    noise(model)
    return model


def test_factorized_tables_of_neomme() -> None:
    """Lookup and output projection: both factors, used twice."""
    model = neomme()
    theirs = model.model.embed_tokens
    ours = ww.FactorizedEmbedding(30, 6, 16)
    with torch.no_grad():
        ours.tokens.weight.copy_(theirs.word_embeddings.weight)
        ours.projection.weight.copy_(theirs.embedding_projection.weight)
        torch.testing.assert_close(ours(IDS), theirs(IDS), rtol=0, atol=1e-6)
        hidden = model.model(IDS).last_hidden_state
        torch.testing.assert_close(ours.readout(hidden), model(IDS).logits, rtol=0, atol=1e-5)


def test_factorized_tables_of_albert_and_electra() -> None:
    """Positions, token types and a norm are between the factors."""
    sizes: dict[str, Any] = {"vocab_size": 30, "embedding_size": 6, "hidden_size": 16, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 16, "num_hidden_layers": 1}
    albert = AlbertModel(AlbertConfig(**sizes)).eval()
    electra = ElectraModel(ElectraConfig(**sizes)).eval()
    pairs = ((albert, albert.encoder.embedding_hidden_mapping_in), (electra, electra.embeddings_project))
    for model, projection in pairs:
        noise(model)
        table = ww.FactorizedEmbedding(30, 6, 16, bias=True)
        with torch.no_grad():
            table.tokens.weight.copy_(model.embeddings.word_embeddings.weight)
            table.projection.load_state_dict(projection.state_dict())
            others = model.embeddings.position_embeddings.weight[:5] + model.embeddings.token_type_embeddings.weight[0]
            ours = table.projection(model.embeddings.LayerNorm(table.tokens(IDS) + others))
            wanted = model(IDS, output_hidden_states=True).hidden_states[0]
        torch.testing.assert_close(ours, wanted, rtol=0, atol=1e-5)


def test_value_embeddings_of_neomme(recorded: list[Any]) -> None:
    """The values that attention gets, in the layers with a table and in that without."""
    model = neomme()
    table = ww.ValueEmbedding(30, 2, 16)
    table.tokens.weight.data.copy_(model.model.value_embeddings.weight)
    projected: list[Tensor] = []
    for layer in model.model.layers:
        attention = next(part for part in layer.modules() if hasattr(part, "v_proj"))
        attention.v_proj.register_forward_hook(lambda *args: projected.append(args[2]))
    model.set_attn_implementation("record")
    with torch.no_grad():
        model(IDS)
        own = [each.unflatten(-1, (2, 16)).transpose(1, 2) for each in projected]
        wanted = [table.add(own[0], IDS), own[1], table.add(own[2], IDS)]
    require_close((call["v"] for call in recorded), wanted, 1e-6)
