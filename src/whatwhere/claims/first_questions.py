"""The first tutorial's questions 1 to 9, with answers that run."""

from whatwhere.claims.question import Question

PREAMBLE = """
>>> import torch
>>> import whatwhere as ww
>>> from torch.nn import functional as F
>>> from whatwhere.what.expressions import expression_tokenizer

>>> ids = torch.tensor([expression_tokenizer().encode("Max(1,6,2)").ids])
>>> layer = ww.InputLayer(20, 64, ww.Sinusoidal(64), init=0.15)
>>> pe = ww.Sinusoidal(64)(ww.positions(110))[0]  # positions 0 to 109
"""
"""Runs before the code of each question."""

QUESTIONS: tuple[Question, ...] = (
    Question(
        id="q.1",
        asks="Why does a model learn a table of vectors instead of taking one-hot vectors? Name three reasons.",
        think="Multiply a one-hot row by a matrix. What comes out?",
        answer="A one-hot row times a matrix is a lookup, so one-hot vectors can be learned from; the honest reasons "
        "are the cost of V features per token, that all one-hot vectors are equally far apart, and that a table can "
        "make alike what should be treated alike.",
        code="""
>>> torch.equal(F.one_hot(ids, 20).float() @ layer.tokens.weight, layer.tokens(ids))
True
>>> len(torch.pdist(torch.eye(20)).unique())  # one distance between all pairs of one-hot vectors
1
>>> 128_256 // 4096  # how many times as many features a one-hot vector has, with the vocabulary of LLaMA 3
31
""",
        claims=("0.2", "0.5", "0.6"),
        takeaway="The takeaway agrees: a table is continuous and can be learned. The tutorial errs where one-hot "
        "vectors cannot represent relationships: a linear layer on them is an embedding (0.6).",
        variant="Is the lookup also a product with a one-hot row where the table has only two features?",
        variant_answer="Yes: the width of the table does not matter.",
        variant_code="""
>>> narrow = ww.TokenEmbedding(20, 2)
>>> torch.equal(F.one_hot(ids, 20).float() @ narrow.weight, narrow(ids))
True
""",
    ),
    Question(
        id="q.2",
        asks="The table has 20 rows of 64 features. Eight tokens are looked up: what is the shape, and why?",
        think="What does one id become?",
        answer="(8, 64): each id is replaced by its row, so the shape of the ids gains one axis of 64 features.",
        code="""
>>> tuple(layer(ids)[0].shape)
(8, 64)
""",
        claims=("0.2",),
        takeaway="The takeaway agrees: symbols become vectors, of the shape that the tutorial prints (0.2).",
        variant="What shape have three sequences of five tokens, in 128 features?",
        variant_answer="(3, 5, 128).",
        variant_code="""
>>> tuple(ww.TokenEmbedding(20, 128)(torch.zeros(3, 5, dtype=torch.int64)).shape)
(3, 5, 128)
""",
    ),
    Question(
        id="q.3",
        asks="Why does a Transformer need positions? Give an example from the expressions.",
        think="First(1,6,2) and First(6,2,1) have the same tokens and other answers. What does attention see of both?",
        answer="Attention without positions gives the same output for First in both expressions, since a sum over "
        "tokens does not depend on their order.",
        code="""
>>> def first_token(text):
...     x = layer.tokens(torch.tensor([expression_tokenizer().encode(text).ids]))[:, None]  # one head
...     return ww.Where().at(8).attention(x, x, x, causal=False)[0, 0, 0]
>>> torch.allclose(first_token("First(1,6,2)"), first_token("First(6,2,1)"), atol=1e-6)
True
""",
        claims=("0.17", "0.18"),
        takeaway="The takeaway calls attention permutation-invariant, which errs: it is equivariant (0.17), and "
        "two causal layers can tell the expressions apart without any encoding (0.18).",
        variant="Does attention without positions tell Max(1,6,2) from Max(6,6,2)?",
        variant_answer="Yes: they have different tokens, and only the order is lost.",
        variant_code="""
>>> torch.allclose(first_token("Max(1,6,2)"), first_token("Max(6,6,2)"), atol=1e-6)
False
""",
    ),
    Question(
        id="q.4",
        asks="Why are positions added to the token vectors, and not concatenated with them?",
        think="What does the next layer do with 128 concatenated features?",
        answer="Addition keeps the width at 64, and is concatenation followed by a map whose two halves are shared.",
        code="""
>>> e, w = layer.tokens(ids)[0].detach().double(), torch.randn(64, 64, dtype=torch.float64)
>>> both = torch.cat([e, pe[:8].double()], -1)
>>> torch.allclose((e + pe[:8]) @ w, both @ torch.cat([w, w]))
True
>>> tuple(both.shape)
(8, 128)
""",
        claims=("0.28",),
        takeaway="The takeaway agrees: the sum has token and position in it. One sum that the tutorial prints "
        "errs: feature 2 of the 6 at position 4 (0.28).",
        variant="How many weights has the map to queries, keys and values, of 64 features each, after either?",
        variant_answer="12,288 after the addition, and twice as many, 24,576, after the concatenation.",
        variant_code="""
>>> [torch.nn.Linear(width, 3 * 64, bias=False).weight.numel() for width in (64, 128)]
[12288, 24576]
""",
    ),
    Question(
        id="q.5",
        asks="A model has learned positions for sequences of up to 10 tokens. What happens with 15?",
        think="How many rows has the table, and which of them did training ever see?",
        answer="With 10 rows there is no vector for the eleventh token, which is an error; with more rows, those "
        "beyond the training keep their random values.",
        code="""
>>> ww.Learned(dim=64, max_length=10)(ww.positions(15))
Traceback (most recent call last):
whatwhere.errors.PositionError: position 10 is beyond this table, which has 10 positions (0..9).
...
>>> spare = ww.Learned(dim=64, max_length=15)
>>> spare(ww.positions(10)).sum().backward()
>>> spare.weight.grad.any(-1).sum().item()  # rows that training changes
10
""",
        claims=("0.32", "0.20", "0.31"),
        takeaway="The takeaway errs where sinusoids generalize to any length: they have a vector at every "
        "position, but most features are then outside the range seen in training (0.20); what a trained "
        "model makes of it is measured (0.31).",
        variant="Which of sinusoids, learned positions of 10 rows, and ALiBi is defined for 15 tokens?",
        variant_answer="Sinusoids and ALiBi, which are formulas.",
        variant_code="""
>>> tuple(ww.Sinusoidal(64)(ww.positions(15)).shape)
(1, 15, 64)
>>> q = k = v = torch.randn(1, 8, 15, 64)
>>> tuple(ww.Where(ww.ALiBi(8)).at(15).attention(q, k, v).shape)
(1, 8, 15, 64)
""",
    ),
    Question(
        id="q.6",
        asks="Compute PE(2, 4) by hand: the factor, sine or cosine, and the value.",
        think="Feature 4 belongs to the third pair, i = 2.",
        answer="The factor is 10000^(4/64) = 1.7783, an even feature is a sine, and PE(2, 4) = sin(1.1247) = 0.9021.",
        code="""
>>> from math import sin
>>> round(10_000 ** (4 / 64), 4), round(sin(2 / 1.7783), 4), round(pe[2, 4].item(), 4)
(1.7783, 0.9021, 0.9021)
>>> round(sin(2 / 1.37), 4)  # with the tutorial's own factor
0.9939
""",
        claims=("0.24",),
        takeaway="No takeaway speaks of the formula. The tutorial's factor for i = 2, 1.37, errs: it is 1.7783 (0.24).",
        variant="Compute PE(7, 31).",
        variant_answer="Pair 15, an odd feature: cos(7 / 10000^(30/64)) = cos(7 / 74.99) = 0.9956.",
        variant_code="""
>>> round(10_000 ** (30 / 64), 2), round(pe[7, 31].item(), 4)
(74.99, 0.9956)
""",
    ),
    Question(
        id="q.7",
        asks="What is the pattern of position 0 in the 64 features, and why?",
        think="What are sine and cosine of 0?",
        answer="0, 1, 0, 1, ...: every angle is 0 there, sin 0 = 0 and cos 0 = 1.",
        code="""
>>> pe[0].tolist() == [0.0, 1.0] * 32
True
""",
        claims=("0.23", "0.28"),
        takeaway="No takeaway speaks of it, and the tutorial's row of position 0 is right. Its i counts pairs of "
        "features (0.23).",
        variant="What is it if the base is 100 instead of 10,000?",
        variant_answer="The same: a base changes the frequencies, and 0 times any of them is 0.",
        variant_code="""
>>> ww.Sinusoidal(64, theta=100.0)(ww.positions(1))[0, 0].tolist() == [0.0, 1.0] * 32
True
""",
    ),
    Question(
        id="q.8",
        asks="After adding positions, the vectors at 3 and 5 are equal. The same token at two positions, or two "
        "tokens at one?",
        think="What is the difference of the two sums?",
        answer="Neither: the positions differ, so the tokens must differ too, by exactly what the positions differ by.",
        code="""
>>> (pe[3] - pe[5]).abs().max().item() > 0.1
True
>>> a = torch.randn(64)
>>> b = a + pe[3] - pe[5]  # another token
>>> torch.allclose(a + pe[3], b + pe[5], atol=1e-6), torch.allclose(a + pe[3], a + pe[5], atol=1e-6)
(True, False)
""",
        claims=("0.19",),
        takeaway="The takeaway agrees: the sum has both in it, and each position has a vector of its own (0.19).",
        variant="Which token at position 0 has the same sum as the zero vector at position 3?",
        variant_answer="The one whose vector is PE(3) - PE(0).",
        variant_code="""
>>> torch.allclose((pe[3] - pe[0]) + pe[0], torch.zeros(64) + pe[3], atol=1e-6)
True
""",
    ),
    Question(
        id="q.9",
        asks="All token vectors are multiplied by 10, positions stay as they are. What problem does that create?",
        think="What does a layer norm make of 10 E + PE?",
        answer="After the layer norm, 10 E + PE is E + PE / 10: position becomes ten times weaker, and nothing else "
        "happens.",
        code="""
>>> e, p = layer.tokens(ids)[0].detach().double(), pe[:8].double()
>>> norm = lambda x: F.layer_norm(x, (64,), eps=0.0)
>>> torch.allclose(norm(10 * e + p), norm(e + p / 10)), torch.allclose(norm(10 * e + p), norm(e + p), atol=0.5)
(True, False)
""",
        claims=("0.22",),
        takeaway="No takeaway speaks of scale. The tutorial errs where positions do not overpower the tokens: at "
        "the start they are 4.7 times as large (0.22).",
        variant="And if positions are multiplied by 10 as well?",
        variant_answer="Nothing: the layer norm divides by the common factor.",
        variant_code="""
>>> torch.allclose(norm(10 * e + 10 * p), norm(e + p))
True
""",
    ),
)
