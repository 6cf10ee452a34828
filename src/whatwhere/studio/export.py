"""The exported page: one file with the answers to its first queries, and tables for readers without JavaScript; the
same inside a notebook, in a frame of its own; and answers as bytes, in that file and on their way to a live page:

    bytes 0-3          length of the header, unsigned
    then               the header, padded with blanks so that what follows starts at a multiple of 8
    then               the arrays as they are in memory, little-endian, each at a multiple of 8

The header is the JSON {"answer": ..., "arrays": [{"dtype", "shape", "at"}]}; an array of the answer is replaced by
{"$array": its number}.
"""

import base64
import gzip
import hashlib
import html
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final

import numpy as np

from whatwhere.analysis.inspection import Inspection
from whatwhere.atomic import require_writable, write_atomic
from whatwhere.errors import MissingExtra, SettingError
from whatwhere.installation import REBUILD
from whatwhere.long_work import by_share
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.models.checkpoint.base import Contents, InTorch
from whatwhere.report.html import Markup, element, paragraph, sections
from whatwhere.studio.api import EXPORTS, JOBS, QUERIES, VIEWS, about
from whatwhere.studio.api.settings import ExportedView
from whatwhere.studio.schemes import first_names
from whatwhere.studio.session import Corpus, Session

if TYPE_CHECKING:
    from torch import nn

PAGE = Path(__file__).parent / "web" / "dist"  # the page as it was bundled when the package was built
LOWEST, HIGHEST = 200, 10_000
MEDIA_TYPE = "application/vnd.whatwhere.answer"
_ALIGN = 8
_DTYPES = {"f4": "<f4", "f8": "<f8", "i4": "<i4", "u4": "<u4", "u2": "<u2", "u1": "|u1"}
"""What JavaScript has typed arrays for; its 64-bit integers are not numbers."""


