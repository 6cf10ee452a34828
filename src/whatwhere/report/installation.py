"""What is installed here, as sections: what is missing first."""

from dataclasses import dataclass

from whatwhere.installation import Installation, Kernels, Package
from whatwhere.report.section import Headline, Section, Table
from whatwhere.report.text import count, listed


@dataclass(frozen=True)
class InstallationRecord(Headline):
    """What `whatwhere doctor --json` prints.

    Args:
        installation: the findings.
    """

    installation: Installation


def headline(found: Installation) -> str:
    """Return whether whatwhere works here, in one sentence without its full stop."""
    necessary = sum(each.necessary for each in found.missing)
    if necessary:
        return f"whatwhere {found.whatwhere} does not work here: {count(necessary, 'thing')} to mend"
    if found.missing:
        return f"whatwhere {found.whatwhere} works here; {count(len(found.missing), 'thing')} could be better"
    return f"whatwhere {found.whatwhere} works here"


def sections(found: Installation) -> list[Section]:
    """Return what to mend, the machine, and the packages."""
    mend = [f"{each.what} To mend it: {each.remedy}" for each in found.missing]
    system = Table(
        "What numbers and speed depend on",
        ["", "here"],
        [
            ["Python", found.python],
            ["package", found.folder],
            ["machine", f"{found.machine.processor}, {count(found.machine.cores, 'core')}, {found.machine.system}"],
            ["threads of PyTorch", "unknown" if found.threads is None else str(found.threads)],
            *_kernels(found.kernels),
            ["page of the studio", "yes" if found.page else "no"],
            *([name, value] for name, value in found.variables.items()),
        ],
        shorten="never",
    )
    packages = Table(
        "Packages",
        ["package", "here", "needed", "by", "to install it"],
        [_row(package) for package in found.packages],
        shorten="never",
    )
    first = [Section("mend", "To mend", mend)] if mend else []
    return [*first, Section("system", "This installation", [system]), Section("packages", "Packages", [packages])]


def _kernels(found: Kernels | None) -> list[list[str]]:
    if found is None:
        return [[f"kernels of the {unit}", "unknown"] for unit in ("CPU", "GPU")]
    cpu = f"compiled, {found.cpu}" if found.cpu else "none: PyTorch's own operations"
    gpu = f"{listed(found.gpu)}, {'by Triton' if found.triton else 'no Triton'}" if found.gpu else "no GPU"
    return [["kernels of the CPU", cpu], ["kernels of the GPU", gpu]]


def _row(package: Package) -> list[str]:
    command = "" if package.serves else package.command
    return [package.name, package.installed or "not installed", package.needed, package.used_for, command]
