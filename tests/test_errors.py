"""The errors, word for word: what was given, what is needed and why, and the way out."""

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
    """Keep the run-time type check of the test suite from speaking first: users do not have it."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.mark.parametrize("name", BUILT_IN)
def test_each_error_is_also_the_built_in_one(name):
    error = getattr(ww, name)
    assert error is getattr(errors, name)
    assert issubclass(error, ww.WhatWhereError)
    assert issubclass(error, BUILT_IN[name])
    assert not issubclass(ww.WhatWhereError, tuple(BUILT_IN.values()))


def test_every_error_has_its_place_in_the_tree():
    ours = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and value.__module__ == "whatwhere.errors"
    }
    assert ours == {*BUILT_IN, "WhatWhereError"}
    for name, parent in BUILT_IN.items():
        assert f"{name} " in errors.__doc__
        assert f"({parent.__name__})" in errors.__doc__
        assert not hasattr(builtins, name)


def tokens(*shape):
    return torch.zeros(shape, dtype=torch.int64)


def attend(q, k=None, v=None, **settings):
    q, k, v = (torch.zeros(shape) for shape in (q, k or q, v or k or q))
    return ww.Where(score=settings.pop("score", None)).at(ww.positions(3)).attention(q, k, v, **settings)


MANY = "the catalogue holds no scheme"
# name: (what the caller does, the error, its whole text)
CASES = {
    "id too large": (
        lambda: ww.InputLayer(20, 8)(torch.tensor([[1, 2], [3, 20]])),
        ww.TokenError,
        "id 20 at (1, 1) is outside the vocabulary, which has 20 tokens (0..19).\n"
        "Check that the tokenizer belongs to this table, or make the table larger.",
    ),
    "id negative": (
        lambda: ww.TokenEmbedding(20, 8)(torch.tensor([-100])),
        ww.TokenError,
        "id -100 at (0,) is outside the vocabulary, which has 20 tokens (0..19).\n"
        "Check that the tokenizer belongs to this table, or make the table larger.",
    ),
    "ids that are no whole numbers": (
        lambda: ww.TokenEmbedding(20, 8)(torch.zeros(3)),
        ww.TokenError,
        "ids are whole numbers, but these have dtype torch.float32: pass ids.long().",
    ),
    "ids that are truth values": (
        lambda: ww.TokenEmbedding(20, 8)(torch.zeros(3, dtype=torch.bool)),
        ww.TokenError,
        "ids are whole numbers, but these have dtype torch.bool: pass ids.long().",
    ),
    "padding outside": (
        lambda: ww.TokenEmbedding(20, 8, padding_id=20),
        ww.TokenError,
        "padding_id=20 is outside the vocabulary, which has ids 0..19.",
    ),
    "padding negative": (
        lambda: ww.InputLayer(20, 8, padding_id=-1),
        ww.TokenError,
        "padding_id=-1 is outside the vocabulary, which has ids 0..19.",
    ),
    "one sequence without a batch": (
        lambda: ww.InputLayer(20, 8)(tokens(3)),
        ww.ShapeError,
        "ids have shape (batch, tokens), but these (3,).\nFor one sequence pass ids[None].",
    ),
    "position negative": (
        lambda: ww.from_position_ids(torch.tensor([[0, 1], [0, -1]])),
        ww.PositionError,
        "position -1 at (0, 1, 1) is negative, but positions count from 0.\n"
        "For padding on the left use from_mask(mask).",
    ),
    "position negative in a layer": (
        lambda: ww.InputLayer(20, 8, input=ww.Sinusoidal(8))(tokens(1, 2), torch.tensor([[-2, 1]])),
        ww.PositionError,
        "position -2 at (0, 0, 0) is negative, but positions count from 0.\n"
        "For padding on the left use from_mask(mask).",
    ),
    "start negative": (
        lambda: ww.positions(3, start=-1),
        ww.PositionError,
        "positions start at -1, but count from 0: pass start=0 or more.",
    ),
    "a negative number of tokens": (
        lambda: ww.positions(-2),
        ww.PositionError,
        "positions(n=-2) asks for a negative number of tokens; n must be 0 or more.",
    ),
    "position beyond a learned table": (
        lambda: ww.Learned(8, 1024)(torch.tensor([[3, 1500]])),
        ww.PositionError,
        "position 1500 is beyond this table, which has learned 1024 positions (0..1023).\n"
        "To read longer text, choose a scheme without a table: Sinusoidal, Rotary or ALiBi.\n"
        "To cut the text, pass ids[:, :1024].",
    ),
    "a text longer than a learned table": (
        lambda: ww.InputLayer(20, 8, input=ww.Learned(8, 4))(tokens(1, 6)),
        ww.PositionError,
        "position 4 is beyond this table, which has learned 4 positions (0..3).\n"
        "To read longer text, choose a scheme without a table: Sinusoidal, Rotary or ALiBi.\n"
        "To cut the text, pass ids[:, :4].",
    ),
    "positions that are a list": (
        lambda: ww.Sinusoidal(8)([0, 1]),
        ww.PositionError,
        "positions were given as list, but must be Positions or an integer tensor.\n"
        "For the first n tokens pass whatwhere.positions(n).",
    ),
    "positions that are no whole numbers": (
        lambda: ww.Sinusoidal(8)(torch.tensor([0.0, 1.0])),
        ww.PositionError,
        "positions are whole numbers, but these have dtype torch.float32.\n"
        "For a mask of padding use from_mask(mask), with a mask of True and False or 1 and 0.",
    ),
    "positions of too many axes": (
        lambda: ww.from_position_ids(tokens(1, 1, 1, 1)),
        ww.ShapeError,
        "position ids have shape (tokens), (batch, tokens) or (axes, batch, tokens), but these (1, 1, 1, 1).",
    ),
    "a scheme of one axis on a grid": (
        lambda: ww.ALiBi(2)(ww.grid(2, 2)),
        ww.PositionError,
        "ALiBi measures along one axis, but these positions have 2.\nChoose the axis: from_position_ids(p.index[0]).",
    ),
    "a start of two axes": (
        lambda: ww.positions(3, start=tokens(1, 1)),
        ww.ShapeError,
        "start must be a number or have one entry a sequence, but has shape (1, 1).",
    ),
    "an empty document": (
        lambda: ww.packed([3, 0]),
        ww.PositionError,
        "packed([3, 0]) needs at least one document, each of at least one token.",
    ),
    "no document": (
        lambda: ww.packed([]),
        ww.PositionError,
        "packed([]) needs at least one document, each of at least one token.",
    ),
    "a mask of other numbers": (
        lambda: ww.from_mask(torch.tensor([[0, 2]])),
        ww.PositionError,
        "a mask holds 0 and 1, but has 2 at (0, 1).",
    ),
    "a mask of three axes": (
        lambda: ww.from_mask(tokens(1, 1, 1)),
        ww.ShapeError,
        "a mask has shape (tokens) or (batch, tokens), but this one (1, 1, 1).",
    ),
    "more draws than positions": (
        lambda: ww.randomized(8, longest=5),
        ww.PositionError,
        "randomized(8, longest=5) cannot draw 8 distinct positions out of 5.",
    ),
    "a grid of nothing": (
        lambda: ww.grid(),
        ww.ShapeError,
        "grid() needs at least one size, as in grid(14, 14).",
    ),
    "one token of a ruler": (
        lambda: ww.positions(3)[1],
        ww.PositionError,
        "Positions are sliced along tokens, but were indexed with 1.\n"
        "For one token pass p[t : t + 1]; for some axes or rows, index p.index itself.",
    ),
    "tokens appended that are not later": (
        lambda: ww.positions(3).append(ww.positions(1)),
        ww.PositionError,
        "appended tokens must be later, but the first has order 0 and the last before it 2.\n"
        "Say where they start: positions(n, start=3).",
    ),
    "axes that do not match": (
        lambda: ww.grid(2, 2).append(ww.positions(1, start=4)),
        ww.ShapeError,
        "positions of 1 axes and batch 1 cannot be appended to 2 axes and batch 1: axes must be equal, "
        "batches equal or 1.",
    ),
    "odd dim for sinusoidal": (
        lambda: ww.Sinusoidal(7),
        ww.ShapeError,
        "Sinusoidal got dim=7, but needs an even number: a sine and a cosine share one frequency.\n"
        "The nearest even numbers are 6 and 8.",
    ),
    "tensor2tensor of one pair": (
        lambda: ww.Sinusoidal(2, layout="tensor2tensor"),
        ww.ShapeError,
        "Sinusoidal(layout='tensor2tensor') divides by dim/2 - 1, so dim must be at least 4, not 2.",
    ),
    "an unknown layout": (
        lambda: ww.Sinusoidal(8, layout="zigzag"),
        ww.SettingError,
        "Sinusoidal got layout='zigzag', but knows only: interleaved, halves, tensor2tensor.",
    ),
    "odd dim for rotary": (
        lambda: ww.Rotary(5),
        ww.ShapeError,
        "Rotary got head_dim=5, but needs an even number: it turns pairs of features.\n"
        "The nearest even numbers are 4 and 6.",
    ),
    "odd part for rotary": (
        lambda: ww.Rotary(8, rotary_dim=3),
        ww.ShapeError,
        "Rotary got rotary_dim=3, but needs an even number: it turns pairs of features.\n"
        "The nearest even numbers are 2 and 4.",
    ),
    "a part larger than the head": (
        lambda: ww.Rotary(8, rotary_dim=16),
        ww.ShapeError,
        "Rotary got rotary_dim=16, but a head has only head_dim=8 features.",
    ),
    "theta negative": (
        lambda: ww.Rotary(8, theta=-1.0),
        ww.SettingError,
        "Rotary got theta=-1.0, but needs a finite number above 0.",
    ),
    "no heads": (
        lambda: ww.ALiBi(0),
        ww.ShapeError,
        "ALiBi got num_heads=0, but needs a whole number of at least 1.",
    ),
    "no rows": (
        lambda: ww.Learned(8, 0),
        ww.ShapeError,
        "Learned got max_length=0, but needs a whole number of at least 1.",
    ),
    "no vocabulary": (
        lambda: ww.TokenEmbedding(0, 8),
        ww.ShapeError,
        "TokenEmbedding got vocab_size=0, but needs a whole number of at least 1.",
    ),
    "an unknown init": (
        lambda: ww.TokenEmbedding(20, 8, init="xavier"),
        ww.SettingError,
        "TokenEmbedding got init='xavier', but knows only: normal, glorot_uniform, glorot_normal, fan_in_uniform, "
        "torch.",
    ),
    "an unknown scale": (
        lambda: ww.TokenEmbedding(20, 8, scale="sqrt"),
        ww.SettingError,
        "TokenEmbedding got scale='sqrt', but knows only: sqrt_dim, sqrt_dim_rounded.",
    ),
    "a deviation of zero": (
        lambda: ww.TokenEmbedding(20, 8, init=0.0),
        ww.SettingError,
        "TokenEmbedding got init=0.0, but needs a finite number above 0.",
    ),
    "a table of one axis": (
        lambda: ww.TokenEmbedding.from_weight(torch.zeros(3)),
        ww.ShapeError,
        "a token table has shape (vocab_size, dim), but this one (3,).",
    ),
    "a table of whole numbers": (
        lambda: ww.TokenEmbedding.from_weight(tokens(3, 2)),
        ww.ShapeError,
        "a token table holds floating-point numbers, but this one torch.int64: pass weight.float().",
    ),
    "a readout of another dim": (
        lambda: ww.TokenEmbedding(20, 8).readout(torch.zeros(2, 4)),
        ww.ShapeError,
        "readout needs (..., 8), but got (2, 4).",
    ),
    "heads that do not divide": (
        lambda: ww.scheme("rotary", dim=10, num_heads=4, max_length=8),
        ww.ShapeError,
        "dim=10 does not divide into num_heads=4: each head needs the same number of features.\n"
        "The nearest dims that do are 8 and 12.",
    ),
    "heads of an odd size": (
        lambda: ww.scheme("rotary", dim=12, num_heads=4, max_length=8),
        ww.ShapeError,
        "Rotary got head_dim=3, but needs an even number: it turns pairs of features.\n"
        "The nearest even numbers are 2 and 4.",
    ),
    "an unknown scheme with a near name": (
        lambda: ww.scheme("Rotery", dim=8, num_heads=2, max_length=8),
        ww.UnknownScheme,
        f"{MANY} 'Rotery'.\nDid you mean rotary or rotary-ntk?\nIt holds: {', '.join(ww.catalogue)}.",
    ),
    "an unknown scheme far from all": (
        lambda: ww.scheme("xyz", dim=8, num_heads=2, max_length=8),
        ww.UnknownScheme,
        f"{MANY} 'xyz'.\nIt holds: {', '.join(ww.catalogue)}.",
    ),
    "an unknown scheme in a mixture": (
        lambda: ww.scheme("rotary+alibbi", dim=8, num_heads=2, max_length=8),
        ww.UnknownScheme,
        f"{MANY} 'alibbi'.\nDid you mean alibi?\nIt holds: {', '.join(ww.catalogue)}.",
    ),
    "two schemes at one door": (
        lambda: ww.scheme("learned+sinusoidal", dim=8, num_heads=2, max_length=8),
        ww.SettingError,
        "the mixture 'learned+sinusoidal' has two schemes at the door 'input'; each door takes one.",
    ),
    "options for a mixture": (
        lambda: ww.scheme("rotary+alibi", dim=8, num_heads=2, max_length=8, theta=5.0),
        ww.SettingError,
        "options ['theta'] cannot be told apart in the mixture 'rotary+alibi': build it with Where(...).",
    ),
    "rotary at the input": (
        lambda: ww.InputLayer(20, 8, input=ww.Rotary(8)),
        ww.DoorError,
        "InputLayer adds position to the token vectors, but Rotary acts on queries and keys.\n"
        "Pass it to your attention instead: q, k = rope(q, k, positions).",
    ),
    "alibi at the input": (
        lambda: ww.InputLayer(20, 8, input=ww.ALiBi(2)),
        ww.DoorError,
        "InputLayer adds position to the token vectors, but ALiBi is added to the scores.\n"
        "Pass it to your attention instead: attn_mask=alibi(positions, causal=True).",
    ),
    "sinusoidal at the queries": (
        lambda: ww.Where(query_key=ww.Sinusoidal(8)),
        ww.DoorError,
        "Where(query_key=...) acts on queries and keys, but Sinusoidal is added to the token vectors.\n"
        "Pass it as Where(input=...).",
    ),
    "rotary at the scores": (
        lambda: ww.Where(score=ww.Rotary(8)),
        ww.DoorError,
        "Where(score=...) is added to the scores, but Rotary acts on queries and keys.\n"
        "Pass it as Where(query_key=...).",
    ),
    "the class in place of a scheme": (
        lambda: ww.Where(query_key=ww.Rotary),
        ww.DoorError,
        "Where(query_key=...) needs a QueryKeyMap, but got the class Rotary.\n"
        "Pass an object, not the class: Rotary(...).",
    ),
    "no scheme at all": (
        lambda: ww.Where(input="sinusoidal"),
        ww.DoorError,
        "Where(input=...) needs an InputEncoding, but got str.",
    ),
    "a scheme of another dim": (
        lambda: ww.InputLayer(20, 8, input=ww.Learned(6, 4)),
        ww.ShapeError,
        "InputLayer has dim=8, but Learned has dim=6: make both equal.",
    ),
    "vectors of another dim": (
        lambda: ww.Where(input=ww.Sinusoidal(8)).at(ww.positions(3)).input(torch.zeros(1, 3, 6)),
        ww.ShapeError,
        "the token vectors have dim 6, but Sinusoidal has 8.",
    ),
    "vectors of another length": (
        lambda: ww.Where().at(ww.positions(3)).input(torch.zeros(1, 4, 6)),
        ww.ShapeError,
        "positions stand for (batch, 3, dim), but the token vectors have (1, 4, 6).",
    ),
    "queries without heads": (
        lambda: ww.Rotary(8)(torch.zeros(1, 3, 8), torch.zeros(1, 3, 8), ww.positions(3)),
        ww.ShapeError,
        "Rotary takes (batch, heads, tokens, head_dim), but q has shape (1, 3, 8).\n"
        "From a projection: x.unflatten(-1, (num_heads, head_dim)).transpose(1, 2).",
    ),
    "heads and tokens swapped": (
        lambda: ww.Rotary(8)(torch.zeros(1, 3, 2, 8), torch.zeros(1, 3, 2, 8), ww.positions(3)),
        ww.ShapeError,
        "q has 2 tokens, but the positions 3; (batch, heads, tokens, head_dim) is expected, and q has shape "
        "(1, 3, 2, 8).\nIf tokens and heads are swapped, pass q.transpose(1, 2).",
    ),
    "heads of another size": (
        lambda: ww.Rotary(8)(torch.zeros(1, 2, 3, 8), torch.zeros(1, 2, 3, 4), ww.positions(3)),
        ww.ShapeError,
        "Rotary was made for head_dim=8, but k has shape (1, 2, 3, 4).",
    ),
    "another batch of positions": (
        lambda: ww.Rotary(8)(*[torch.zeros(3, 2, 1, 8)] * 2, torch.tensor([[1], [2]])),
        ww.ShapeError,
        "q has batch 3, but the positions 2: equal or 1 is needed.",
    ),
    "more keys than are bound": (
        lambda: attend((1, 2, 3, 4), (1, 2, 5, 4)),
        ww.ShapeError,
        "k has shape (1, 2, 5, 4), but the bound positions stand for (batch, heads, 3, head_dim) with batch of any "
        "size.\nWith a cache of keys, bind both: where.at(queries, keys).",
    ),
    "another number of heads": (
        lambda: attend((1, 4, 3, 4), score=ww.ALiBi(2)),
        ww.ShapeError,
        "ALiBi was made for num_heads=2, but q has 4 heads.",
    ),
    "key heads that do not divide": (
        lambda: attend((1, 4, 3, 4), (1, 3, 3, 4)),
        ww.ShapeError,
        "key and value heads must be equal and divide the query heads, but got q (1, 4, 3, 4), k (1, 3, 3, 4), "
        "v (1, 3, 3, 4).",
    ),
    "values of other tokens": (
        lambda: attend((1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 2, 4)),
        ww.ShapeError,
        "q and k need one head_dim, k and v the same tokens, but got q (1, 2, 3, 4), k (1, 2, 3, 4), v (1, 2, 2, 4).",
    ),
    "an unknown engine": (
        lambda: attend((1, 2, 3, 4), engine="fast"),
        ww.SettingError,
        "attention got engine='fast', but knows only: auto, dense, sdpa, flex.",
    ),
    "everything dropped": (
        lambda: attend((1, 2, 3, 4), dropout=1.0),
        ww.SettingError,
        "attention got dropout=1.0, but needs a share of at least 0 and below 1.",
    ),
    "a negative dropout": (
        lambda: attend((1, 2, 3, 4), dropout=-0.1),
        ww.SettingError,
        "attention got dropout=-0.1, but needs a share of at least 0 and below 1.",
    ),
    "dropout in flex": (
        lambda: attend((1, 2, 3, 4), dropout=0.1, engine="flex"),
        ww.SettingError,
        "FlexAttention has no dropout: pass dropout=0.0, or engine='sdpa' or 'dense'.",
    ),
    "queries and keys of other batches": (
        lambda: ww.from_mask(tokens(2, 3)).mask(ww.from_mask(tokens(3, 3))),
        ww.ShapeError,
        "queries stand in 2 sequences and keys in 3: equal batches, or 1, are needed.",
    ),
    "several axes without one ruler": (
        lambda: ww.bind([ww.Where()], tokens(3, 1, 1), tokens(3, 1, 4)),
        ww.PositionError,
        "numbers of several axes do not tell which keys are later than these queries.\n"
        "Make one ruler of all tokens and slice it: p = from_position_ids(ids); where.at(p[t:], p).",
    ),
    "an empty text": (
        lambda: text.encode(text.expressions(), " \n"),
        ww.TextError,
        "the text is empty: there is nothing to encode.",
    ),
    "an empty text of words": (
        lambda: text.words(""),
        ww.TextError,
        "the text is empty: there is nothing to encode.",
    ),
    "nothing to train on": (
        lambda: text.train("word", ["", "  "]),
        ww.TextError,
        "there is no text to train on: every text is empty.\nPass texts=... or files=[...].",
    ),
    "a word that is not known": (
        lambda: text.encode(text.words("the cat"), "the dog"),
        ww.TextError,
        "the tokenizer does not know 'dog' and has no unknown token.\n"
        'Add the word to the vocabulary, or name a word for all unknown ones: unknown="[UNK]".',
    ),
    "an unknown kind": (
        lambda: text.train("syllable", "the cat"),
        ww.SettingError,
        "train got kind='syllable', but knows only: word, bpe, byte, character.",
    ),
    "a vocabulary smaller than the bytes": (
        lambda: text.train("bpe", "the cat", vocab_size=100),
        ww.SettingError,
        "a bpe tokenizer needs vocab_size of at least 256, but got 100.",
    ),
    "an empty vocabulary": (
        lambda: text.from_vocabulary({}),
        ww.TextError,
        'the vocabulary is empty; it needs words with their ids, as in {"The": 0, "cat": 1}.',
    ),
    "two words with one id": (
        lambda: text.from_vocabulary({"a": 0, "b": 0}),
        ww.TextError,
        "the words 'a' and 'b' share id 0; each id names one word.",
    ),
    "an id that is no number": (
        lambda: text.from_vocabulary({"a": "0"}),
        ww.TextError,
        "the word 'a' has id '0', but ids are whole numbers from 0.",
    ),
    "an unknown word that is not there": (
        lambda: text.from_vocabulary({"a": 0}, unknown="?"),
        ww.TextError,
        "the unknown word '?' is not in the vocabulary; add it with an id of its own.",
    ),
    "a word that lower case never meets": (
        lambda: text.from_vocabulary({"The": 0}, lowercase=True),
        ww.TextError,
        "lowercase=True never meets 'The': write the vocabulary in lower case.",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_the_error_says(case):
    act, error, said = CASES[case]
    with pytest.raises(error) as caught:
        act()
    assert type(caught.value) is error
    assert str(caught.value) == said


def test_options_that_a_scheme_does_not_take():
    with pytest.raises(ww.SettingError) as caught:
        ww.scheme("rotary", dim=8, num_heads=2, max_length=8, speed=3)
    assert str(caught.value).startswith("'rotary' does not take these options: ")
    assert "'speed'" in str(caught.value)


def test_a_scheme_of_content_gives_no_table():
    class Content(ww.ScoreBias):
        by_content = True

        def bind(self, queries, keys, **given):
            raise AssertionError("not to be reached")

    with pytest.raises(ww.DoorError) as caught:
        Content()(ww.positions(3))
    assert str(caught.value) == (
        "Content depends on queries and keys, so positions alone give no table.\n"
        "Use here = where.at(positions) and here.attention(q, k, v)."
    )


def test_flex_cannot_train_on_the_cpu():
    q = torch.zeros(1, 2, 3, 4, requires_grad=True)
    with pytest.raises(ww.SettingError) as caught:
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
    with pytest.raises(ww.TextError) as caught:
        read(tmp_path / "none.txt")
    assert str(caught.value) == f"{tmp_path / 'none.txt'} cannot be read: No such file or directory.\nCheck the path."


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_folder_in_place_of_a_file(read, tmp_path):
    with pytest.raises(ww.TextError) as caught:
        read(tmp_path)
    assert str(caught.value) == f"{tmp_path} cannot be read: Is a directory.\nCheck the path."


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_file_that_is_not_utf_8(read, tmp_path):
    file = tmp_path / "latin.txt"
    file.write_bytes("zwölf Boxkämpfer".encode("latin-1"))
    with pytest.raises(ww.TextError) as caught:
        read(file)
    assert str(caught.value) == (
        f"{file} is not UTF-8: byte 0xf6 at place 2 does not fit.\n"
        "If it is Latin-1, convert it: iconv -f latin1 -t utf8 latin.txt"
    )


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_file_that_is_empty(read, tmp_path):
    (tmp_path / "empty.txt").touch()
    with pytest.raises(ww.TextError) as caught:
        read(tmp_path / "empty.txt")
    assert str(caught.value) == f"{tmp_path / 'empty.txt'} is empty."


HALF = "\ud800"


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ww.positions(2.5), ww.PositionError, r"positions got n=2\.5, but positions are whole numbers"),
        (lambda: ww.positions(2, start=1.5), ww.PositionError, r"start=1\.5"),
        (lambda: ww.positions(2, start=torch.tensor([1.7])), ww.PositionError, r"dtype torch\.float32"),
        (lambda: ww.from_mask(torch.tensor([0.5, 1.0])), ww.PositionError, r"dtype torch\.float32"),
        (lambda: ww.from_position_ids([1, 2]), ww.PositionError, r"given as list, but must be an integer tensor"),
        (lambda: ww.positions(3)[::-1], ww.PositionError, "are sliced along tokens"),
        (lambda: ww.TokenEmbedding(5, 2, padding_id=1.5), ww.TokenError, r"padding_id=1\.5 is outside"),
        (lambda: ww.scheme(3, 8, 2, 4), ww.UnknownScheme, "asked for by name, but got 3"),
        (lambda: ww.scheme("alibi", 10, 3, 4), ww.ShapeError, "does not divide into num_heads=3"),
        (lambda: ww.text.encode(ww.text.train("byte", "a"), HALF), ww.TextError, "half a character"),
        (lambda: ww.text.train("word", HALF), ww.TextError, "half a character"),
        (lambda: ww.text.words(HALF), ww.TextError, "half a character"),
        (lambda: ww.text.read_text("a\0b"), ww.TextError, "cannot be read: embedded null byte"),
        (
            lambda: ww.text.encode(Tokenizer(models.BPE({"a": 0, "b": 1}, [])), "abz"),
            ww.TextError,
            "has no token for 'z' at place 2 and would leave it out",
        ),
        (
            lambda: ww.InputLayer(5, 4)(torch.tensor([[1, 2]]), torch.tensor([[0, 1], [1, 2], [2, 3]])),
            ww.ShapeError,
            "token vectors have batch 1, but the positions 3",
        ),
        (lambda: attend((2, 2, 3, 4), (1, 2, 3, 4)), ww.ShapeError, "need one batch"),
        (
            lambda: attend((2, 2, 3, 4), mask=torch.ones(2, 3, dtype=torch.bool)),
            ww.ShapeError,
            r"mask has shape \(2, 3\)(.|\n)*where\.at\(whatwhere\.from_mask\(mask\)\)",
        ),
        (lambda: attend((2, 2, 3, 4), mask=torch.ones(1, 1, 3, 3)), ww.ShapeError, "needs bool"),
        (
            lambda: attend((2, 2, 3, 4), mask=torch.ones(1, 1, 3, 4, dtype=torch.bool)),
            ww.ShapeError,
            r"needs bool and \(2, 2, 3, 3\)",
        ),
    ],
)
def test_what_would_pass_silently_or_fail_in_foreign_words(call, error, words):
    with pytest.raises(error, match=words):
        call()