def export(
    path: str | Path | Checkpoint | None,
    file: str | Path,
    *,
    map_method: Literal["pca", "tsne", "umap"] = "pca",
    corpus: str | Path | None = None,
    allow_pickle: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Path:
    """Write the studio's page on a checkpoint or on the results of a comparison into one HTML file.

    It opens in any browser, from a disk or a mail, and needs no program and no network; without JavaScript it shows
    text and tables. It holds what the views show first, and the nearest neighbors of all tokens, which for 30,000
    tokens take half a minute to compute.

    Args:
        path: a checkpoint, or the path of one or of a results folder; None is a small table of random vectors.
        file: to write; an existing one is replaced, whole or not at all.
        map_method: adds a token map by t-SNE (extra `map`) or UMAP (extra `umap`) to the one by PCA.
        corpus: a text in UTF-8, whose tokens are counted to color the map by.
        allow_pickle: read pickles of PyTorch too; only where you trust the author.
        progress: called with each step that takes a while, in words.

    Returns:
        The path of the file.

    Raises:
        MissingExtra: If this installation has no page, or lacks the package of the map.
        CheckpointError: If the checkpoint cannot be read.
        SettingError: If the map has no such method, or the file cannot be written or is the checkpoint itself.

    Examples:
        >>> export("path/to/model", "model.html", map_method="umap")  # doctest: +SKIP
        PosixPath('model.html')
    """
    if isinstance(path, Checkpoint):
        session = Session(path, None if corpus is None else Corpus(Path(corpus)))
    else:
        session = Session.open(path, allow_pickle=allow_pickle, corpus=None if corpus is None else Path(corpus))
    check_file(file, session.checkpoint)
    if map_method != "pca":
        settings = {"method": map_method, "table": "input"}
        with by_share(map_method) as report:

            def show(fraction: float, message: str) -> None:
                progress(f"{map_method}: {message}")
                report(fraction, message)

            JOBS["maps.draw"](session, settings, show)
    return write_page(session, file, progress)


def render_page(session: Session, progress: Callable[[str], None] = lambda _: None) -> str:
    """Return the studio on a session as one HTML document, with the answers that each view chooses in `exported`.

    Its policy runs the scripts of the document alone, by hash; it loads nothing and sends nothing.
    """
    check_page()
    views: dict[str, ExportedView] = {}
    # The overview of a model, which takes seconds to compute, is there at once in a file: it is first.
    for name in sorted(about(session, {}).views, key=lambda name: session.kind != "checkpoint" or name != "overview"):
        progress(f"exporting {name}")
        if (view := EXPORTS[name](session)) is not None:
            views[name] = view
    progress("computing the answers")
    # Queries hold words of the vocabulary, of which no character may end the script.
    data = json.dumps(_exported(session, views)).replace("<", "\\u003c")
    script, style = ((PAGE / name).read_text(encoding="utf-8") for name in ("studio.js", "studio.css"))
    # An inline script ends at the first </script, wherever it is; <!-- may make the rest a comment.
    script = script.replace("</script", "<\\/script").replace("<!--", "<\\!--")
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", attributes={"http-equiv": "Content-Security-Policy", "content": policy}),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", f"{session.name} · whatwhere studio"),
        Markup(f"<style>{style}</style>"),
    )
    body = element(
        "body",
        element("div", id="studio"),
        element("noscript", _without_javascript(session, views)),
        Markup(f'<script type="application/json" id="exported">{data}</script>'),
        Markup(f"<script>{script}</script>"),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def write_page(session: Session, file: str | Path, progress: Callable[[str], None] = lambda _: None) -> Path:
    """Write the exported page of a session into a file, in one step, and return its path."""
    file = check_file(file, session.checkpoint)
    content = render_page(session, progress)
    with writing(file):
        write_atomic(file, content)
    return file


def write_inspection(
    checkpoint: Checkpoint, inspection: Inspection, file: str | Path, progress: Callable[[str], None] = lambda _: None
) -> Path:
    """Write the studio's page on an inspected checkpoint as one file, which opens on the findings."""
    session = Session(checkpoint)
    session.keep_inspection(inspection)
    return write_page(session, file, progress)


def check_file(file: str | Path, read: Checkpoint) -> Path:
    """Check that a page can be written, and return its path; the checkpoint of the page is not overwritten."""
    check_page()
    file = Path(file)
    if file.is_dir():
        raise SettingError(f"{file} is a folder, but the page is one file: pass {file / 'report.html'}.")
    parts = {entry.file for entry in read.tensors.values() if entry.file.exists()}
    if file.exists() and any(file.samefile(each) for each in parts):
        raise SettingError(f"{file} is part of the checkpoint, which is not overwritten.\nName another file.")
    with writing(file):
        require_writable(file)
    return file


def check_page(page: Path | None = None) -> None:
    """Raise MissingExtra if the page was not bundled when the package was built."""
    if not ((page or PAGE) / "index.html").is_file():
        raise MissingExtra(
            "this installation has no page for the studio: it was built without Node.js.\n"
            f"In a checkout: make page. Else install Node.js 20 or later and build again: {REBUILD}"
        )


@contextmanager
def writing(file: Path) -> Iterator[None]:
    """Raise SettingError where a file cannot be written."""
    try:
        yield
    except (OSError, ValueError) as problem:  # ValueError: a path with a null byte
        reason = getattr(problem, "strerror", None) or problem
        raise SettingError(f"{file} cannot be written: {reason}.\nChoose another file.") from None


def _exported(session: Session, views: Mapping[str, ExportedView]) -> dict[str, Any]:
    """Return the answers to the queries of the views, each once, packed and gzipped; and by query which answers it."""
    # The path of the file stays here: the page may go anywhere.
    opened = about(session, {})
    begin = {**opened.begin, **{name: view.begin for name, view in views.items() if view.begin is not None}}
    held = first_names(session)
    titles = {name: title for name, title in zip(opened.runs, opened.run_titles, strict=True) if name in held}
    opened = replace(opened, path="", begin=begin, exported=True)
    opened = replace(opened, views={name: opened.views[name] for name in views})
    opened = replace(opened, runs=[*titles], run_titles=[*titles.values()])
    functions: Mapping[str, Callable[..., Any]] = {**QUERIES, **JOBS}
    known: dict[bytes, int] = {}
    answers = {_key("about", {}): known.setdefault(pack(opened), 0)}
    for name, settings in (query for view in views.values() for query in view.queries):
        report = [lambda fraction, message: None] if name in JOBS else []
        packed = pack(functions[name](session, settings, *report))
        answers[_key(name, settings)] = known.setdefault(packed, len(known))
    blocks = [base64.b64encode(gzip.compress(packed, 9, mtime=0)).decode() for packed in known]
    return {"blocks": blocks, "answers": answers}


def _key(name: str, settings: Mapping[str, Any]) -> str:
    """Return the key of a query as the page does: web/src/exported.ts sorts and writes alike."""
    return f"{name}?{json.dumps(dict(sorted(settings.items())), ensure_ascii=False, separators=(',', ':'))}"


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _without_javascript(session: Session, views: Mapping[str, ExportedView]) -> Markup:
    """Return what the views show as sentences and tables."""
    links = element("ol", *(element("li", element("a", VIEWS[name].title, href=f"#{name}")) for name in views))
    return element(
        "main",
        element("h1", f"{session.name} · whatwhere studio"),
        paragraph("These are the numbers of the page, which draws with JavaScript."),
        element("nav", links, aria_label="Views"),
        *(
            element(
                "section",
                element("h2", VIEWS[name].title),
                *map(paragraph, view.text),
                *sections(view.sections, level=3, prefix=f"{name}-"),
                id=name,
            )
            for name, view in views.items()
        ),
    )


@final
class Shown:
    """A page that a notebook shows, and that can be saved as a file of its own.

    Attributes:
        page: the whole HTML document.
    """

    def __init__(self, page: str, height: int, name: str) -> None:
        self.page, self._height, self._name = page, height, name

    def save(self, path: str | Path) -> Path:
        """Write the page to a file, which any browser opens."""
        target = Path(path)
        with writing(target):
            write_atomic(target, self.page)
        return target

    def _repr_html_(self) -> str:
        """Return what Jupyter shows: a frame whose scripts reach neither the notebook nor the network."""
        return (
            f'<iframe title="whatwhere studio: {html.escape(self._name)}" sandbox="allow-scripts allow-downloads" '
            f'width="100%" height="{self._height}" style="border:0" srcdoc="{html.escape(self.page)}"></iframe>'
        )

    def __repr__(self) -> str:
        return f"Shown({self._name!r}, {len(self.page):,} characters); save('studio.html') writes a page for a browser"


def show(model: Any = None, tokenizer: Any = None, *, height: int = 820) -> Shown:
    """Show the studio on a model inside a notebook, as an exported page, which needs no server.

    A notebook shows the result where it is the last line of a cell. The map holds the neighbors of all tokens, which
    for 30,000 tokens take half a minute to find.

    Args:
        model: a path, what `whatwhere.read` returns, or a module of PyTorch; None is a small fresh table.
        tokenizer: of a module, to name its tokens: one of the `tokenizers` library, or one of transformers that has it
            inside.
        height: of the frame, in pixels, 200 to 10,000.

    Raises:
        SettingError: If height is out of range, or model or tokenizer is something else.

    Examples:
        >>> shown = show()  # doctest: +SKIP
        >>> shown.save("studio.html")  # doctest: +SKIP
    """
    if isinstance(height, bool) or not isinstance(height, int) or not LOWEST <= height <= HIGHEST:
        raise SettingError(
            f"show got height={height!r}, but needs a whole number of pixels from {LOWEST:,} to {HIGHEST:,}."
        )
    session = _session(model, tokenizer)
    return Shown(render_page(session), height, session.name)


def _session(model: Any, tokenizer: Any) -> Session:
    if model is None or isinstance(model, str | Path | Checkpoint):
        if tokenizer is not None:
            raise SettingError("show got a tokenizer for what has its own.\nPass it together with a module of PyTorch.")
        return Session(model) if isinstance(model, Checkpoint) else Session.open(model)
    if not hasattr(model, "state_dict"):
        raise SettingError(
            f"show got a {type(model).__name__}, but takes a path, what whatwhere.read returns, or a module of PyTorch."
        )
    inner = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if inner is not None and not hasattr(inner, "decode_batch"):
        raise SettingError(
            f"show got a {type(tokenizer).__name__} as tokenizer, which has none of the tokenizers library inside.\n"
            "Pass tokenizers.Tokenizer, or a fast tokenizer of transformers."
        )
    if inner is not None:
        inner = type(inner).from_str(inner.to_str())  # a copy of our own, for the caller's may pad
        inner.no_padding()
        inner.no_truncation()
    session = Session(live(model, inner))
    session.once("tokenizer", lambda: inner)
    return session


def live(model: "nn.Module", tokenizer: Any = None) -> Checkpoint:
    """Return the tensors of a module as a checkpoint, read from the module when they are needed."""
    from whatwhere.what.embedding import TokenEmbedding

    path = Path(type(model).__name__)
    tensors = {name: each for name, each in model.state_dict().items() if hasattr(each, "detach")}
    entries = {name: InTorch.of(name, each, path) for name, each in tensors.items()}
    ours = [name for name, part in model.named_modules() if isinstance(part, TokenEmbedding)]
    table = ".".join(filter(None, (ours[0], "weight"))) if ours else None
    if len(entries) == 1 and table is None:
        table = next(iter(entries))
    config = getattr(model, "config", None)
    settings: dict[str, Any] | None = config.to_dict() if config is not None and hasattr(config, "to_dict") else None
    words = None if tokenizer is None else _words(tokenizer)
    return Checkpoint(path, Contents("memory", entries, lambda: words, settings, token_table=table))


def _words(tokenizer: Any) -> list[str]:
    known: dict[str, int] = tokenizer.get_vocab(with_added_tokens=True)
    words = [""] * (max(known.values(), default=-1) + 1)
    for word, number in known.items():
        words[number] = word
    return words


def pack(answer: object) -> bytes:
    """Write an answer as bytes.

    Numbers that are not finite become null, outside of arrays: JSON has no such numbers. Integers of 64 bits become
    int32 where they fit, else float64, which is exact below 2^53.

    Examples:
        >>> unpack(pack({"norms": np.array([1.0, 2.0], np.float32), "k": 3}))
        {'norms': array([1., 2.], dtype=float32), 'k': 3}
    """
    arrays: list[np.ndarray] = []
    encoded = _to_json(answer, arrays)
    at, headers = 0, []
    for array in arrays:
        headers.append({"dtype": _code(array), "shape": list(array.shape), "at": at})
        at += array.nbytes + -array.nbytes % _ALIGN
    header = json.dumps({"answer": encoded, "arrays": headers}, allow_nan=False, separators=(",", ":")).encode()
    header += b" " * (-(4 + len(header)) % _ALIGN)
    body = [len(header).to_bytes(4, "little"), header]
    for array in arrays:
        body += [array.tobytes(), b"\0" * (-array.nbytes % _ALIGN)]
    return b"".join(body)


def unpack(message: bytes) -> dict[str, Any]:
    """Read what `pack` wrote: the page's own reader, in Python."""
    size = int.from_bytes(message[:4], "little")
    header = json.loads(message[4 : 4 + size])
    arrays = []
    for entry in header["arrays"]:
        dtype, count = np.dtype(_DTYPES[entry["dtype"]]), math.prod(entry["shape"])
        flat = np.frombuffer(message, dtype, count, 4 + size + entry["at"])
        arrays.append(flat.reshape(entry["shape"]))
    answer: dict[str, Any] = _with_arrays(header["answer"], arrays)
    return answer


def _to_json(value: Any, arrays: list[np.ndarray]) -> Any:
    """Return a value as JSON can hold it, its arrays moved to a list."""
    if hasattr(value, "detach"):  # a tensor of PyTorch
        value = value.detach().numpy()
    if isinstance(value, np.ndarray):
        arrays.append(_narrow(value))
        return {"$array": len(arrays) - 1}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if is_dataclass(value):
        return {field.name: _to_json(getattr(value, field.name), arrays) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _to_json(inner, arrays) for key, inner in value.items()}
    if isinstance(value, Sequence):
        return [_to_json(inner, arrays) for inner in value]
    raise TypeError(f"an answer holds a {type(value).__name__}, which has no form on the wire.")


def _narrow(array: np.ndarray) -> np.ndarray:
    kind, size = array.dtype.kind, array.dtype.itemsize
    if kind == "b":
        target = "u1"
    elif kind in "iu" and f"{kind}{size}" not in _DTYPES:
        low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
        target = "i4" if low >= -(1 << 31) and high < 1 << 31 else "f8"
    elif kind == "f":
        target = "f8" if size > 4 else "f4"
    elif kind in "iu":
        target = f"{kind}{size}"
    else:
        raise TypeError(f"an answer holds an array of {array.dtype}, which has no form on the wire.")
    return np.ascontiguousarray(array, _DTYPES[target]).reshape(array.shape)  # a single number keeps its shape


def _code(array: np.ndarray) -> str:
    return f"{array.dtype.kind}{array.dtype.itemsize}"


def _with_arrays(value: Any, arrays: list[np.ndarray]) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"$array"}:
            return arrays[value["$array"]]
        return {key: _with_arrays(inner, arrays) for key, inner in value.items()}
    return [_with_arrays(inner, arrays) for inner in value] if isinstance(value, list) else value
