"""The errors: each message has what was given, what is needed and why, and the way out."""

import builtins

import jaxtyping
import pytest
import torch
from tokenizers import Tokenizer, models  # noqa: F401 (of the tables)

import whatwhere as ww
from tests.refusals import refused, require_refused, short_refusals
from whatwhere import errors, text

BUILT_IN = {
    "ShapeError": ValueError,
    "SettingError": ValueError,
    "PositionError": IndexError,
    "TokenError": IndexError,
    "TextError": ValueError,
    "DoorError": TypeError,
    "UnknownScheme": LookupError,
    "ResultsError": ValueError,
    "CheckpointError": ValueError,
    "MissingExtra": ImportError,
}


@pytest.fixture(autouse=True)
def _only_our_own_checks(monkeypatch):
    """Disable the run-time type check of the test suite, which users do not have."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.mark.parametrize("name", BUILT_IN)
def test_each_error_is_also_the_built_in_one(name):
    error = getattr(errors, name)
    assert issubclass(error, ww.WhatWhereError)
    assert issubclass(error, BUILT_IN[name])
    assert not issubclass(ww.WhatWhereError, tuple(BUILT_IN.values()))


def test_every_error_is_in_the_class_tree():
    ours = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and value.__module__ == "whatwhere.errors"
    }
    assert ours == {*BUILT_IN, "WhatWhereError", "RandomPositionsWarning", "RegimeWarning"}
    assert issubclass(errors.RandomPositionsWarning, UserWarning)
    assert issubclass(errors.RegimeWarning, UserWarning)
    assert not [name for name in BUILT_IN if hasattr(builtins, name)]


def tokens(*shape):
    return torch.zeros(shape, dtype=torch.int64)


def attend(q, k=None, v=None, **settings):
    q, k, v = (torch.zeros(shape) for shape in (q, k or q, v or k or q))
    return ww.Where(score=settings.pop("score", None)).at(ww.positions(3)).attention(q, k, v, **settings)


def require_parts(message, given, needed, way_out=None):
    """Check that a message has what was given and what is needed, and after it the way out, unless there is none."""
    first_line, _, _ = message.partition("\n")
    assert given in first_line, message
    assert needed in first_line, message
    assert way_out is None or way_out in message[message.index(needed) + len(needed) :], message


# A call and its error: what was given … what is needed … the way out, if the requirement is not one
REFUSALS = r"""
ww.InputLayer(20, 8)(torch.tensor([[1, 2], [3, 20]])) -> TokenError: id 20 at (1, 1) … 0..19 … make the table larger
ww.TokenEmbedding(20, 8)(torch.tensor([-100])) -> TokenError: id -100 at (0,) … 0..19 … Check that the tokenizer
ww.TokenEmbedding(20, 8)(torch.zeros(3)) -> TokenError: torch.float32 … whole numbers … ids.long()
ww.TokenEmbedding(20, 8, padding_idx=20) -> TokenError: padding_idx=20 … 0..19 … or None
ww.InputLayer(20, 8)(tokens(3)) -> ShapeError: (3,) … (batch, tokens) … ids[None]
ww.Positions.from_position_ids(torch.tensor([[0, 1], [0, -1]])) ->
    PositionError: position -1 at (0, 1, 1) … count from 0 … Positions.from_mask(mask)
