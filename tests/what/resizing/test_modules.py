"""Live modules: heads stay tied, unchanged logits stay to the bit, the optimizer goes on."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD, Adadelta, Adagrad, AdamW, Optimizer, RMSprop, Rprop

import whatwhere as ww
from whatwhere.errors import SettingError, ShapeError, TokenError
from whatwhere.what.resizing import keep, resize

from ...models.checkpoint.forms import VOCABULARY
from ...models.tiny import config_of, model_of
from ..row_adamw.race import train as train_rows

Make = Callable[[nn.Module], Optimizer]
OPTIMIZERS: dict[str, Make] = {
    "AdamW": lambda m: AdamW(m.parameters(), lr=0.01, weight_decay=0),
    "amsgrad": lambda m: AdamW(m.parameters(), lr=0.01, weight_decay=0, amsgrad=True),
    "foreach": lambda m: AdamW(m.parameters(), lr=0.01, weight_decay=0, foreach=True),
    "fused": lambda m: AdamW(m.parameters(), lr=0.01, weight_decay=0, fused=True),
    "SGD": lambda m: SGD(m.parameters(), lr=0.1, momentum=0.9),
    "RMSprop": lambda m: RMSprop(m.parameters(), lr=0.01, momentum=0.5, centered=True),
    "Adadelta": lambda m: Adadelta(m.parameters()),
    "Adagrad": lambda m: Adagrad(m.parameters(), lr=0.1, initial_accumulator_value=0.2),
}
BATCHES = [torch.tensor([[3, 5, 3], [1, 0, 7]]), torch.tensor([[2, 5, 6], [7, 7, 4]]), torch.tensor([[0, 1, 3]])]


class Model(nn.Module):
    """A table and an output projection of its own."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.layer = ww.InputLayer(rows, 6)
        self.head = nn.Linear(6, rows)

    def forward(self, ids: Tensor) -> Tensor:
        logits: Tensor = self.head(self.layer(ids).tanh())
        return logits


def train(model: nn.Module, optimizer: Optimizer, batches: list[Tensor]) -> None:
    """Take a step a batch, on the logits of the first eight tokens alone."""
    for ids in batches:
        optimizer.zero_grad()
        F.cross_entropy(model(ids)[..., :8].flatten(0, 1), ids.flatten().flip(0)).backward()
        optimizer.step()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_continues_as_if_the_rows_had_always_existed(name: str) -> None:
    """Eight rows trained, then twelve, equal twelve from the start, to the bit of float64."""
    torch.manual_seed(0)
    grown = Model(8).double()
    whole = Model(12).double()
    with torch.no_grad():
        whole.layer.tokens.weight[:8] = grown.layer.tokens.weight
        whole.head.weight[:8], whole.head.bias[:8] = grown.head.weight, grown.head.bias
    optimizers = [OPTIMIZERS[name](model) for model in (grown, whole)]
    for model, optimizer in zip((grown, whole), optimizers, strict=True):
        train(model, optimizer, BATCHES)
    groups = optimizers[0].param_groups
    resize(grown, 12, optimizer=optimizers[0], head=grown.head, draw="noise")
    assert optimizers[0].param_groups is groups
    held = {id(parameter) for group in groups for parameter in group["params"]}
    assert held == {id(parameter) for parameter in grown.parameters()} == {id(p) for p in optimizers[0].state}
    with torch.no_grad():  # the rows that nothing has trained
        whole.layer.tokens.weight[8:] = grown.layer.tokens.weight[8:]
        whole.head.weight[8:], whole.head.bias[8:] = grown.head.weight[8:], grown.head.bias[8:]
    later = [*BATCHES, torch.tensor([[9, 11, 3, 9]])]
    for model, optimizer in zip((grown, whole), optimizers, strict=True):
        for ids in later:
            optimizer.zero_grad()
            F.cross_entropy(model(ids).flatten(0, 1), ids.flatten().flip(0)).backward()
            optimizer.step()
    for (label, one), other in zip(grown.named_parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-13, msg=label)
    assert not torch.equal(grown.layer.tokens.weight[9], whole.layer.tokens.weight[10])


