"""The tasks: right answers, balanced, split, with baselines that can be checked by counting."""

import gzip
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, repeat
from pathlib import Path

import jaxtyping
import pytest
import torch

from whatwhere.comparison import compare
from whatwhere.comparison.experiment import make_task
from whatwhere.comparison.tasks import Batch, Expressions, Recall, Task, Text, held_out, identity_of
from whatwhere.errors import SettingError, TextError

RULES = {
    "First": lambda d: d[0],
    "Second": lambda d: d[min(1, len(d) - 1)],
    "Last": lambda d: d[-1],
    "Max": max,
    "Min": min,
}


def evaluate(tokens: list[str]) -> int:
    """Evaluate an expression as a reader would."""
    name, inside = "".join(tokens).removesuffix(")").split("(")
    return RULES[name]([int(d) for d in inside.split(",")])


@pytest.mark.parametrize("length", [1, 2, 3, 6, 20])
def test_expressions_are_answered_rightly(length: int) -> None:
    task = Expressions()
    exam = task.test_set(length, 300)
    assert exam.ids.shape == (300, task.token_count(length))
    for ids, target, group in zip(exam.ids.tolist(), exam.targets.tolist(), exam.groups.tolist(), strict=True):
        tokens = [task.tokens[i] for i in ids]
        assert tokens[0] == task.groups[group]
        assert task.tokens[target] == str(evaluate(tokens))


@pytest.mark.parametrize("operator", range(5))
def test_answers_are_balanced(operator: int) -> None:
    exam = Expressions().test_set(32, 20_000)
    answers = Counter(exam.targets[exam.groups == operator].tolist())
    total = sum(answers.values())
    assert len(answers) == 10
    assert all(abs(count / total - 0.1) < 0.02 for count in answers.values())


def test_the_held_out_expressions_are_never_trained_on() -> None:
    task = Expressions(trained=(2, 3))
    generator = torch.Generator().manual_seed(0)
    trained: set[tuple[int, ...]] = set()
    for _ in range(60):
        batch = task.sample(256, generator)
        scored, digits = batch.targets >= 0, batch.ids[:, 2:-1:2]
        assert bool((held_out(batch.ids) & scored <= (digits == digits[:, :1]).all(1)).all())
        trained |= {tuple(row) for row, t in zip(batch.ids.tolist(), batch.targets.tolist(), strict=True) if t >= 0}
    tested = {tuple(row) for length in (2, 3) for row in task.test_set(length, 500).ids.tolist()}
    assert tested
    assert trained
    assert not tested & trained


@pytest.mark.parametrize("trained", [(2,), (3,), (1, 2, 3, 4, 5, 6)])
def test_training_shows_every_answer_of_every_operator(trained: tuple[int, ...]) -> None:
    """Max(0,0,0) is the only one of three arguments whose Max is 0: held out, it could never be learned."""
    task, generator = Expressions(trained=trained), torch.Generator().manual_seed(0)
    batches = [task.sample(512, generator) for _ in range(40)]
    answers = {(int(g), int(t)) for b in batches for g, t in zip(b.groups, b.targets, strict=True) if t >= 0}
    assert answers == {(operator, digit + 2) for operator in range(5) for digit in range(10)}


def test_what_is_held_out_follows_no_pattern() -> None:
    """A poor hash holds out a lattice, in which two digits nearly give the third; a fair one, a tenth of everything."""
    digits = torch.cartesian_prod(*[torch.arange(10)] * 3)
    ids = torch.full((1000, 8), 19)
    ids[:, 0], ids[:, 1], ids[:, 7], ids[:, 2:7:2] = 15, 17, 18, digits + 2
    kept = held_out(ids).view(10, 10, 10)
    # Independent draws: 1000 cells at 0.1 each. The number of cells in a line of ten then has variance 0.9.
    for dim in range(3):
        assert 0.6 < kept.sum(dim).float().var().item() < 1.3


def test_baselines_of_expressions_equal_counts() -> None:
    task = Expressions()
    exam = task.test_set(8, 2000)
    result = task.baselines(8, exam)
    constant = ceiling = 0.0
    for ids, target in zip(exam.ids.tolist(), exam.targets.tolist(), strict=True):
        tokens = [task.tokens[i] for i in ids]
        guess = "9" if tokens[0] == "Max" else "0"
        constant += guess == task.tokens[target]
        digits = tokens[2:-1:2]
        ceiling += 1 if tokens[0] in ("Max", "Min") else max(Counter(digits).values()) / len(digits)
    assert result["chance"] == 0.1
    assert result["always 9 or 0"] == pytest.approx(constant / 2000)
    assert result["order-free ceiling"] == pytest.approx(ceiling / 2000)


