"""encode and schemes: the vectors of a text, and the catalogue of positional encodings."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from whatwhere.cli.app import LEARN, Base, Printed, Run, command, complete_scheme, to_path, to_paths, whole_numbers
from whatwhere.cli.compare import Modules, load_own
from whatwhere.errors import SettingError, ShapeError, TextError
from whatwhere.report.section import Table

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MOST_ROWS = 1000  # rows of a table in the terminal; a table of 30,000 takes half a minute to lay out


@command(LEARN)
def encode(
    text: Annotated[str | None, Argument(help="Text to encode.")] = None,
    file: Annotated[Path | None, to_paths("UTF-8 file to encode instead.")] = None,
    ids: Annotated[str | None, Option(help="Token ids instead of a text, as in 105,6587,12.")] = None,
    tokenizer: Annotated[
        str | None,
        Option(
            help="A tokenizer.json or its folder; words (each new word gets the next id); or expressions, those of the "
            "first tutorial. Default: expressions where the whole text is one, else words."
        ),
    ] = None,
    model: Annotated[
        Path | None, to_paths("Take tokenizer, trained rows and positions of a model or results folder.", "--from")
    ] = None,
    run: Run = None,
    base: Base = None,
    scheme: Annotated[
        str | None,
        Option(
            autocompletion=complete_scheme,
            help="Positional encoding, of `whatwhere schemes`, or a mixture. Default: sinusoidal, or the model's.",
        ),
    ] = None,
    dim: Annotated[int | None, Option(help="Features of a vector. Default: 8, or the model's.", min=1)] = None,
    heads: Annotated[
        int | None, Option(help="Attention heads, for schemes of queries, keys or scores. Default: 2.", min=1)
    ] = None,
    seed: Annotated[int, Option(help="Random seed of the token table and of learned positions.", min=0)] = 0,
    module: Modules = None,
    save: Annotated[Path | None, to_paths("Write ids and vectors as safetensors.")] = None,
) -> Printed:
    """Print how a text becomes vectors: tokens, ids, token embeddings, positional encodings and their sum.

    Rows are random samples, unless --from names a model or a results folder.

    With trained rows: whatwhere encode "Max(1,6,2)" --from whatwhere-demo --run rotary-0

    Example: whatwhere encode "The cat sat on the mat." --scheme rotary --dim 8
    """
    from whatwhere.report.tokens import walk_steps
    from whatwhere.what import text as texts

    if sum(each is not None for each in (text, file, ids)) > 1:
        raise TextError("encode got several of a text, a file and ids, but encodes one of them: pass only one.")
    content = texts.read_text(file) if file is not None else text
    if content is None and ids is None:
        raise TextError('encode needs a text, a file or ids: whatwhere encode "The cat sat on the mat."')
    numbers = None if ids is None else whole_numbers("--ids", ids)
    if model is not None:
        own = (("--tokenizer", tokenizer), ("--dim", dim), ("--heads", heads))
        if given := [name for name, value in own if value is not None]:
            raise SettingError(f"encode got --from and {given[0]}, but with --from that is the model's own.\nOmit one.")
        from whatwhere.analysis.walkthrough import walk_model
        from whatwhere.models.checkpoint import Checkpoint

        opened = Checkpoint.open(model, base=base)
        opened.builds = load_own(module or []).schemes
        walkthrough = walk_model(opened, content, ids=numbers, run=run, scheme=scheme, seed=seed)
    else:
        if run is not None or base is not None or module:
            raise SettingError(
                "--run, --base and --module are of what --from names.\nPass it too: --from whatwhere-demo."
            )
        from whatwhere.analysis.walkthrough import walk

        chosen, name = None if tokenizer is None else _tokenizer(tokenizer, content), scheme or "sinusoidal"
        sizes = {size: value for size, value in (("dim", dim), ("num_heads", heads)) if value is not None}
        try:
            walkthrough = walk(content, ids=numbers, tokenizer=chosen, scheme=name, seed=seed, **sizes)
        except ShapeError as problem:
            size, number = dim or 8, heads or 2
            each = size // number
            if size % number or each % 2 == 0 or "head_dim" not in str(problem):
                raise
            least = max(each // 2, 1) * 2 * number
            raise ShapeError(
                f"--dim {size} in {number} heads is {each} features for each head, but a head of {name} needs an even "
                f"number: it rotates pairs of features.\nPass --dim {least} or {least + 2 * number}, or --heads 1 with "
                "an even --dim."
            ) from None
    saved = []
    if save is not None:
        walkthrough.save(save)
        saved = [f"Saved: {save}"]
    return Printed(walkthrough, [*walk_steps(walkthrough, seed), *saved], rows=MOST_ROWS)


@command(LEARN)
def schemes(
    names: Annotated[
        list[str] | None,
        Argument(autocompletion=complete_scheme, help="Schemes to print, each with its family. Default: all."),
    ] = None,
    bibtex: Annotated[bool, Option("--bibtex", help="Print the sources as BibTeX instead; JSON has them.")] = False,
) -> Printed:
    """Print the catalogue of positional encodings: name, door, formula and properties of each.

    To cite them: whatwhere schemes --bibtex > schemes.bib

    Example: whatwhere schemes rotary
    """
    from whatwhere.where.catalogue import canonical_name, catalogue, describe, entry_of

    families = [entry_of(canonical_name(name)).name for name in names or ()]
    entries = [row for name, row in catalogue.items() if any(f"{name}-".startswith(f"{each}-") for each in families)]
    rows = [describe(row) for row in entries or catalogue.values()]
    if bibtex:
        text = "\n\n".join(dict.fromkeys(row.bibtex for row in rows))
        return Printed(rows, [line or " " for line in text.split("\n")])
    header = ("scheme", "door", "formula", "learned", "relative", "up to", "used by")
    cells = []
    for row in rows:
        facts = "yes" if row.learned else "no", row.shift_invariance, row.length
        cells.append([row.name, row.door or "none", row.formula, *facts, ", ".join(row.used_by)])
    sources = [f"{row.name}: {row.paper}, {row.url}" for row in rows if names]
    return Printed(rows, [Table("", header, cells, shorten="never"), *sources])


def _tokenizer(chosen: str, content: str | None) -> "Tokenizer":
    from whatwhere.models.checkpoint.tokenizer_files import tokenizer_in
    from whatwhere.what import text as texts
    from whatwhere.what.expressions import expression_tokenizer

    if chosen == "expressions":
        return expression_tokenizer()
    if chosen == "words":
        if content is None:
            raise TextError("--tokenizer words numbers the words of a text, but got ids.\nOmit it.")
        return texts.words(content)
    file = to_path(chosen)
    if not file.exists():
        raise TextError(
            f"--tokenizer got {chosen!r}, but there is no such file.\n"
            "Pass words, expressions, or the path of a tokenizer.json or of its folder."
        )
    if not file.is_dir():
        return texts.load(file)
    tokenizer = tokenizer_in(file)
    if isinstance(tokenizer, str):
        raise TextError(f"--tokenizer got {chosen!r}, but {tokenizer}.\nPass the path of a tokenizer.json.")
    return tokenizer