@pytest.mark.parametrize(
    ("kind", "dtype", "steps"),
    [(kind, dtype, 3) for kind in (ww.TokenEmbedding, nn.Embedding) for dtype in (torch.float32, torch.bfloat16)]
    + [(ww.TokenEmbedding, torch.bfloat16, 0)],
)
def test_training_by_row_adamw_continues_too(kind: Any, dtype: torch.dtype, steps: int) -> None:
    """With rows behind at the time, and a master where the table has sixteen bits."""
    torch.manual_seed(0)
    grown, whole = (kind(rows, 6, dtype=dtype) for rows in (8, 12))
    with torch.no_grad():
        whole.weight[:8] = grown.weight
    ours, theirs = (ww.RowAdamW(table, lr=0.01, weight_decay=0.0) for table in (grown, whole))
    for table, optimizer in ((grown, ours), (whole, theirs)):
        train_rows(table, optimizer, BATCHES[:steps])
    resize(grown, 12, optimizer=ours)
    theirs.flush()
    with torch.no_grad():
        whole.weight[8:] = grown.weight[8:]
        if steps and dtype != torch.float32:
            theirs.state[whole.weight]["master"][8:] = grown.weight[8:]
    for table, optimizer in ((grown, ours), (whole, theirs)):
        train_rows(table, optimizer, [*BATCHES, torch.tensor([[9, 11, 3]]), BATCHES[0]])
        optimizer.flush()
    torch.testing.assert_close(grown.weight, whole.weight, rtol=1e-6, atol=1e-7)
    assert ours.state_dict()["state"][0]["step"] == steps + 5
    assert len(grown.weight) == grown.num_embeddings == 12


def test_tokens_that_are_kept_keep_their_moments() -> None:
    model = Model(8)
    optimizer = OPTIMIZERS["AdamW"](model)
    train(model, optimizer, BATCHES)
    before = {name: value.clone() for name, value in optimizer.state[model.layer.tokens.weight].items()}
    weight, logits = model.layer.tokens.weight.detach().clone(), model(torch.tensor([[5, 2]]))
    keep(model, [5, 2, 7], optimizer=optimizer, head=model.head)
    state = optimizer.state[model.layer.tokens.weight]
    assert state["step"] == before["step"] == 3
    for name in ("exp_avg", "exp_avg_sq"):
        assert torch.equal(state[name], before[name][[5, 2, 7]])
    assert torch.equal(model.layer.tokens.weight, weight[[5, 2, 7]])
    assert torch.equal(model(torch.tensor([[0, 1]])), logits[..., [5, 2, 7]])
    assert (model.layer.tokens.num_embeddings, model.head.out_features) == (3, 3)


def test_padding_moves_with_its_row_or_the_change_is_refused() -> None:
    table = ww.TokenEmbedding(6, 4, padding_idx=4)
    keep(table, [5, 4])
    assert table.padding_idx == 1
    assert not table.weight[1].any()
    layer = nn.Embedding(6, 4, padding_idx=0)
    with pytest.raises(TokenError, match="padding_idx=0 of Embedding would lose its row"):
        keep(layer, [1, 2])
    assert layer.weight.shape == (6, 4)
    with pytest.raises(TokenError, match="padding_idx=1"):
        resize(table, 1)


# Models of transformers


def made(model_type: str, **settings: Any) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    config = config_of(model_type, **settings)
    for name in ("num_hidden_layers", "num_decoder_layers", "encoder_layers", "decoder_layers"):
        if hasattr(config, name):
            setattr(config, name, 1)
    return model_of(config), torch.randint(3, VOCABULARY, (2, 7))


def logits(model: nn.Module, ids: Tensor) -> Tensor:
    more = {"decoder_input_ids": ids.flip(1)} if model.config.is_encoder_decoder else {}
    with torch.no_grad():
        result: Tensor = model(input_ids=ids, **more).logits
    return result


MODELS = ["llama", "gpt2", "t5", "bloom", "gemma", "bert", "roberta", "bart", "distilbert", "electra", "gpt_neox"]


@pytest.mark.parametrize(("model_type", "size"), [*((name, 41) for name in MODELS), ("llama", 30), ("bart", 30)])
def test_models_of_transformers_resize_as_by_their_own_method(model_type: str, size: int) -> None:
    """Sizes, ties and what can be computed with them are those of resize_token_embeddings; old logits stay."""
    model, ids = made(model_type)
    ids = ids.clamp(max=29)
    theirs = deepcopy(model)
    theirs.resize_token_embeddings(size, mean_resizing=False)
    before = logits(model, ids)
    resize(model, size)
    least = min(size, VOCABULARY)
    assert torch.equal(logits(model, ids)[..., :least], before[..., :least])
    assert logits(model, ids).shape[-1] == size
    ours, right = ({name: tuple(p.shape) for name, p in m.named_parameters()} for m in (model, theirs))
    assert ours == right
    assert model.state_dict().keys() == theirs.state_dict().keys()
    assert model.config.vocab_size == theirs.config.vocab_size == size
    head, table = model.get_output_embeddings(), model.get_input_embeddings()
    assert (head.weight is table.weight) is (
        theirs.get_output_embeddings().weight is theirs.get_input_embeddings().weight
    )
    assert (table.num_embeddings, head.out_features) == (size, size)
    model.train()
    more = {"decoder_input_ids": ids} if model.config.is_encoder_decoder else {}
    model(input_ids=ids, labels=ids, **more).loss.backward()