ww.positions(3, start=-1) -> PositionError: start=-1 … 0 or more … Positions.from_mask(mask)
ww.Learned(8, 1024)(torch.tensor([[3, 1500]])) -> PositionError: position 1500 … (0..1023) … ids[:, :1024]
ww.Sinusoidal(8)([0, 1]) -> PositionError: list … Positions, an integer tensor or a number … torch.tensor(
ww.Positions.from_position_ids(tokens(1, 1, 1, 1)) -> ShapeError: (1, 1, 1, 1) … (axes, batch, tokens) … ids.squeeze()
ww.ALiBi(2)(ww.Positions.grid(2, 2)) -> PositionError: have 2 … along one axis … Positions.from_position_ids(p.index[0])
ww.positions(3, start=tokens(1, 1)) -> ShapeError: (1, 1) … one number, or one for each sequence … start.flatten()
ww.Positions.packed([3, 0]) -> PositionError: [3, 0] … each of at least one token … Leave empty documents out
ww.Positions.from_mask(torch.tensor([[0, 2]])) -> PositionError: 2 at (0, 1) … 0 and 1 … mask == value
ww.Positions.from_mask(tokens(1, 1, 1)) -> ShapeError: (1, 1, 1) … (batch, tokens) … one row for each sequence
ww.Positions.grid() -> ShapeError: no size … at least one … Positions.grid(14, 14)
ww.Positions.randomized(8, max_length=5) ->
    PositionError: randomized(8, max_length=5) … from 0 to max_length … a larger max_length
ww.positions(3)[1] -> PositionError: indexed with 1 … sliced along tokens … p[t : t + 1]
ww.positions(3).append(ww.positions(1)) -> PositionError: order 0 … must be later … positions(n, start=3)
ww.Positions.grid(2, 2).append(ww.positions(1, start=4)) ->
    ShapeError: 1 axes and batch 1 … axes must be equal … slice them
ww.Sinusoidal(7) -> ShapeError: dim=7 … an even number … 6 and 8
ww.Sinusoidal(2, layout="tensor2tensor") -> ShapeError: tensor2tensor … at least 4
ww.Sinusoidal(8, layout="zigzag") -> SettingError: 'zigzag' … tensor2tensor
ww.Rotary(5) -> ShapeError: head_dim=5 … an even number … 4 and 6
ww.Rotary(8, rotary_dim=16) -> ShapeError: rotary_dim=16 … head_dim=8
ww.Rotary(8, theta=-1.0) -> SettingError: theta=-1.0 … a finite number above 0
ww.TokenEmbedding(0, 8) -> ShapeError: num_embeddings=0 … at least 1
ww.TokenEmbedding(20, 8, init="xavier") -> SettingError: 'xavier' … glorot_uniform, glorot_normal, fan_in_uniform
ww.TokenEmbedding(20, 8, init=0.0) -> SettingError: init=0.0 … a finite number above 0
ww.TokenEmbedding.from_weight(torch.zeros(3)) -> ShapeError: (3,) … (vocab_size, dim) … a matrix
ww.TokenEmbedding(20, 8).readout(torch.zeros(2, 4)) -> ShapeError: (2, 4) … (..., 8) … Project them
ww.scheme("rotary", dim=10, num_heads=4, max_length=8) -> ShapeError: num_heads=4 … dim=10 … 8 and 12
ww.scheme("Rotery", dim=8, num_heads=2, max_length=8) -> UnknownScheme: 'Rotery' … catalogue … Did you mean rotary
ww.scheme("learned+sinusoidal", dim=8, num_heads=2, max_length=8) ->
    SettingError: 'learned+sinusoidal' … each door takes one
ww.scheme("rotary+alibi", dim=8, num_heads=2, max_length=8, theta=5.0) ->
    SettingError: ['theta'] … 'rotary+alibi' … Where(
ww.InputLayer(20, 8, input=ww.Rotary(8)) -> DoorError: Rotary acts on queries and keys … token vectors … Where(
ww.InputLayer(20, 8, input=torch.nn.Embedding(9, 8)) -> DoorError: an Embedding … InputEncoding … Learned(8, 9)
ww.Where(score=ww.Rotary(8)) -> DoorError: Rotary … added to the scores … Where(query_key=...)
ww.Where(query_key=ww.Rotary) -> DoorError: the class Rotary … needs a QueryKeyMap … Rotary(...)
ww.Where(input="sinusoidal") -> DoorError: 'sinusoidal' … needs an InputEncoding … whatwhere.scheme('sinusoidal'
ww.InputLayer(20, 8, input=ww.Learned(6, 4)) -> ShapeError: dim=6 … dim=8 … Make both equal
ww.Where(input=ww.Sinusoidal(8)).at(ww.positions(3)).input(torch.zeros(1, 3, 6)) ->
    ShapeError: dim 6 … has 8 … Make both equal
ww.Where().at(ww.positions(3)).input(torch.zeros(1, 4, 6)) ->
    ShapeError: (1, 4, 6) … (batch, 3, dim) … where.at(x.shape[1])
ww.Rotary(8)(torch.zeros(1, 3, 8), torch.zeros(1, 3, 8), ww.positions(3)) ->
    ShapeError: (1, 3, 8) … (batch, heads, tokens, head_dim) … x.unflatten(
ww.Rotary(8)(torch.zeros(1, 3, 2, 8), torch.zeros(1, 3, 2, 8), ww.positions(3)) ->
    ShapeError: 2 tokens … the positions 3 … q.transpose(1, 2)
ww.Rotary(8)(torch.zeros(1, 2, 3, 8), torch.zeros(1, 2, 3, 4), ww.positions(3)) ->
    ShapeError: k has shape (1, 2, 3, 4) … head_dim=8
ww.Rotary(8)(*[torch.zeros(3, 2, 1, 8)] * 2, torch.tensor([[1], [2]])) -> ShapeError: q has batch 3 … equal or 1
attend((1, 2, 3, 4), (1, 2, 5, 4)) ->
    ShapeError: k has shape (1, 2, 5, 4) … (batch, heads, 3, head_dim) … where.at(queries, keys)
attend((1, 4, 3, 4), score=ww.ALiBi(2)) -> ShapeError: q has 4 heads … num_heads=2 … Make both equal
attend((1, 4, 3, 4), (1, 3, 3, 4)) -> ShapeError: k (1, 3, 3, 4) … divide the query heads
attend((1, 2, 3, 4), engine="fast") -> SettingError: 'fast' … auto, dense, sdpa, flex
attend((1, 2, 3, 4), dropout=1.0) -> SettingError: dropout=1.0 … at least 0 and below 1
attend((1, 2, 3, 4), dropout=0.1, engine="flex") -> SettingError: FlexAttention … dropout … engine='sdpa'
ww.Positions.from_mask(tokens(2, 3)).mask(ww.Positions.from_mask(tokens(3, 3))) ->
    ShapeError: batch 2 and the keys' 3 … equal batches, or 1 … for one batch of sequences
ww.bind([ww.Where()], tokens(3, 1, 1), tokens(3, 1, 4)) ->
    PositionError: position ids of several axes … which keys are later … where.at(p[t:], p)
text.encode(text.words("the cat"), " \n") -> TextError: empty … nothing to encode … Pass some text
text.train("word", ["", " "]) -> TextError: every text is empty … no text to train on … files=[
text.encode(text.words("the cat"), "the dog") -> TextError: 'dog' … no unknown token … unknown="[UNK]"
text.train("syllable", "the cat") -> SettingError: 'syllable' … word, bpe, byte, character … Pass one of these
text.train("bpe", "the cat", vocab_size=100) -> SettingError: got 100 … at least 256 … a larger one
text.from_vocabulary({}) -> TextError: empty … words with their ids … {"The": 0, "cat": 1}
text.from_vocabulary({"a": "0"}) -> TextError: '0' … whole numbers from 0 … an int
text.from_vocabulary({"a": 0}, unknown="?") -> TextError: unknown='?' … not in the vocabulary … Add it
text.from_vocabulary({"a": 0, "b": 0}) -> TextError: 'a' and 'b' share id 0 … one word … another id
ww.TokenEmbedding.from_weight(torch.nn.Embedding(4, 2)) -> ShapeError: Embedding … must be a tensor … Pass its weight
ww.InputLayer(10, 4)([[1, 2]]) -> TokenError: list … tensor of whole numbers … torch.tensor(ids)
ww.Positions(torch.arange(8)) -> PositionError: Tensor alone … coordinates and of order … where.at(tensor)
ww.Positions.from_mask(torch.ones(2, 5)) -> PositionError: torch.float32 … True and False, or 1 and 0 … mask.bool()
ww.positions(torch.ones(2, 5, dtype=torch.long)) -> PositionError: Tensor[2, 5] … a whole number … ids.shape[-1]
text.from_vocabulary({"The": 0}, lowercase=True) -> TextError: 'The' … lowercase=True … in lower case
"""


@short_refusals(REFUSALS)
def test_every_error_has_three_parts(call, error, parts):
    given, needed, *way_out = parts.split(" … ")
    require_parts(refused(call, error, globals()), given, needed, *way_out)


def test_a_content_scheme_has_no_table():
    class Content(ww.ScoreBias):
        by_content = True

        def bind(self, queries, keys, **given):
            raise AssertionError("not to be reached")

    with pytest.raises(ww.errors.DoorError) as caught:
        Content()(ww.positions(3))
    require_parts(str(caught.value), "Content", "queries and keys", "here.attention(q, k, v)")


@pytest.mark.parametrize("read", [text.read_text, text.load, lambda file: text.train("word", files=[file])])
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.txt", None, "cannot be read: No such file or directory.\nCheck the path."),
        (".", None, "cannot be read: Is a directory.\nCheck the path."),
        ("latin.txt", "zwölf Boxkämpfer".encode("latin-1"), "is not UTF-8: byte 0xf6 at offset 2 does not fit.\n"
         "If it is Latin-1, convert it: iconv -f latin1 -t utf8 latin.txt"),
        ("empty.txt", b"", "is empty, but needs text.\nCheck the path."),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_read(read, name, content, message, tmp_path):
    file = tmp_path / name
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ww.errors.TextError) as caught:
        read(file)
    assert str(caught.value) == f"{file} {message}"


HALF = "\ud800"
TRAINED = torch.zeros(1, 2, 3, 4, requires_grad=True)
UNSEEN = r"""
ww.positions(2.5) -> PositionError: n=2.5, but need a whole number
ww.positions(2, start=torch.tensor([1.7])) -> PositionError: dtype torch.float32
ww.Positions.from_mask(torch.tensor([0.5, 1.0])) -> PositionError: dtype torch.float32
ww.Positions.from_position_ids([1, 2]) -> PositionError: given as list, but must be a tensor of whole numbers
ww.positions(3)[::-1] -> PositionError: are sliced along tokens
ww.TokenEmbedding(5, 2, padding_idx=1.5) -> TokenError: padding_idx=1.5 is outside
ww.TokenEmbedding(5, 2, padding_idx=-6) -> TokenError: padding_idx=-6 is outside
ww.Where(ww.Rotary(8)).at(torch.tensor(5)) -> ShapeError: have () … for n tokens int(n)
ww.scheme(3, 8, 2, 4) -> UnknownScheme: takes a name, but got 3
ww.scheme("rotary", 8, 2, 8, speed=3) -> SettingError: 'rotary' does not take these options: … 'speed'
ww.scheme("alibi", 10, 3, 4) -> ShapeError: does not divide into num_heads=3
text.encode(text.train("byte", "a"), HALF) -> TextError: half a character
text.read_text("a\0b") -> TextError: cannot be read … embedded null
text.encode(Tokenizer(models.BPE({"a": 0, "b": 1}, [])), "abz") ->
    TextError: has no token for 'z' at character 2 and would leave it out
ww.InputLayer(5, 4)(torch.tensor([[1, 2]]), torch.tensor([[0, 1], [1, 2], [2, 3]])) ->
    ShapeError: token vectors have batch 1, but the positions 3
ww.Where().at(ww.positions(3)).attention(TRAINED, TRAINED, TRAINED, engine="flex") ->
    SettingError: has no backward on the CPU: train with engine='sdpa', or evaluate under torch.no_grad()
attend((2, 2, 3, 4), (1, 2, 3, 4)) -> ShapeError: need one batch
attend((2, 2, 3, 4), mask=torch.ones(2, 3, dtype=torch.bool)) ->
    ShapeError: mask has shape (2, 3) … where.at(Positions.from_mask(mask))
attend((2, 2, 3, 4), mask=torch.ones(1, 1, 3, 3)) -> ShapeError: needs bool
attend((2, 2, 3, 4), mask=torch.ones(1, 1, 3, 4, dtype=torch.bool)) -> ShapeError: needs bool and (2, 2, 3, 3)
"""


@short_refusals(UNSEEN)
def test_what_pytorch_would_accept_silently_or_report_badly(call, error, parts):
    require_refused(call, error, parts, globals())


@pytest.mark.parametrize(("queries", "keys"), [(2, 0), (1, 2)])
def test_one_batch_of_queries_and_keys_for_what_is_computed_from_both(queries, keys):
    with pytest.raises(ww.errors.ShapeError, match="need one batch"):
        attend((queries, 2, 3, 4), (keys, 2, 3, 4), score=ww.CoPE(4, 2, max_distance=3))
