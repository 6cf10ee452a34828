"""golden, verify and doctor: the numbers of a model's positions, and checks of a port and of this installation."""

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from whatwhere.cli.app import PORT, PREPARE, Printed, command, to_path, to_paths
from whatwhere.report.section import Section


@command(PORT)
def golden(
    model: Annotated[Path, Argument(parser=to_path, help="Model or config.json, or its name at huggingface.co.")],
    out: Annotated[Path, to_paths("New folder for golden.json and its numbers.", "--out")],
    show_step: Any,
    part: Annotated[str | None, Option(help="Of a model that has both: encoder or decoder.")] = None,
    like: Annotated[str | None, Option(help="Known model type to read an unknown one like.")] = None,
    force: Annotated[bool, Option("--force", help="Replace a folder of golden vectors.")] = False,
) -> Printed:
    """Write the numbers of a model's positions, for checking a port of it in any language.

    For each kind of layer: pairs, frequencies, cosine and sine, rotated vectors, temperature, scale, window, bias,
    sinks and T5's buckets, in float64, at positions up to 131,071; and the first rows of learned positions. A
    configuration is enough for all but learned numbers.

    Example: whatwhere golden path/to/config.json --out golden
    """
    from whatwhere.models.checkpoint import read
    from whatwhere.models.golden import write_golden

    source = read(model, part=part, like=like)
    show_step("computing the numbers")
    written = write_golden(source, out, force=force)
    table = getattr(source, "position_table", None)
    lines = [] if table is None else [f"model: the first rows of {table}, from position 0 on"]
    for n, kind in enumerate(written.kinds):
        layers = f"{len(kind.layers)} layers" if len(kind.layers) > 1 else "1 layer"
        lines += [f"kind {n}, {layers}: {kind.where}", f"  numbers: {', '.join(kind.names)}"]
        lines += [f"  not written: {left}" for left in kind.not_written]
    return Printed(written, [*lines, f"Written: {out}"])


@command(PORT)
def verify(
    folder: Annotated[Path, Argument(parser=to_path, help="Folder that whatwhere golden has written.")],
    numbers: Annotated[Path, Argument(parser=to_path, help="Safetensors with its names, as the port computes them.")],
    float32_angles: Annotated[
        bool, Option("--float32-angles", help="Allow angles in float32, as in transformers.")
    ] = False,
    partial: Annotated[bool, Option("--partial", help="Compare the names that are there, and miss none.")] = False,
) -> Printed:
    """Check the numbers that a port computes: which law it breaks, at which position, by which known mistake.

    The exit status is 1 where a law fails, or where a number is missing.

    Example: whatwhere verify golden numbers.safetensors
    """
    from whatwhere.models.golden import verify as compare

    reports = compare(folder, numbers, float32_angles=float32_angles, partial=partial)
    lines = [line for name, report in reports.items() for line in (name, *str(report).split("\n"), " ")]
    failed = not all(report.passed for report in reports.values())
    return Printed({name: report.as_dict() for name, report in reports.items()}, lines, failed=failed)


@command(PREPARE)
def doctor() -> Printed:
    """Print versions, kernels and threads, what is missing here, and the command that gets it.

    The exit status is 1 where something is missing that whatwhere does not work without.

    Example: whatwhere doctor
    """
    from whatwhere.installation import InstallationRecord, examine, headline, sections

    found = examine()
    record = InstallationRecord(headline(found), found)
    report = [Section("", f"{record.headline}.", []), *sections(found)]
    return Printed(record, report, failed=any(each.necessary for each in found.missing))