def test_a_patched_model_and_a_layer_are_changed_too() -> None:
    model, ids = made("gpt2")
    before = logits(model, ids)
    with ww.patch(model):
        resize(model, 40)
        assert torch.equal(logits(model, ids)[..., :VOCABULARY], before)
        assert model.transformer.wte.num_embeddings == 40
    assert torch.equal(logits(model, ids)[..., :VOCABULARY], before)
    assert model.transformer.wte.weight.shape[0] == model.lm_head.weight.shape[0] == 40
    layer = ww.InputLayer(9, 8, ww.Learned(8, 4))
    resize(layer, 12)
    assert layer.tokens.num_embeddings == 12
    assert layer(torch.tensor([[11, 3]])).shape == (1, 2, 8)


def test_subword_means_initialize_the_output_projection_too() -> None:
    model, _ = made("llama")
    table, head = model.get_input_embeddings().weight.detach(), model.get_output_embeddings().weight.detach()
    resize(model, 38, pieces={37: [4, 9]})
    assert torch.allclose(model.get_input_embeddings().weight[37], (table[4] + table[9]) / 2, atol=1e-7)
    assert torch.allclose(model.get_output_embeddings().weight[37], (head[4] + head[9]) / 2, atol=1e-7)


# What is refused, before anything is changed


class Silent(nn.Module):
    """A model of transformers that has several parts, and does not say which table it begins with."""

    def get_input_embeddings(self) -> nn.Module:
        """Refuse, as CLAP does."""
        raise NotImplementedError


def test_what_cannot_be_done_is_refused_whole(our_own_checks: None) -> None:
    model = Model(8)
    for wrong, error, match in (
        (lambda: resize(nn.Linear(3, 3), 5), SettingError, "Linear has 0 that are known"),
        (lambda: resize(Silent(), 5), SettingError, "Silent has 0 that are known"),
        (lambda: resize(model, 0, head=model.head), ShapeError, "vocab_size=0"),
        (lambda: resize(model, 9, head=nn.Linear(6, 7)), ShapeError, "the output projection"),
        (
            lambda: resize(model, 9, optimizer=SGD([model.head.weight]), head=model.head),
            SettingError,
            "does not train this table",
        ),
        (lambda: keep(model, [8], head=model.head), TokenError, "id 8"),
        (
            lambda: resize(model, 9),
            SettingError,
            r"head has a weight(.|\n)*head=model.get_submodule\('head'\) to change both",
        ),
        (lambda: keep(model, [2, 1]), SettingError, "may be an untied output projection"),
    ):
        with pytest.raises(error, match=match):
            wrong()  # type: ignore[no-untyped-call]
    optimizer = Rprop(model.parameters())
    train(model, optimizer, BATCHES)
    before = model.layer.tokens.weight
    with pytest.raises(SettingError, match="Rprop has state 'prev'"):
        resize(model, 9, optimizer=optimizer, head=model.head)
    assert model.layer.tokens.weight is before
    kept = ww.RowAdamW(model.layer.tokens)
    with pytest.raises(SettingError, match="Pass it, as optimizer="):
        resize(model, 9, head=model.head)
    kept.release()
    alone = Model(8)
    resize(alone, 9, head=alone.layer.tokens)  # the projection is another's
    assert (alone.layer.tokens.num_embeddings, alone.head.out_features) == (9, 8)
    tied = Model(8)
    tied.head.weight, tied.other = tied.layer.tokens.weight, nn.Linear(6, 8)  # a layer as wide as the vocabulary
    resize(tied, 9)
    assert (tied.head.weight.shape, tied.other.out_features) == ((9, 6), 8)
    nn.utils.parametrizations.weight_norm(model.head)
    with pytest.raises(SettingError, match="weight of Parametrized"):
        resize(model, 9, head=model.head)


def test_a_table_at_the_values_follows() -> None:

    class WithValues(Model):
        def __init__(self) -> None:
            super().__init__(8)
            self.value_embeddings = nn.Embedding(8, 4)

    model = WithValues()
    before = model.value_embeddings.weight.detach().clone()
    keep(model, [5, 2], head=model.head)
    assert torch.equal(model.value_embeddings.weight.detach(), before[[5, 2]])
    assert model.value_embeddings.num_embeddings == 2
