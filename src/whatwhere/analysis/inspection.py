"""Findings on the input layer of a checkpoint: its token table, and the positional encodings of its configuration."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from whatwhere import __version__
from whatwhere.analysis.added_positions import InputVariance, PositionTable, positions, variance
from whatwhere.analysis.biases import BiasReport, biases
from whatwhere.analysis.pca import Spectrum
from whatwhere.analysis.rotary import RotaryReport, rotary
from whatwhere.analysis.subject import Progress, Subject, or_missing
from whatwhere.analysis.token_diagnostics import TokenDiagnostics, token_diagnostics
from whatwhere.analysis.token_table import Norms, Sizes, norms, sizes, token_spectrum
from whatwhere.analysis.token_tables import SiblingTables, token_tables
from whatwhere.errors import SettingError
from whatwhere.escape import visible
from whatwhere.models.checkpoint import Checkpoint, has_tensors
from whatwhere.models.load_where import of_run
from whatwhere.records import Missing

__all__ = ["SECTIONS", "Inspection", "check_sections", "examine", "inspect"]


@dataclass(frozen=True, eq=False)
class Inspection:
    """The findings on a checkpoint. A section is None where it was not requested, and Missing where it cannot be."""

    path: str
    format: str  # of the checkpoint, such as "safetensors"; "run" of a comparison, "configuration" without weights
    whatwhere: str  # the version that made this
    seed: int  # random seed of samples of rows
    shape: tuple[int, ...] | None  # of the token table; None where there is none
    sizes: Sizes | Missing | None = None
    tables: SiblingTables | Missing | None = None  # others that token ids select: by layer, factorized, hashed ...
    variance: InputVariance | Missing | None = None  # of the first layer's input, split into tokens and positions
    norms: Norms | Missing | None = None  # of the rows of the token table
    spectrum: Spectrum | Missing | None = None
    diagnostics: TokenDiagnostics | Missing | None = None  # under-trained, unreachable, duplicate, hub, zero, NaN rows
    positions: PositionTable | Missing | None = None
    rotary: RotaryReport | Missing | None = None  # rotations of queries and keys
    biases: BiasReport | Missing | None = None  # of attention scores, by distance

    def __repr__(self) -> str:
        """Return one line with the sections that there are; the findings would fill a notebook."""
        shape = "no token table" if self.shape is None else " × ".join(f"{size:,}" for size in self.shape)
        found = [name for name in SECTIONS if not isinstance(getattr(self, name), Missing | None)]
        return f"<inspection of {visible(self.path)} ({shape}): {', '.join(found) or 'nothing'}>"


_SECTIONS: dict[str, Callable[[Subject], object]] = {
    "sizes": sizes,
    "tables": token_tables,
    "variance": variance,
    "norms": norms,
    "spectrum": token_spectrum,
    "diagnostics": token_diagnostics,
    "positions": positions,
    "rotary": rotary,
    "biases": biases,
}
SECTIONS = tuple(_SECTIONS)  # the sections of an inspection, in their order
CONFIGURED = ("sizes", "positions", "rotary", "biases")
"""Those of a configuration without weights, unless others are requested."""


def inspect(
    path: str | Path | Checkpoint,
    sections: Sequence[str] | None = None,
    *,
    run: str | None = None,
    seed: int = 0,
    texts: Sequence[str] = (),
    allow_pickle: bool = False,
    progress: Progress = lambda _: None,
) -> Inspection:
    """Inspect the input layer of a checkpoint, of a run of a comparison, or of a configuration without weights.

    Print the findings with `whatwhere inspect`; `whatwhere.records.to_json` writes them as JSON.

    Args:
        path: a file or folder of any format that `whatwhere.read` opens, a config.json, or an open checkpoint.
        sections: some of SECTIONS; None is all.
        run: of a comparison, such as "rotary-0"; it may be None where there is only one.
        seed: random seed for samples of rows, where tables are large.
        texts: documents, whose n-grams are looked up in tables of hashed n-grams.
        allow_pickle: read pickles too; pass True only where you trust the author.
        progress: called with each step that takes a while, in words.

    Returns:
        The findings, by section.

    Raises:
        SettingError: If a section is unknown, or none is requested; or a comparison has several runs and none is named.
        CheckpointError: If the file cannot be read.

    Examples:
        >>> from tempfile import mkdtemp
        >>> import numpy as np
        >>> file = Path(mkdtemp(), "table.npy")
        >>> np.save(file, np.random.default_rng(0).standard_normal((500, 16)).astype(np.float32))
        >>> inspect(file, ["norms"]).norms.finite
        500
    """
    requested = check_sections(sections)  # before a file is opened
    return examine(Subject(opened(path, run, allow_pickle=allow_pickle), seed, progress, tuple(texts)), requested)


def opened(path: str | Path | Checkpoint, run: str | None = None, *, allow_pickle: bool = False) -> Checkpoint:
    """Open what is inspected: a checkpoint, one run of a comparison, or a configuration without weights."""
    if isinstance(path, Checkpoint):
        checkpoint = path
    elif has_tensors(path):
        checkpoint = Checkpoint.open(path, allow_pickle=allow_pickle)
    else:
        checkpoint = Checkpoint.of_configuration(path)
    return of_run(checkpoint, run)


def examine(
    subject: Subject, sections: Sequence[str] = SECTIONS, known: TokenDiagnostics | Missing | None = None
) -> Inspection:
    """Inspect a checkpoint whose tables may have been read already."""
    checkpoint = subject.checkpoint
    if checkpoint.format == "configuration":
        sections = [name for name in sections if name in CONFIGURED] if tuple(sections) == SECTIONS else sections
    findings = {
        name: known if name == "diagnostics" and known is not None else or_missing(_SECTIONS[name], subject)
        for name in sections
    }
    return Inspection(
        path=str(checkpoint.path),
        format=checkpoint.format,
        whatwhere=__version__,
        seed=subject.seed,
        shape=subject.shape,
        **findings,  # type: ignore[arg-type]
    )


def check_sections(sections: Sequence[str] | None) -> tuple[str, ...]:
    """Check the names of sections, and return them in their order."""
    requested = tuple(SECTIONS if sections is None else sections)
    known = f"Sections are: {', '.join(SECTIONS)}."
    for name in requested:
        if name not in SECTIONS:
            raise SettingError(f"sections got {name!r}, which is unknown.\n{known}")
    if not requested:
        raise SettingError(f"sections are empty, but at least one is needed.\n{known}")
    return tuple(name for name in SECTIONS if name in requested)
