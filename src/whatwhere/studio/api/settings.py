"""What the views share: queries whose settings are checked by annotations; parameters of a scheme as one text,
`factor=4 theta=500`, and the controls of the page that set them; and what an exported page holds of a view.
"""

import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from inspect import signature
from math import isfinite
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from whatwhere.errors import SettingError
from whatwhere.report.section import Headline, Section, Shorten, Table
from whatwhere.report.text import number
from whatwhere.studio.jobs import Report
from whatwhere.studio.session import Session
from whatwhere.studio.session import Which as Which

Answer = TypeVar("Answer")
Value = float | int | bool | str
Kind = Literal["flag", "choice", "whole", "number"]

LONGEST_TEXT = 20_000
# Settings of schemes of the catalogue; 0 takes the sizes of the open model.
Features = Annotated[int, 0, 1024]
Heads = Annotated[int, 0, 64]
Seed = Annotated[int, 0, 1 << 31]

Query = Callable[[Session, Mapping[str, Any]], Any]
JobFunction = Callable[[Session, Mapping[str, Any], Report], Any]
QUERIES: dict[str, Query] = {}  # what is answered at once, by the name that the page uses
JOBS: dict[str, JobFunction] = {}  # what takes seconds or minutes: it runs as a job, and reports its progress


def query(name: str) -> Callable[[Callable[..., Answer]], Callable[..., Answer]]:
    """Make a function one of QUERIES, or one of JOBS where it takes a report: (session, settings[, report]) -> answer.

    It is written as (session[, report], *, ...): its settings are the arguments behind the star. Their annotations are
    what they may be: str, bool, Literal, or Annotated[int, least, greatest]. Of a comparison, one without a setting
    `run` takes it all the same, and gets the session on the model of that run.
    """
    return lambda function: _named(name, function)


def _named(name: str, function: Callable[..., Answer]) -> Callable[..., Answer]:
    parameters = signature(function).parameters
    known = {name: each for name, each in parameters.items() if each.kind is each.KEYWORD_ONLY}

    @wraps(function)
    def answer(session: Session, settings: Mapping[str, Any], *report: Report) -> Answer:
        if session.runs and "run" in settings and "run" not in known:
            run, settings = settings["run"], {name: value for name, value in settings.items() if name != "run"}
            _require("run", run, str)
            session = session.of_run(run)
        if other := sorted(set(settings) - set(known)):
            raise SettingError(f"this query has no setting {other[0]!r}; it has: {', '.join(known) or 'none'}.")
        given = {name: None if each.default is each.empty else each.default for name, each in known.items()}
        given |= settings
        for name, value in given.items():
            _require(name, value, known[name].annotation)
        return function(session, *report, **given)

    if len(parameters) - len(known) == 1:
        QUERIES[name] = answer
    else:
        JOBS[name] = answer
    return answer


def _require(name: str, value: Any, annotation: Any) -> None:
    if annotation is bool:
        right, needed = isinstance(value, bool), "true or false"
    elif annotation is str:
        right, needed = isinstance(value, str), "a text"
    elif get_origin(annotation) is Literal:
        right, needed = value in get_args(annotation), f"one of {', '.join(get_args(annotation))}"
    else:
        least, greatest = annotation.__metadata__
        right = type(value) is int and least <= value <= greatest
        needed = f"a whole number from {least:,} to {greatest:,}"
    if not right:
        short = reprlib.repr(value)[:80]  # which does not descend into what is nested deeply
        raise SettingError(f"{name} must be {needed}, but is {short}.")
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        raise SettingError(f"{name} has {len(value):,} characters; at most {LONGEST_TEXT:,} are taken.")
    if isinstance(value, str) and any(0xD800 <= ord(char) < 0xE000 for char in value):
        raise SettingError(f"{name} has half a character (a lone surrogate), which no text has.")


def in_steps(report: Report, count: int) -> Callable[[str], None]:
    """Return a function that reports the next of about so many steps."""
    steps = iter(range(count))
    return lambda step: report(next(steps, count - 1) / count, step)


@dataclass(frozen=True)
class Findings(Headline):
    """Findings to read: the main facts in a sentence, and sections; and how they were made, or ""."""

    sections: Sequence[Section]
    method: str = ""


@dataclass(frozen=True)
class ExportedView:
    """What an exported page holds of a view."""

    queries: Sequence[tuple[str, Mapping[str, Any]]]  # names and settings of those whose answers it holds
    sections: Sequence[Section] = ()  # the same to read without JavaScript
    begin: Mapping[str, Any] | None = None  # settings that the view begins with there; None for those of the live page
    text: Sequence[str] = ()  # sentences above the sections, the answer first


def columns(caption: str, values: Mapping[str, Iterable[Any]], shorten: Shorten = "first") -> Table:
    """Return a table of columns by their headings: texts, and numbers, which are formatted."""
    cells = [[each if isinstance(each, str) else number(float(each)) for each in column] for column in values.values()]
    numeric = [n for n, column in enumerate(values.values()) if not any(isinstance(each, str) for each in column)]
    return Table(caption, [*values], [*zip(*cells, strict=True)], numeric, shorten=shorten)


@dataclass(frozen=True)
class Parameter:
    """A parameter of a scheme, and its control on the page."""

    name: str
    kind: Kind
    value: Value  # the current one; in a list of parameters, the default
    low: float | int = 0  # the ends of the slider
    high: float | int = 0
    least: float | int | None = None  # the range of valid numbers; None is the slider's end
    most: float | int | None = None
    base: int | None = None  # of a logarithmic slider; None for a linear one
    steps: float | int = 1  # of the slider, for each power of the base, or for each 1
    choices: tuple[str, ...] = ()
    help: str = ""
    rare: bool = False  # whether its control is folded away

    def read(self, text: str) -> Value:
        """Return the value that a text means, or raise SettingError."""
        choices = ("true", "false") if self.kind == "flag" else self.choices
        if choices:
            if text not in choices:
                raise SettingError(f"{self.name} must be one of {', '.join(choices)}, but is {text[:40]!r}.")
            return text == "true" if self.kind == "flag" else text
        least = self.low if self.least is None else self.least
        most = self.high if self.most is None else self.most
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not (isfinite(value) and least <= value <= most and (self.kind == "number" or value.is_integer())):
            kind = "whole number" if self.kind == "whole" else "number"
            raise SettingError(f"{self.name} must be a {kind} from {least:,g} to {most:,g}, but is {text[:40]!r}.")
        return int(value) if self.kind == "whole" else value


def parse(text: str, parameters: Sequence[Parameter]) -> dict[str, Value]:
    """Return the values that a text sets."""
    by_name = {parameter.name: parameter for parameter in parameters}
    values: dict[str, Value] = {}
    for piece in text.split():
        name, equals, value = piece.partition("=")
        if not equals or name not in by_name:
            raise SettingError(f"{piece[:40]!r} sets nothing here: write name=value, of {', '.join(by_name)}.")
        values[name] = by_name[name].read(value)
    return values


def with_values(parameters: Sequence[Parameter], *values: Mapping[str, Value]) -> list[Parameter]:
    """Return parameters with the last value that is set of each, else the default."""
    merged = {name: value for some in values for name, value in some.items()}
    return [replace(each, value=merged.get(each.name, each.value)) for each in parameters]
