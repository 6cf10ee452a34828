"""What is installed here: packages, kernels, threads; what is missing, and how to get it."""

import os
import platform
import re
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from whatwhere import __version__
from whatwhere.comparison.results import Machine, machine
from whatwhere.report.section import Headline, Section, Table
from whatwhere.report.text import count, listed

EXTRAS = {
    "compare": "tests of the differences between schemes in reports",
    "studio": "whatwhere studio",
    "models": "probe, and models loaded from their classes",
    "plots": "figures as files",
    "gguf": "quantised weights of GGUF files",
    "hub": "models at huggingface.co by name",
    "map": "maps by t-SNE",
    "umap": "maps by UMAP",
}
"""Extras for users -> what needs them."""

CHECKOUT_EXTRAS = ("site", "bench", "dev")  # extras for work in a checkout

_VARIABLES = (
    "WHATWHERE_KERNELS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "HF_HOME", "HF_HUB_OFFLINE", "HF_TOKEN", "NO_COLOR",
)  # fmt: skip

REBUILD = "pip install --force-reinstall --no-deps --no-binary whatwhere whatwhere"
"""The command that builds kernels and page here."""


@dataclass(frozen=True)
class Package:
    """A package that whatwhere can use."""

    name: str  # of the package
    needed: str  # the versions that serve, such as ">=2.6"; empty where any does
    installed: str | None  # the version that is here; None where there is none
    serves: bool  # whether that version is among those needed
    used_for: str  # what needs it
    command: str  # that installs it
    necessary: bool  # whether whatwhere does not work without it


@dataclass(frozen=True)
class Kernels:
    """Which kernels compute."""

    cpu: str | None  # the instruction set that the compiled library uses here; None where PyTorch computes instead
    gpu: tuple[str, ...]  # names of the GPUs that PyTorch sees
    triton: bool  # whether Triton starts the kernels of these


@dataclass(frozen=True)
class Missing:
    """Something that is missing or does not work."""

    what: str  # is missing, and what that costs
    remedy: str  # the command or the setting that mends it
    necessary: bool  # whether whatwhere does not work without it


@dataclass(frozen=True)
class Installation:
    """What is installed here."""

    whatwhere: str  # the version
    python: str  # the version
    folder: str  # of the package
    machine: Machine  # processor, cores, system
    threads: int | None  # that PyTorch uses; None where it does not load
    variables: dict[str, str]  # of the environment that change what is computed or read -> their values
    kernels: Kernels | None  # which compute; None where PyTorch does not load
    page: bool  # whether the page of the studio is here
    packages: tuple[Package, ...]  # each with its version
    missing: tuple[Missing, ...]  # what to mend, what is necessary first


def examine() -> Installation:
    """Return what is installed here and what is missing; nothing is changed and nothing is asked of a network."""
    folder = Path(__file__).parent
    packages = _packages()
    loaded = _torch()
    if isinstance(loaded, Missing):
        threads, kernels, problems = None, None, [loaded]
    else:
        threads, kernels = loaded
        problems = _kernel_problems(kernels, folder)
    page = (folder / "studio" / "web" / "dist" / "index.html").exists()
    if not page:
        problems.append(Missing("The studio has no page: whatwhere was built without Node.js.", REBUILD, False))
    problems = [*_package_problems(packages), *problems]
    return Installation(
        whatwhere=__version__,
        python=platform.python_version(),
        folder=str(folder),
        machine=machine(),
        threads=threads,
        variables={n: "set" if n == "HF_TOKEN" else os.environ[n] for n in _VARIABLES if n in os.environ},
        kernels=kernels,
        page=page,
        packages=packages,
        missing=tuple(sorted(problems, key=lambda each: not each.necessary)),
    )


def _packages() -> tuple[Package, ...]:
    """Return the packages that the installed metadata names, but for those of work in a checkout."""
    try:
        listed = [Requirement(line) for line in requires("whatwhere") or []]
    except PackageNotFoundError:
        listed = []
    result = {}
    for each in listed:
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", str(each.marker))
        name, needed = each.name, str(each.specifier)
        if extra is None:
            result[name, ""] = _package(name, needed, "everything", f"pip install '{name}{needed}'", necessary=True)
        elif name != "whatwhere" and extra[1] not in CHECKOUT_EXTRAS:
            used_for, command = EXTRAS.get(extra[1], extra[1]), f"pip install 'whatwhere[{extra[1]}]'"
            result[name, extra[1]] = _package(name, needed, used_for, command)
    return tuple(result.values())


