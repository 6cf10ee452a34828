"""The first tutorial's questions 10 to 20; PREAMBLE of first_questions runs before the code of each."""

from whatwhere.claims.question import Question

QUESTIONS: tuple[Question, ...] = (
    Question(
        id="q.10",
        asks="Why do low features oscillate faster than high ones, and what is that good for?",
        think="How does 10000^(-2i/d) change with i?",
        answer="The frequency 10000^(-2i/64) falls with i, from a rotation in 6.3 positions to one in 47,117: fast "
        "features separate neighbors, and slow ones separate what is far apart.",
        code="""
>>> from whatwhere.where.frequencies import inverse_frequencies, wavelengths
>>> frequencies = inverse_frequencies(64)
>>> (frequencies.diff() < 0).all().item(), [round(x, 1) for x in wavelengths(frequencies)[[0, -1]].tolist()]
(True, [6.3, 47117.2])
""",
        claims=("0.24", "0.27", "0.28"),
        takeaway="No takeaway speaks of frequencies. Low features are the faster ones, as the tutorial says, but "
        "its factors err (0.24), and of the slowest sines that it prints, the fourth (0.27).",
        variant="In how many positions does pair 8 of 32 complete a rotation?",
        variant_answer="In 2 pi x 10000^(16/64) = 62.8.",
        variant_code="""
>>> round(wavelengths(frequencies)[8].item(), 1)
62.8
""",
    ),
    Question(
        id="q.11",
        asks="The comma is at positions 3 and 5. Are its token vectors, its positions and its sums the same?",
        think="On which of id and position does each depend?",
        answer="The token vectors are the same, the positions and therefore the sums are not.",
        code="""
>>> tokens, x = layer.tokens(ids)[0], layer(ids)[0]
>>> torch.equal(tokens[3], tokens[5]), torch.allclose(pe[3], pe[5]), torch.allclose(x[3], x[5])
(True, False, False)
""",
        claims=("0.2", "0.19"),
        takeaway="The takeaway agrees: each token has its row (0.2), and each position its vector (0.19).",
        variant="Are the vectors of both commas the same where positions are rotations of queries and keys?",
        variant_answer="Yes: nothing is added to the vectors, and position enters in every layer's attention.",
        variant_code="""
>>> x = ww.InputLayer(20, 64)(ids)[0]
>>> torch.equal(x[3], x[5])
True
""",
    ),
    Question(
        id="q.12",
        asks="Which of token vectors and sinusoids does training change?",
        think="Which of them are parameters?",
        answer="The token table alone: sinusoids are a formula without parameters.",
        code="""
>>> [name for name, _ in layer.named_parameters()]
['tokens.weight']
""",
        claims=("0.10", "0.20"),
        takeaway="The takeaway agrees: sinusoids have no parameters (0.20).",
        variant="And with learned positions?",
        variant_answer="Both tables.",
        variant_code="""
>>> len(list(ww.InputLayer(20, 64, ww.Learned(dim=64, max_length=32)).parameters()))
2
""",
    ),
    Question(
        id="q.13",
        asks="How many parameters has this input layer?",
        think="Count rows and columns.",
        answer="20 x 64 = 1,280.",
        code="""
>>> ww.parameters(layer).total
1280
""",
        claims=("0.3",),
        takeaway="The takeaway calls 20 to 64 an expansion, which errs in part: there are more features, but the "
        "20 vectors span at most 20 dimensions (0.3).",
        variant="How many with learned positions for 32 tokens?",
        variant_answer="1,280 + 32 x 64 = 3,328.",
        variant_code="""
>>> ww.parameters(ww.InputLayer(20, 64, ww.Learned(dim=64, max_length=32))).total
3328
""",
    ),
    Question(
        id="q.14",
        asks="After training, Max and Min are expected to have similar vectors. True or false?",
        think="For the same digits, Max and Min have different answers. In which direction does each push its row?",
        answer="False: the answer must tell them apart, so the two rows get opposite gradients where that decides; "
        "what training makes of them in the whole model, a comparison measures.",
        code="""
>>> rows = torch.zeros(2, 64, requires_grad=True)  # Max and Min, alike at the start
>>> output = torch.randn(64, 2)  # the greatest digit, or the least?
>>> F.cross_entropy(rows @ output, torch.tensor([0, 1])).backward()
>>> round(F.cosine_similarity(rows.grad[0], rows.grad[1], dim=0).item(), 4)
-1.0
""",
        claims=("0.13", "0.12"),
        takeaway="No takeaway speaks of it. The tutorial expects both alike, for both choose by size; but the "
        "answer must tell them apart, and what training makes of them is measured (0.13).",
        variant="What of two tokens for which the same answer is right?",
        variant_answer="Their gradients are equal, so such a step moves them together.",
        variant_code="""
>>> rows = torch.zeros(2, 64, requires_grad=True)
>>> F.cross_entropy(rows @ output, torch.tensor([0, 0])).backward()
>>> round(F.cosine_similarity(rows.grad[0], rows.grad[1], dim=0).item(), 4)
1.0
""",
        command="whatwhere compare none sinusoidal learned rotary alibi --seeds 3",
    ),
    Question(
        id="q.15",
        asks="The model was trained on short sequences. Is the sinusoid at position 100 undefined, noise, a valid "
        "pattern of its own, or that of position 0?",
        think="Is anything in the formula learned?",
        answer="A valid pattern of its own by the same formula, which the model has not been trained to read.",
        code="""
>>> from math import sin
>>> abs(pe[100, 0].item() - sin(100)) < 1e-6, torch.cdist(pe[100:101], pe[:100]).min().item() > 1
(True, True)
""",
        claims=("0.19", "0.20", "0.31"),
        takeaway="The takeaway errs where sinusoids generalize to arbitrary lengths: the pattern is defined there "
        "(0.20); whether a model can use it is measured (0.31).",
        variant="At position 47,117 the slowest pair has completed a rotation. Is the pattern that of position 0?",
        variant_answer="No: the other pairs are elsewhere.",
        variant_code="""
>>> far = ww.Sinusoidal(64)(ww.positions(1, start=47_117))[0, 0]
>>> torch.dist(far[62:], pe[0, 62:]).item() < 1e-3, torch.dist(far, pe[0]).item() > 1
(True, True)
""",
    ),
    Question(
        id="q.16",
        asks="Show that the sinusoid lets a model read relative positions: that PE(p + k) is a linear map of PE(p).",
        think="Write sin(a + b) and cos(a + b) in sines and cosines of a.",
        answer="sin(w(p + k)) = cos(wk) sin(wp) + sin(wk) cos(wp), and likewise for the cosine: in each pair of "
        "features a rotation by wk, which does not depend on p.",
        code="""
>>> m = ww.frequencies.offset_map(3, 64)
>>> torch.allclose(pe[:100].double() @ m.T, pe[3:103].double(), atol=1e-6)
True
>>> torch.allclose(m @ m.T, torch.eye(64, dtype=torch.float64))
True
""",
        claims=("0.29", "0.21"),
        takeaway="No takeaway speaks of relative positions. The tutorial's consistent distances err in part: the "
        "map exists, but it must be learned, and through random projections a score does not show the "
        "offset (0.21).",
        variant="What is the map for k = -3?",
        variant_answer="The transpose of that for 3, since a rotation's inverse is its transpose.",
        variant_code="""
>>> torch.allclose(ww.frequencies.offset_map(-3, 64), m.T)
True
""",
    ),
    Question(
        id="q.17",
        asks="Design another encoding for this task. What properties must it have?",
        think="Which token must First find, and how far is it from where the answer is read?",
        answer="It must tell the positions inside the trained window apart and do something sensible outside it; here "
        "each head reads a window of its own, so that a score depends on the distance alone.",
        code="""
>>> from whatwhere.where.score_bias import DistanceBias
>>> class Window(DistanceBias):
...     def __init__(self, num_heads):
...         super().__init__()
...         self.num_heads = num_heads
...
...     def curve(self, device):
...         return lambda head, distance: -torch.relu(distance.abs() - 2.0 ** (head + 1))
>>> window = Window(4)
>>> def bias(queries, keys):
...     head = torch.arange(4)[:, None, None]
...     return window.curve(queries.device)(head, queries[:, None] - keys)
>>> ww.testing.check_bias(bias, 4).passed
True
""",
        claims=("0.17", "0.19", "0.21"),
        takeaway="The takeaway agrees that order has to be put in; that attention is permutation-invariant errs "
        "(0.17).",
        variant="Does a window of one width for all heads tell the order of two keys inside of it apart?",
        variant_answer="No: inside the window every distance has the same bias.",
        variant_code="""
>>> window.curve(torch.device("cpu"))(torch.tensor(3), torch.tensor([1, 2, 16, 17])).tolist()
[-0.0, -0.0, -0.0, -1.0]
""",
    ),
    Question(
        id="q.18",
        asks="The table has 64 features for 20 tokens. Is that wasteful?",
        think="How many features does it take to tell 20 points apart?",
        answer="As a code it is: two features are enough; as the width of the residual stream, in which layers write "
        "and read much else, it is not.",
        code="""
>>> angle = torch.arange(20) * 2 * torch.pi / 20
>>> circle = ww.TokenEmbedding.from_weight(torch.stack([angle.cos(), angle.sin()], -1))
>>> tokens = torch.arange(20)
>>> torch.equal(circle.readout(circle(tokens)).argmax(-1), tokens)
True
""",
        claims=("0.3", "0.7"),
        takeaway="The takeaway errs where 64 dimensions make rich representations possible: the 20 vectors span "
        "at most 20 of them (0.3), and two are enough to tell 20 tokens apart (0.7).",
        variant="Are two features enough for 1,000 tokens?",
        variant_answer="Yes, on a circle, in float64: in fewer bits neighbors on it would collide at some number.",
        variant_code="""
>>> angle = torch.arange(1000, dtype=torch.float64) * 2 * torch.pi / 1000
>>> points = torch.stack([angle.cos(), angle.sin()], -1)
>>> torch.equal((points @ points.T).argmax(-1), torch.arange(1000))
True
""",
    ),
    Question(
        id="q.19",
        asks="Why does the range of the table grow during training, and what does that say of what is learned?",
        think="By how much does one step of Adam move a value? What does a layer norm make of a longer vector?",
        answer="A step of Adam moves a value by about the learning rate, whatever the gradient's size, so growth "
        "counts steps; and a layer norm removes the common factor, so a wider range holds no more; whether it grows "
        "at all, a comparison measures.",
        code="""
>>> def after(steps, gradient):
...     value = torch.nn.Parameter(torch.zeros(1))
...     adam = torch.optim.Adam([value], lr=0.001)
...     for _ in range(steps):
...         value.grad = torch.tensor([gradient])
...         adam.step()
...     return round(-value.item(), 4)
>>> after(1, 0.01), after(1, 100.0)
(0.001, 0.001)
>>> e = layer.tokens.weight.detach().double()
>>> torch.allclose(F.layer_norm(10 * e, (64,), eps=0.0), F.layer_norm(e, (64,), eps=0.0))
True
""",
        claims=("0.14", "0.15"),
        takeaway="No takeaway speaks of it. The tutorial's reading, that learning uses the full capacity, would "
        "make a table grow that starts wide too, which a comparison decides (0.15).",
        variant="How far does a value get in 100 steps with the same gradient in each?",
        variant_answer="100 learning rates: 0.1.",
        variant_code="""
>>> after(100, 0.01)
0.1
""",
        command="whatwhere compare sinusoidal --recipe author --seeds 3",
    ),
    Question(
        id="q.20",
        asks="Without positions, what can the model still learn of this task, and where does it fail?",
        think="Which of the five operators need the order of the digits?",
        answer="Max and Min need no order and can be right always; First, Second and Last are right for 0.43 at best, "
        "by naming the most frequent digit, which is 0.658 overall; a causal decoder of two layers can learn more.",
        code="""
>>> from collections import Counter, defaultdict
>>> from itertools import product
>>> def best_first(arguments):
...     answers = defaultdict(Counter)
...     for digits in product(range(10), repeat=arguments):
...         answers[tuple(sorted(digits))][digits[0]] += 1
...     return sum(max(counts.values()) for counts in answers.values()) / 10**arguments
>>> best_first(3), round((3 * best_first(3) + 2) / 5, 3)
(0.43, 0.658)
""",
        claims=("0.18", "0.18b"),
        takeaway="The takeaway agrees that positions bring the order in. The tutorial errs where the two "
        "expressions cannot be told apart without them: two causal layers can (0.18).",
        variant="How often can First be right without order where there are four arguments?",
        variant_answer="0.3835: of 10,000 expressions 5,040 have four different digits, 4,320 one pair, and so on.",
        variant_code="""
>>> best_first(4), (5040 * 1 + 4320 * 2 + 270 * 2 + 360 * 3 + 10 * 4) / 40_000
(0.3835, 0.3835)
""",
        command="whatwhere compare none --set direction=encoder --seeds 3",
    ),
)
