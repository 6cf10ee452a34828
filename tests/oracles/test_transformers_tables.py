"""Learned tables with an offset and on a grid equal those of Hugging Face's RoBERTa, OPT and ViT."""

import pytest
import torch
from transformers import OPTConfig, RobertaConfig, ViTConfig
from transformers.models.opt.modeling_opt import OPTLearnedPositionalEmbedding
from transformers.models.roberta.modeling_roberta import RobertaEmbeddings
from transformers.models.vit.modeling_vit import ViTEmbeddings

import whatwhere as ww


def learned(rows: torch.Tensor, max_length: int, offset: int = 0) -> ww.Learned:
    scheme = ww.Learned(rows.shape[-1], max_length, offset)
    with torch.no_grad():
        scheme.weight.copy_(rows)
    return scheme


@pytest.mark.parametrize("new", [(6, 6), (3, 3), (5, 7), (4, 4)])
def test_vit_at_another_resolution(new: tuple[int, int]) -> None:
    config = ViTConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=16, patch_size=4)
    theirs = ViTEmbeddings(config)
    with torch.no_grad():
        theirs.position_embeddings.normal_()
        tokens = torch.zeros(1, 1 + new[0] * new[1], 16)
        wanted = theirs.interpolate_pos_encoding(tokens, height=4 * new[0], width=4 * new[1])
        ours = learned(theirs.position_embeddings[0], 17).resized_grid((4, 4), new, prefix=1)
        torch.testing.assert_close(ours(ww.positions(len(tokens[0]))), wanted, rtol=0, atol=1e-6)


def test_opt_has_two_rows_more_than_max_position_embeddings() -> None:
    config = OPTConfig(max_position_embeddings=12)
    theirs = OPTLearnedPositionalEmbedding(config.max_position_embeddings, 16)
    ours = learned(theirs.weight, config.max_position_embeddings, offset=2)
    mask = torch.tensor([[1] * 12, [0] * 5 + [1] * 7])
    wanted = theirs(mask, 0)
    result = ours(ww.Positions.from_mask(mask))
    assert torch.equal(result[mask.bool()], wanted[mask.bool()])


def test_roberta_counts_its_two_rows_in() -> None:
    config = RobertaConfig(
        vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=14
    )
    theirs = RobertaEmbeddings(config).eval()
    ids = torch.tensor([[0, 5, 6, 7, 2], [0, 9, 2, 1, 1]])  # 1 is padding
    mask = ids != config.pad_token_id
    ours = learned(theirs.position_embeddings.weight, config.max_position_embeddings - 2, offset=2)
    own = RobertaEmbeddings.create_position_ids_from_input_ids(ids, config.pad_token_id)
    wanted = theirs.position_embeddings(own)
    assert torch.equal(ours(ww.Positions.from_mask(mask))[mask], wanted[mask])