def _package(name: str, needed: str, used_for: str, command: str, necessary: bool = False) -> Package:
    try:
        installed = version(name)
    except PackageNotFoundError:
        installed = None
    serves = installed is not None and SpecifierSet(needed).contains(installed, prereleases=True)
    return Package(name, needed, installed, serves, used_for, command, necessary)


def _package_problems(packages: tuple[Package, ...]) -> list[Missing]:
    problems = []
    if not any(package.necessary for package in packages):
        what = "whatwhere is imported from a folder and not installed: which packages it needs is unknown."
        problems.append(Missing(what, "pip install whatwhere, or in a checkout: pip install -e .", True))
    for package in packages:
        if not package.serves and package.necessary:
            state = "is not installed" if package.installed is None else f"is version {package.installed}"
            problems.append(Missing(f"{package.name}{package.needed} {state}.", package.command, True))
        elif not package.serves and package.installed is not None:
            what = f"{package.name} is version {package.installed}; {package.used_for} needs {package.needed}."
            problems.append(Missing(what, package.command, False))
    return problems


def _torch() -> tuple[int, Kernels] | Missing:
    """Return PyTorch's threads and the kernels, or why it does not load."""
    try:
        import torch

        from whatwhere.kernels import backend
    except (ImportError, OSError) as problem:
        return Missing(f"PyTorch does not load: {problem}.", "pip install --force-reinstall torch", True)
    library = backend.library()
    devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    gpus = tuple(torch.cuda.get_device_name(n) for n in range(devices))
    kernels = Kernels(library.level if library else None, gpus, bool(gpus) and backend.why_no_triton() is None)
    return torch.get_num_threads(), kernels


def _kernel_problems(kernels: Kernels, folder: Path) -> list[Missing]:
    from whatwhere.kernels.backend import FILE, VARIABLE, requested_kernels, why_no_triton

    problems = []
    if kernels.cpu is None and requested_kernels() == "pytorch":
        problems.append(Missing(f"{VARIABLE}=pytorch turns the kernels off.", f"unset {VARIABLE}", False))
    elif kernels.cpu is None:
        state = "was built for another system" if FILE.exists() else "is missing"
        what = f"The compiled library of kernels {state}: PyTorch's own operations run, with the same results, slower."
        compiler = "" if sys.platform == "win32" else "With a C++ compiler (g++ or clang++): "
        problems.append(Missing(what, compiler + REBUILD, False))
    if kernels.gpu and (why := why_no_triton()):
        problems.append(Missing(f"There is a GPU. {why[0]}", why[1], False))
    return problems


@dataclass(frozen=True)
class InstallationRecord(Headline):
    """What `whatwhere doctor --json` prints."""

    installation: Installation  # the findings


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
            *_kernel_rows(found.kernels),
            ["page of the studio", "yes" if found.page else "no"],
            *([name, value] for name, value in found.variables.items()),
        ],
        shorten="never",
    )
    packages = Table(
        "",
        ["package", "here", "needed", "by", "to install it"],
        [
            [p.name, p.installed or "not installed", p.needed, p.used_for, "" if p.serves else p.command]
            for p in found.packages
        ],
        shorten="never",
    )
    first = [Section("mend", "To mend", mend)] if mend else []
    return [*first, Section("system", "This installation", [system]), Section("packages", "Packages", [packages])]


def _kernel_rows(found: Kernels | None) -> list[list[str]]:
    if found is None:
        return [[f"kernels of the {unit}", "unknown"] for unit in ("CPU", "GPU")]
    cpu = f"compiled, {found.cpu}" if found.cpu else "none: PyTorch's own operations"
    gpu = f"{listed(found.gpu)}, {'by Triton' if found.triton else 'no Triton'}" if found.gpu else "no GPU"
    return [["kernels of the CPU", cpu], ["kernels of the GPU", gpu]]
