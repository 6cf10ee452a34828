"""The errors: each message has what was given, what is needed and why, and the way out."""

import builtins

import jaxtyping
import pytest
import torch
from tokenizers import Tokenizer, models

import whatwhere as ww
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
    assert ours == {*BUILT_IN, "WhatWhereError", "RandomPositionsWarning"}
    assert issubclass(errors.RandomPositionsWarning, UserWarning)
    for name, parent in BUILT_IN.items():
        assert f"{name} " in errors.__doc__
        assert f"({parent.__name__})" in errors.__doc__
        assert not hasattr(builtins, name)


def tokens(*shape):
    return torch.zeros(shape, dtype=torch.int64)


def attend(q, k=None, v=None, **settings):
    q, k, v = (torch.zeros(shape) for shape in (q, k or q, v or k or q))
    return ww.Where(score=settings.pop("score", None)).at(ww.positions(3)).attention(q, k, v, **settings)


def require_parts(message, given, needed, way_out):
    """Check that a message has what was given and what is needed, and after it the way out, unless there is none."""
    first_line, _, _ = message.partition("\n")
    assert given in first_line, message
    assert needed in first_line, message
    assert way_out is None or way_out in message[message.index(needed) + len(needed) :], message


# name: (the call, the error, what was given, what is needed, the way out or None where the requirement is one)
CASES = {
    "id too large": (
        lambda: ww.InputLayer(20, 8)(torch.tensor([[1, 2], [3, 20]])),
        ww.errors.TokenError,
        "id 20 at (1, 1)",
        "0..19",
        "make the table larger",
    ),
    "id negative": (
        lambda: ww.TokenEmbedding(20, 8)(torch.tensor([-100])),
        ww.errors.TokenError,
        "id -100 at (0,)",
        "0..19",
        "Check that the tokenizer",
    ),
    "ids that are no whole numbers": (
        lambda: ww.TokenEmbedding(20, 8)(torch.zeros(3)),
        ww.errors.TokenError,
        "torch.float32",
        "whole numbers",
        "ids.long()",
    ),
    "ids that are truth values": (
        lambda: ww.TokenEmbedding(20, 8)(torch.zeros(3, dtype=torch.bool)),
        ww.errors.TokenError,
        "torch.bool",
        "whole numbers",
        "ids.long()",
    ),
    "padding outside": (
        lambda: ww.TokenEmbedding(20, 8, padding_idx=20),
        ww.errors.TokenError,
        "padding_idx=20",
        "0..19",
        "or None",
    ),
    "padding negative": (
        lambda: ww.InputLayer(20, 8, padding_idx=-1),
        ww.errors.TokenError,
        "padding_idx=-1",
        "0..19",
        "or None",
    ),
    "one sequence without a batch": (
        lambda: ww.InputLayer(20, 8)(tokens(3)),
        ww.errors.ShapeError,
        "(3,)",
        "(batch, tokens)",
        "ids[None]",
    ),
    "position negative": (
        lambda: ww.Positions.from_position_ids(torch.tensor([[0, 1], [0, -1]])),
        ww.errors.PositionError,
        "position -1 at (0, 1, 1)",
        "count from 0",
        "Positions.from_mask(mask)",
    ),
    "position negative in a layer": (
        lambda: ww.InputLayer(20, 8, input=ww.Sinusoidal(8))(tokens(1, 2), torch.tensor([[-2, 1]])),
        ww.errors.PositionError,
        "position -2 at (0, 0, 0)",
        "count from 0",
        "Positions.from_mask(mask)",
    ),
    "start negative": (
        lambda: ww.positions(3, start=-1),
        ww.errors.PositionError,
        "start=-1",
        "0 or more",
        "Positions.from_mask(mask)",
    ),
    "a negative number of tokens": (lambda: ww.positions(-2), ww.errors.PositionError, "n=-2", "0 or more", None),
    "position beyond a learned table": (
        lambda: ww.Learned(8, 1024)(torch.tensor([[3, 1500]])),
        ww.errors.PositionError,
        "position 1500",
        "(0..1023)",
        "ids[:, :1024]",
    ),
    "a text longer than a learned table": (
        lambda: ww.InputLayer(20, 8, input=ww.Learned(8, 4))(tokens(1, 6)),
        ww.errors.PositionError,
        "position 4",
        "(0..3)",
        "Sinusoidal, Rotary or ALiBi",
    ),
    "positions that are a list": (
        lambda: ww.Sinusoidal(8)([0, 1]),
        ww.errors.PositionError,
        "list",
        "Positions, an integer tensor or a number",
        "torch.tensor(",
    ),
    "positions that are no whole numbers": (
        lambda: ww.Sinusoidal(8)(torch.tensor([0.0, 1.0])),
        ww.errors.PositionError,
        "torch.float32",
        "whole numbers",
        "Positions.from_mask(mask)",
    ),
    "positions of too many axes": (
        lambda: ww.Positions.from_position_ids(tokens(1, 1, 1, 1)),
        ww.errors.ShapeError,
        "(1, 1, 1, 1)",
        "(axes, batch, tokens)",
        "ids.squeeze()",
    ),
    "a scheme of one axis on a grid": (
        lambda: ww.ALiBi(2)(ww.Positions.grid(2, 2)),
        ww.errors.PositionError,
        "have 2",
        "along one axis",
        "Positions.from_position_ids(p.index[0])",
    ),
    "a start of two axes": (
        lambda: ww.positions(3, start=tokens(1, 1)),
        ww.errors.ShapeError,
        "(1, 1)",
        "one number, or one for each sequence",
        "start.flatten()",
    ),
    "an empty document": (
        lambda: ww.Positions.packed([3, 0]),
        ww.errors.PositionError,
        "[3, 0]",
        "each of at least one token",
        "Leave empty documents out",
    ),
    "no document": (
        lambda: ww.Positions.packed([]),
        ww.errors.PositionError,
        "[]",
        "at least one document",
        "Leave empty documents out",
    ),
    "a mask of other numbers": (
        lambda: ww.Positions.from_mask(torch.tensor([[0, 2]])),
        ww.errors.PositionError,
        "2 at (0, 1)",
        "0 and 1",
        "mask == value",
    ),
    "a mask of three axes": (
        lambda: ww.Positions.from_mask(tokens(1, 1, 1)),
        ww.errors.ShapeError,
        "(1, 1, 1)",
        "(batch, tokens)",
        "one row for each sequence",
    ),
    "more samples than positions": (
        lambda: ww.Positions.randomized(8, max_length=5),
        ww.errors.PositionError,
        "randomized(8, max_length=5)",
        "from 0 to max_length",
        "a larger max_length",
    ),
    "a grid of nothing": (
        lambda: ww.Positions.grid(),
        ww.errors.ShapeError,
        "no size",
        "at least one",
        "Positions.grid(14, 14)",
    ),
    "one token by its number": (
        lambda: ww.positions(3)[1],
        ww.errors.PositionError,
        "indexed with 1",
        "sliced along tokens",
        "p[t : t + 1]",
    ),
    "tokens appended that are not later": (
        lambda: ww.positions(3).append(ww.positions(1)),
        ww.errors.PositionError,
        "order 0",
        "must be later",
        "positions(n, start=3)",
    ),
    "axes that do not match": (
        lambda: ww.Positions.grid(2, 2).append(ww.positions(1, start=4)),
        ww.errors.ShapeError,
        "1 axes and batch 1",
        "axes must be equal",
        "slice them",
    ),
    "odd dim for sinusoidal": (lambda: ww.Sinusoidal(7), ww.errors.ShapeError, "dim=7", "an even number", "6 and 8"),
    "tensor2tensor of one pair": (
        lambda: ww.Sinusoidal(2, layout="tensor2tensor"),
        ww.errors.ShapeError,
        "tensor2tensor",
        "at least 4",
        None,
    ),
    "an unknown layout": (
        lambda: ww.Sinusoidal(8, layout="zigzag"),
        ww.errors.SettingError,
        "'zigzag'",
        "tensor2tensor",
        None,
    ),
    "odd dim for rotary": (lambda: ww.Rotary(5), ww.errors.ShapeError, "head_dim=5", "an even number", "4 and 6"),
    "odd part for rotary": (
        lambda: ww.Rotary(8, rotary_dim=3),
        ww.errors.ShapeError,
        "rotary_dim=3",
        "an even number",
        "2 and 4",
    ),
    "a part larger than the head": (
        lambda: ww.Rotary(8, rotary_dim=16),
        ww.errors.ShapeError,
        "rotary_dim=16",
        "head_dim=8",
        None,
    ),
    "theta negative": (
        lambda: ww.Rotary(8, theta=-1.0),
        ww.errors.SettingError,
        "theta=-1.0",
        "a finite number above 0",
        None,
    ),
    "no heads": (lambda: ww.ALiBi(0), ww.errors.ShapeError, "num_heads=0", "at least 1", None),
    "no rows": (lambda: ww.Learned(8, 0), ww.errors.ShapeError, "max_length=0", "at least 1", None),
    "no vocabulary": (lambda: ww.TokenEmbedding(0, 8), ww.errors.ShapeError, "num_embeddings=0", "at least 1", None),
    "an unknown init": (
        lambda: ww.TokenEmbedding(20, 8, init="xavier"),
        ww.errors.SettingError,
        "'xavier'",
        "glorot_uniform, glorot_normal, fan_in_uniform",
        None,
    ),
    "an unknown scale": (
        lambda: ww.TokenEmbedding(20, 8, scale="sqrt"),
        ww.errors.SettingError,
        "'sqrt'",
        "sqrt_dim, sqrt_dim_rounded",
        None,
    ),
    "a deviation of zero": (
        lambda: ww.TokenEmbedding(20, 8, init=0.0),
        ww.errors.SettingError,
        "init=0.0",
        "a finite number above 0",
        None,
    ),
    "a table of one axis": (
        lambda: ww.TokenEmbedding.from_weight(torch.zeros(3)),
        ww.errors.ShapeError,
        "(3,)",
        "(vocab_size, dim)",
        "a matrix",
    ),
    "a table of whole numbers": (
        lambda: ww.TokenEmbedding.from_weight(tokens(3, 2)),
        ww.errors.ShapeError,
        "torch.int64",
        "floating-point",
        "weight.float()",
    ),
    "hidden states of another dim": (
        lambda: ww.TokenEmbedding(20, 8).readout(torch.zeros(2, 4)),
        ww.errors.ShapeError,
        "(2, 4)",
        "(..., 8)",
        "Project them",
    ),
    "heads that do not divide": (
        lambda: ww.scheme("rotary", dim=10, num_heads=4, max_length=8),
        ww.errors.ShapeError,
        "num_heads=4",
        "dim=10",
        "8 and 12",
    ),
    "heads of an odd size": (
        lambda: ww.scheme("rotary", dim=12, num_heads=4, max_length=8),
        ww.errors.ShapeError,
        "head_dim=3",
        "an even number",
        "2 and 4",
    ),
    "an unknown scheme with a near name": (
        lambda: ww.scheme("Rotery", dim=8, num_heads=2, max_length=8),
        ww.errors.UnknownScheme,
        "'Rotery'",
        "catalogue",
        "Did you mean rotary",
    ),
    "an unknown scheme far from all": (
        lambda: ww.scheme("xyz", dim=8, num_heads=2, max_length=8),
        ww.errors.UnknownScheme,
        "'xyz'",
        "catalogue",
        "sinusoidal",
    ),
    "an unknown scheme in a mixture": (
        lambda: ww.scheme("rotary+alibbi", dim=8, num_heads=2, max_length=8),
        ww.errors.UnknownScheme,
        "'alibbi'",
        "catalogue",
        "Did you mean alibi",
    ),
    "two schemes at one door": (
        lambda: ww.scheme("learned+sinusoidal", dim=8, num_heads=2, max_length=8),
        ww.errors.SettingError,
        "'learned+sinusoidal'",
        "each door takes one",
        None,
    ),
    "options for a mixture": (
        lambda: ww.scheme("rotary+alibi", dim=8, num_heads=2, max_length=8, theta=5.0),
        ww.errors.SettingError,
        "['theta']",
        "'rotary+alibi'",
        "Where(",
    ),
    "rotary at the input": (
        lambda: ww.InputLayer(20, 8, input=ww.Rotary(8)),
        ww.errors.DoorError,
        "Rotary acts on queries and keys",
        "token vectors",
        "rope(q, k, positions)",
    ),
    "alibi at the input": (
        lambda: ww.InputLayer(20, 8, input=ww.ALiBi(2)),
        ww.errors.DoorError,
        "ALiBi is added to the scores",
        "token vectors",
        "attn_mask=alibi(",
    ),
    "sinusoidal at the queries": (
        lambda: ww.Where(query_key=ww.Sinusoidal(8)),
        ww.errors.DoorError,
        "Sinusoidal",
        "acts on queries and keys",
        "Where(input=...)",
    ),
    "rotary at the scores": (
        lambda: ww.Where(score=ww.Rotary(8)),
        ww.errors.DoorError,
        "Rotary",
        "added to the scores",
        "Where(query_key=...)",
    ),
    "the class in place of a scheme": (
        lambda: ww.Where(query_key=ww.Rotary),
        ww.errors.DoorError,
        "the class Rotary",
        "needs a QueryKeyMap",
        "Rotary(...)",
    ),
    "no scheme at all": (
        lambda: ww.Where(input="sinusoidal"),
        ww.errors.DoorError,
        "'sinusoidal'",
        "needs an InputEncoding",
        "whatwhere.scheme('sinusoidal'",
    ),
    "a scheme of another dim": (
        lambda: ww.InputLayer(20, 8, input=ww.Learned(6, 4)),
        ww.errors.ShapeError,
        "dim=6",
        "dim=8",
        "Make both equal",
    ),
    "vectors of another dim": (
        lambda: ww.Where(input=ww.Sinusoidal(8)).at(ww.positions(3)).input(torch.zeros(1, 3, 6)),
        ww.errors.ShapeError,
        "dim 6",
        "has 8",
        "Make both equal",
    ),
    "vectors of another length": (
        lambda: ww.Where().at(ww.positions(3)).input(torch.zeros(1, 4, 6)),
        ww.errors.ShapeError,
        "(1, 4, 6)",
        "(batch, 3, dim)",
        "where.at(x.shape[1])",
    ),
    "queries without heads": (
        lambda: ww.Rotary(8)(torch.zeros(1, 3, 8), torch.zeros(1, 3, 8), ww.positions(3)),
        ww.errors.ShapeError,
        "(1, 3, 8)",
        "(batch, heads, tokens, head_dim)",
        "x.unflatten(",
    ),
    "heads and tokens swapped": (
        lambda: ww.Rotary(8)(torch.zeros(1, 3, 2, 8), torch.zeros(1, 3, 2, 8), ww.positions(3)),
        ww.errors.ShapeError,
        "2 tokens",
        "the positions 3",
        "q.transpose(1, 2)",
    ),
    "heads of another size": (
        lambda: ww.Rotary(8)(torch.zeros(1, 2, 3, 8), torch.zeros(1, 2, 3, 4), ww.positions(3)),
        ww.errors.ShapeError,
        "k has shape (1, 2, 3, 4)",
        "head_dim=8",
        None,
    ),
    "another batch of positions": (
        lambda: ww.Rotary(8)(*[torch.zeros(3, 2, 1, 8)] * 2, torch.tensor([[1], [2]])),
        ww.errors.ShapeError,
        "q has batch 3",
        "equal or 1",
        None,
    ),
    "more keys than are bound": (
        lambda: attend((1, 2, 3, 4), (1, 2, 5, 4)),
        ww.errors.ShapeError,
        "k has shape (1, 2, 5, 4)",
        "(batch, heads, 3, head_dim)",
        "where.at(queries, keys)",
    ),
    "another number of heads": (
        lambda: attend((1, 4, 3, 4), score=ww.ALiBi(2)),
        ww.errors.ShapeError,
        "q has 4 heads",
        "num_heads=2",
        "Make both equal",
    ),
    "key heads that do not divide": (
        lambda: attend((1, 4, 3, 4), (1, 3, 3, 4)),
        ww.errors.ShapeError,
        "k (1, 3, 3, 4)",
        "divide the query heads",
        None,
    ),
    "values of other tokens": (
        lambda: attend((1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 2, 4)),
        ww.errors.ShapeError,
        "v (1, 2, 2, 4)",
        "the same tokens",
        None,
    ),
    "an unknown engine": (
        lambda: attend((1, 2, 3, 4), engine="fast"),
        ww.errors.SettingError,
        "'fast'",
        "auto, dense, sdpa, flex",
        None,
    ),
    "everything dropped": (
        lambda: attend((1, 2, 3, 4), dropout=1.0),
        ww.errors.SettingError,
        "dropout=1.0",
        "at least 0 and below 1",
        None,
    ),
    "a negative dropout": (
        lambda: attend((1, 2, 3, 4), dropout=-0.1),
        ww.errors.SettingError,
        "dropout=-0.1",
        "at least 0 and below 1",
        None,
    ),
    "dropout in flex": (
        lambda: attend((1, 2, 3, 4), dropout=0.1, engine="flex"),
        ww.errors.SettingError,
        "FlexAttention",
        "dropout",
        "engine='sdpa'",
    ),
    "queries and keys of other batches": (
        lambda: ww.Positions.from_mask(tokens(2, 3)).mask(ww.Positions.from_mask(tokens(3, 3))),
        ww.errors.ShapeError,
        "batch 2 and the keys' 3",
        "equal batches, or 1",
        "for one batch of sequences",
    ),
    "several axes that are not slices of one sequence": (
        lambda: ww.bind([ww.Where()], tokens(3, 1, 1), tokens(3, 1, 4)),
        ww.errors.PositionError,
        "position ids of several axes",
        "which keys are later",
        "where.at(p[t:], p)",
    ),
    "an empty text": (
        lambda: text.encode(text.words("the cat"), " \n"),
        ww.errors.TextError,
        "empty",
        "nothing to encode",
        "Pass some text",
    ),
    "an empty text of words": (
        lambda: text.words(""),
        ww.errors.TextError,
        "empty",
        "nothing to encode",
        "Pass some text",
    ),
    "nothing to train on": (
        lambda: text.train("word", ["", "  "]),
        ww.errors.TextError,
        "every text is empty",
        "no text to train on",
        "files=[",
    ),
    "a word that is not known": (
        lambda: text.encode(text.words("the cat"), "the dog"),
        ww.errors.TextError,
        "'dog'",
        "no unknown token",
        'unknown="[UNK]"',
    ),
    "an unknown kind": (
        lambda: text.train("syllable", "the cat"),
        ww.errors.SettingError,
        "'syllable'",
        "word, bpe, byte, character",
        "Pass one of these",
    ),
    "a vocabulary smaller than the bytes": (
        lambda: text.train("bpe", "the cat", vocab_size=100),
        ww.errors.SettingError,
        "got 100",
        "at least 256",
        "a larger one",
    ),
    "an empty vocabulary": (
        lambda: text.from_vocabulary({}),
        ww.errors.TextError,
        "empty",
        "words with their ids",
        '{"The": 0, "cat": 1}',
    ),
    "two words with one id": (
        lambda: text.from_vocabulary({"a": 0, "b": 0}),
        ww.errors.TextError,
        "'a' and 'b' share id 0",
        "one word",
        "another id",
    ),
    "an id that is no number": (
        lambda: text.from_vocabulary({"a": "0"}),
        ww.errors.TextError,
        "'0'",
        "whole numbers from 0",
        "an int",
    ),
    "an unknown word that is not there": (
        lambda: text.from_vocabulary({"a": 0}, unknown="?"),
        ww.errors.TextError,
        "unknown='?'",
        "not in the vocabulary",
        "Add it",
    ),
    "a table of another module": (
        lambda: ww.TokenEmbedding.from_weight(torch.nn.Embedding(4, 2)),
        ww.errors.ShapeError,
        "Embedding",
        "must be a tensor",
        "Pass its weight",
    ),
    "a table in a list": (
        lambda: ww.TokenEmbedding.from_pretrained([[1.0, 2.0]]),
        ww.errors.ShapeError,
        "list",
        "must be a tensor",
        "torch.tensor(rows)",
    ),
    "ids in a list": (
        lambda: ww.InputLayer(10, 4)([[1, 2]]),
        ww.errors.TokenError,
        "list",
        "tensor of whole numbers",
        "torch.tensor(ids)",
    ),
    "ids of a table in a list": (
        lambda: ww.TokenEmbedding(10, 4)([1, 2]),
        ww.errors.TokenError,
        "list",
        "tensor of whole numbers",
        "torch.tensor(ids)",
    ),
    "Positions of a number": (
        lambda: ww.Positions(8),
        ww.errors.PositionError,
        "int alone",
        "coordinates and of order",
        "positions(n)",
    ),
    "Positions of a tensor": (
        lambda: ww.Positions(torch.arange(8)),
        ww.errors.PositionError,
        "Tensor alone",
        "coordinates and of order",
        "where.at(tensor)",
    ),
    "a mask of real numbers": (
        lambda: ww.Positions.from_mask(torch.ones(2, 5)),
        ww.errors.PositionError,
        "torch.float32",
        "True and False, or 1 and 0",
        "mask.bool()",
    ),
    "positions of ids": (
        lambda: ww.positions(torch.ones(2, 5, dtype=torch.long)),
        ww.errors.PositionError,
        "Tensor[2, 5]",
        "a whole number",
        "ids.shape[-1]",
    ),
    "a word that no text has in lower case": (
        lambda: text.from_vocabulary({"The": 0}, lowercase=True),
        ww.errors.TextError,
        "'The'",
        "lowercase=True",
        "in lower case",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_every_error_has_three_parts(case):
    call, error, *parts = CASES[case]
    with pytest.raises(error) as caught:
        call()
    assert type(caught.value) is error
    require_parts(str(caught.value), *parts)


WHOLE = {
    "id too large": (
        "id 20 at (1, 1) is outside the vocabulary, which has 20 tokens (0..19).\n"
        "Check that the tokenizer belongs to this table, or make the table larger."
    ),
    "position negative": (
        "position -1 at (0, 1, 1) is negative, but positions count from 0.\n"
        "For padding on the left use Positions.from_mask(mask)."
    ),
    "rotary at the scores": (
        "Where(score=...) is added to the scores, but Rotary acts on queries and keys.\n"
        "Pass it as Where(query_key=...)."
    ),
}


@pytest.mark.parametrize("case", WHOLE)
def test_a_whole_message_reads_well(case):
    call, error, *_ = CASES[case]
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == WHOLE[case]


def test_options_that_a_scheme_does_not_have():
    with pytest.raises(ww.errors.SettingError) as caught:
        ww.scheme("rotary", dim=8, num_heads=2, max_length=8, speed=3)
    assert str(caught.value).startswith("'rotary' does not take these options: ")
    assert "'speed'" in str(caught.value)


def test_a_content_scheme_has_no_table():
    class Content(ww.ScoreBias):
        by_content = True

        def bind(self, queries, keys, **given):
            raise AssertionError("not to be reached")

    with pytest.raises(ww.errors.DoorError) as caught:
        Content()(ww.positions(3))
    require_parts(str(caught.value), "Content", "queries and keys", "here.attention(q, k, v)")


def test_flex_cannot_train_on_the_cpu():
    q = torch.zeros(1, 2, 3, 4, requires_grad=True)
    with pytest.raises(ww.errors.SettingError) as caught:
        ww.Where().at(ww.positions(3)).attention(q, q, q, engine="flex")
    assert str(caught.value) == (
        "FlexAttention has no backward on the CPU: train with engine='sdpa', or evaluate under torch.no_grad()."
    )


READERS = {
    "read_text": text.read_text,
    "load": text.load,
    "train": lambda file: text.train("word", files=[file]),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_file_that_is_not_there(read, tmp_path):
    with pytest.raises(ww.errors.TextError) as caught:
        read(tmp_path / "none.txt")
    assert str(caught.value) == f"{tmp_path / 'none.txt'} cannot be read: No such file or directory.\nCheck the path."


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_folder_in_place_of_a_file(read, tmp_path):
    with pytest.raises(ww.errors.TextError) as caught:
        read(tmp_path)
    assert str(caught.value) == f"{tmp_path} cannot be read: Is a directory.\nCheck the path."


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_file_that_is_not_utf_8(read, tmp_path):
    file = tmp_path / "latin.txt"
    file.write_bytes("zwölf Boxkämpfer".encode("latin-1"))
    with pytest.raises(ww.errors.TextError) as caught:
        read(file)
    assert str(caught.value) == (
        f"{file} is not UTF-8: byte 0xf6 at offset 2 does not fit.\n"
        "If it is Latin-1, convert it: iconv -f latin1 -t utf8 latin.txt"
    )


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_file_that_is_empty(read, tmp_path):
    (tmp_path / "empty.txt").touch()
    with pytest.raises(ww.errors.TextError) as caught:
        read(tmp_path / "empty.txt")
    assert str(caught.value) == f"{tmp_path / 'empty.txt'} is empty, but needs text.\nCheck the path."


HALF = "\ud800"


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ww.positions(2.5), ww.errors.PositionError, r"n=2\.5, but need a whole number"),
        (lambda: ww.positions(2, start=1.5), ww.errors.PositionError, r"start=1\.5"),
        (lambda: ww.positions(2, start=torch.tensor([1.7])), ww.errors.PositionError, r"dtype torch\.float32"),
        (lambda: ww.Positions.from_mask(torch.tensor([0.5, 1.0])), ww.errors.PositionError, r"dtype torch\.float32"),
        (
            lambda: ww.Positions.from_position_ids([1, 2]),
            ww.errors.PositionError,
            r"given as list, but must be a tensor of whole numbers",
        ),
        (lambda: ww.positions(3)[::-1], ww.errors.PositionError, "are sliced along tokens"),
        (lambda: ww.TokenEmbedding(5, 2, padding_idx=1.5), ww.errors.TokenError, r"padding_idx=1\.5 is outside"),
        (lambda: ww.scheme(3, 8, 2, 4), ww.errors.UnknownScheme, "takes a name, but got 3"),
        (lambda: ww.scheme("alibi", 10, 3, 4), ww.errors.ShapeError, "does not divide into num_heads=3"),
        (lambda: ww.text.encode(ww.text.train("byte", "a"), HALF), ww.errors.TextError, "half a character"),
        (lambda: ww.text.train("word", HALF), ww.errors.TextError, "half a character"),
        (lambda: ww.text.words(HALF), ww.errors.TextError, "half a character"),
        (
            lambda: ww.text.read_text("a\0b"),
            ww.errors.TextError,
            "cannot be read: (embedded null byte|stat: embedded null character in path)",
        ),
        (
            lambda: ww.text.encode(Tokenizer(models.BPE({"a": 0, "b": 1}, [])), "abz"),
            ww.errors.TextError,
            "has no token for 'z' at character 2 and would leave it out",
        ),
        (
            lambda: ww.InputLayer(5, 4)(torch.tensor([[1, 2]]), torch.tensor([[0, 1], [1, 2], [2, 3]])),
            ww.errors.ShapeError,
            "token vectors have batch 1, but the positions 3",
        ),
        (lambda: attend((2, 2, 3, 4), (1, 2, 3, 4)), ww.errors.ShapeError, "need one batch"),
        *(
            (lambda score=score, sizes=sizes: attend(*sizes, score=score), ww.errors.ShapeError, "need one batch")
            for score in (ww.TransformerXL(num_heads=2, head_dim=4), ww.CoPE(num_heads=2, head_dim=4, max_distance=3))
            for sizes in (((2, 2, 3, 4), (0, 2, 3, 4)), ((2, 2, 3, 4), (3, 2, 3, 4)), ((1, 2, 3, 4), (2, 2, 3, 4)))
        ),
        (
            lambda: attend((2, 2, 3, 4), mask=torch.ones(2, 3, dtype=torch.bool)),
            ww.errors.ShapeError,
            r"mask has shape \(2, 3\)(.|\n)*where\.at\(Positions\.from_mask\(mask\)\)",
        ),
        (lambda: attend((2, 2, 3, 4), mask=torch.ones(1, 1, 3, 3)), ww.errors.ShapeError, "needs bool"),
        (
            lambda: attend((2, 2, 3, 4), mask=torch.ones(1, 1, 3, 4, dtype=torch.bool)),
            ww.errors.ShapeError,
            r"needs bool and \(2, 2, 3, 3\)",
        ),
    ],
)
def test_what_pytorch_would_accept_silently_or_report_badly(call, error, words):
    with pytest.raises(error, match=words):
        call()