@pytest.mark.parametrize("length", [1, 8, 26])
def test_recall_is_answered_rightly(length: int) -> None:
    task = Recall()
    exam = task.test_set(length, 100)
    for ids, target, group in zip(exam.ids.tolist(), exam.targets.tolist(), exam.groups.tolist(), strict=True):
        letters = "".join(task.tokens[i] for i in ids)
        pairs, mark, query = letters[:-2], letters[-2], letters[-1]
        firsts = pairs[::2]
        assert mark == "?"
        assert len(set(firsts)) == length
        index = firsts.index(query)
        assert task.tokens[target] == pairs[2 * index + 1]
        assert group == 3 * index // length


def test_baselines_of_text_are_cross_entropies() -> None:
    content = b"aab" * 3000
    task = Text(content, trained=(8,))
    result = task.baselines(8, task.test_set(8, 100))
    assert result["all bytes alike"] == pytest.approx(math.log(256))
    # Two thirds a, one third b: the entropy of that, up to the count of one given to unseen bytes.
    assert result["frequency of bytes"] == pytest.approx(-(2 / 3) * math.log(2 / 3) - math.log(1 / 3) / 3, abs=0.05)


FOR_TEXTS = "files and a tokenizer are read by task='text' only"


class Mine:
    """Expressions as a task of one's own, whose sequences depend on a number too, in training or in tests."""

    def __init__(self, train: Iterator[int], test: Iterator[int]) -> None:
        self.inner, self.train, self.test = Expressions((2, 3)), train, test
        vars(self).update({key: getattr(self.inner, key) for key in dir(self.inner) if key[0] not in "_st"})
        self.tokens, self.trained, self.tested_in_length = self.inner.tokens, (2, 3), (2, 3)
        self.token_count, self.shift_length = self.inner.token_count, 2

    def sample(self, batch: int, generator: torch.Generator) -> Batch:
        return self.inner.sample(batch, generator.manual_seed(next(self.train)))

    def test_set(self, length: int, count: int) -> Batch:
        made = self.inner.test_set(length, count)
        return replace(made, targets=made.targets.roll(next(self.test)))


def test_a_task_of_ones_own_is_known_by_its_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    known = [identity_of(Mine(repeat(a), repeat(b)), [4]) for a, b in ((0, 0), (0, 0), (0, 1), (1, 0))]
    assert known[0] == known[1]
    assert len(set(known)) == 3
    assert known[0].startswith("decoder ")
    with pytest.raises(SettingError, match="other sequences when it is called again"):
        identity_of(Mine(repeat(0), count()), [4])
    with pytest.raises(SettingError, match="other sequences when it is called again"):
        identity_of(Mine(count(), repeat(0)), [4])
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # else the hook answers before
    with pytest.raises(SettingError, match=r"task got <class .*Mine'>, but needs a name, or an object"):
        compare(["none"], Mine)  # type: ignore[arg-type]


POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'a' * 64}\nsize 9\n"


def text_of(path: Path, content: str | bytes) -> Task:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return make_task("text", "decoder", None, [path])


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda p: Expressions(trained=(0, 1)), SettingError, "at least one argument"),
        (lambda p: Recall(trained=(27,)), SettingError, "1 to 26 pairs"),
        (lambda p: Recall().test_set(27, 1), SettingError, "got the length 27"),
        (lambda p: Text(b"short"), TextError, "has 5 bytes, too few for windows of 64"),
        (lambda p: Text(b"x" * 3000).test_set(512, 1), TextError, "too few for a window of 512"),
        (lambda p: Text(b"x" * 3000, trained=(8, 16)), SettingError, "trained on one window"),
        (lambda p: make_task("poems", "decoder", None, ()), SettingError, "expressions, recall, text"),
        (lambda p: make_task("text", "encoder", None, ()), SettingError, "attends to the next byte"),
        (lambda p: make_task("recall", "decoder", None, [], p), SettingError, FOR_TEXTS),
        (lambda p: make_task("recall", "decoder", None, [p]), SettingError, FOR_TEXTS),
        (lambda p: make_task("text", "decoder", None, [p / "no.txt"]), TextError, "cannot be read"),
        (lambda p: text_of(p / "empty.txt", ""), TextError, "is empty"),
        (lambda p: text_of(p / "pointer.txt", POINTER), TextError, "git lfs pull"),
        (lambda p: text_of(p / "a.gz", gzip.compress(b"x" * 3000)), TextError, r"a\.gz is a compressed file"),
        (lambda p: text_of(p / "a.txt", ("x" * 3000).encode("utf-16")), TextError, "is UTF-16, "),
    ],
)
def test_wrong_tasks_are_refused(make, error, words, tmp_path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(error, match=words):
        make(tmp_path)
