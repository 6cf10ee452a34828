"""Models of transformers with a factorized table and one for values; tests/models compares what the tables hold."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AlbertConfig, AlbertModel, ElectraConfig, ElectraModel
from transformers.models.neomme.configuration_neomme import NeoMMEConfig
from transformers.models.neomme.modeling_neomme import NeoMMEForMaskedLM

import whatwhere as ww

from .shared import require_close

IDS = torch.tensor([[3, 0, 3, 29, 7], [7, 28, 1, 2, 3]])


def noise(model: nn.Module) -> None:
    """Give every weight, norms too, a value of its own."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.3)


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
