"""The input layer equals that of Hugging Face transformers' GPT-2 and BERT, and two of its sinusoids."""

import pytest
import torch
from torch import Tensor
from transformers import BertConfig, GPT2Config, GPT2LMHeadModel
from transformers.models.bert.modeling_bert import BertEmbeddings
from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

import whatwhere as ww


def copied(layer: ww.InputLayer, tokens: Tensor, positions: Tensor) -> ww.InputLayer:
    """Fill a layer with another's two tables."""
    scheme = layer.where.input
    assert isinstance(scheme, ww.Learned)
    with torch.no_grad():
        layer.tokens.weight.copy_(tokens)
        scheme.weight.copy_(positions)
    return layer


def test_gpt2_input_and_readout() -> None:
    config = GPT2Config(vocab_size=50, n_embd=12, n_head=2, n_layer=1, n_positions=16, embd_pdrop=0.0)
    model = GPT2LMHeadModel(config).eval()
    body = model.transformer
    layer = copied(ww.InputLayer(50, 12, ww.Learned(12, 16)), body.wte.weight, body.wpe.weight)
    ids, mask = torch.randint(0, 50, (2, 9)), torch.tensor([[0] * 4 + [1] * 5, [1] * 9])
    p = ww.Positions.from_mask(mask)
    out = model(ids, attention_mask=mask, position_ids=p.index[0], output_hidden_states=True)
    assert torch.equal(layer(ids, p), out.hidden_states[0])
    assert torch.equal(layer.tokens.readout(out.hidden_states[-1]), out.logits)


def test_gpt2_gradients() -> None:
    """The tied table collects from lookup and output projection; each position row from every sequence."""
    config = GPT2Config(vocab_size=50, n_embd=12, n_head=2, n_layer=0, n_positions=16, embd_pdrop=0.0)
    model = GPT2LMHeadModel(config).double().train()
    body = model.transformer
    layer = copied(
        ww.InputLayer(50, 12, ww.Learned(12, 16, dtype=torch.float64), dtype=torch.float64),
        body.wte.weight,
        body.wpe.weight,
    )
    ids = torch.tensor([[3, 3, 7, 3], [7, 0, 1, 2]])
    g = torch.randn(2, 4, 50, dtype=torch.float64)
    model(ids).logits.backward(g)
    layer.tokens.readout(body.ln_f(layer(ids))).backward(g)
    scheme = layer.where.input
    assert isinstance(scheme, ww.Learned)
    torch.testing.assert_close(layer.tokens.weight.grad, body.wte.weight.grad)
    torch.testing.assert_close(scheme.weight.grad, body.wpe.weight.grad)


@pytest.mark.parametrize("start", [0, 5])
def test_bert_input(start: int) -> None:
    config = BertConfig(vocab_size=50, hidden_size=12, num_attention_heads=2, max_position_embeddings=16)
    theirs = BertEmbeddings(config).eval()
    layer = copied(
        ww.InputLayer(50, 12, ww.Learned(12, 16), padding_idx=config.pad_token_id),
        theirs.word_embeddings.weight,
        theirs.position_embeddings.weight,
    )
    ids, kinds = torch.randint(0, 50, (2, 9)), torch.randint(0, 2, (2, 9))
    p = ww.positions(9, start=start)
    wanted = theirs(ids, token_type_ids=kinds, position_ids=p.index[0])
    # Its sentence kinds are a third table, and a norm follows; both stand outside of what and where.
    mine = theirs.LayerNorm(layer(ids, p) + theirs.token_type_embeddings(kinds))
    torch.testing.assert_close(mine, wanted, rtol=0, atol=2e-6)  # the three summands come in another order


@pytest.mark.parametrize("dim", [2, 16, 64])
def test_marian_sinusoid(dim: int) -> None:
    """It takes its angles in float64, as we do: equal to the bit but for the last place of NumPy's sine."""
    theirs = MarianSinusoidalPositionalEmbedding(2048, dim).create_weight()
    ours = ww.Sinusoidal(dim, layout="half")(ww.positions(2048))[0]
    torch.testing.assert_close(ours, theirs, rtol=0, atol=6e-8)


@pytest.mark.parametrize("dim", [4, 16, 64])
def test_m2m_100_sinusoid(dim: int) -> None:
    """It has tensor2tensor's frequencies, in float32: off by 1.2e-7 a position, and by its exp."""
    theirs = M2M100SinusoidalPositionalEmbedding.get_embedding(1024, dim)
    ours = ww.Sinusoidal(dim, layout="tensor2tensor")(ww.positions(1024))[0]
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1024 * 6e-7)
