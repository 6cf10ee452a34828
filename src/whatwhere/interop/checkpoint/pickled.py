"""Models that PyTorch has pickled: .pt, .pth, .bin. Read only where the caller says so.

A pickle is a program: reading it runs what it says. `torch.load(weights_only=True)` keeps it to tensors and plain
containers, which has been relied on since torch 2.6 (before, CVE-2025-32434); with `mmap=True` numbers stay in the file
until they are asked for.
"""

import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np

from whatwhere.errors import CheckpointError
from whatwhere.interop.checkpoint.contents import Chosen, Contents, Entry, Reader
from whatwhere.interop.checkpoint.files import File, shown
from whatwhere.interop.checkpoint.numbers import KINDS

if TYPE_CHECKING:
    from torch import Tensor

_SAFE = (2, 6)
_MOST_DICTIONARIES = 500
"""More, or so many inside one another, no model has."""


def is_zip(head: bytes) -> bool:
    """Tell from the first bytes; .npz is a zip as well."""
    return head[:4] == b"PK\x03\x04"


def is_old_pickle(head: bytes) -> bool:
    """Tell from the first bytes: a pickle that is in no zip."""
    return head[:1] == b"\x80" and head[1:2] in (b"\2", b"\3", b"\4", b"\5")


def refuse(path: Path) -> CheckpointError:
    """Make the error for a pickle that nobody has vouched for."""
    safe = repr(str(path.with_suffix(".safetensors")))
    return CheckpointError(
        f"{path} is a pickle, as PyTorch writes .pt and .bin: a program that runs when it is read, and not read by "
        f"default.\nIf you trust its author, pass allow_pickle=True; tensors alone are unpickled then.\n"
        "To have it in a form that is never a program, once:\n"
        f"    torch_state = torch.load({str(path)!r}, weights_only=True)\n"
        f"    safetensors.torch.save_file({{k: v.contiguous() for k, v in torch_state.items()}}, {safe})"
    )


@final
class Pickled(Reader):
    """Read tensors that torch has mapped from a file.

    Args:
        file: that they are in.
        tensors: by name.
    """

    def __init__(self, file: File, tensors: "Mapping[str, Tensor]") -> None:
        self._file, self._tensors = file, tensors

    def array(self, name: str, rows: Chosen | None) -> np.ndarray:
        """Copy rows, widened."""
        import torch

        found = self._rows(name, rows)
        kind = KINDS[_kind(found)]
        array: np.ndarray = found.to(getattr(torch, kind.wide)).contiguous().numpy()
        return array.copy()

    def tensor(self, name: str, rows: Chosen | None) -> "Tensor":
        """Copy rows, as they are stored."""
        return self._rows(name, rows).clone()

    def _rows(self, name: str, rows: Chosen | None) -> "Tensor":
        import torch

        found = self._whole(name)
        if rows is None:
            return found
        return found[rows.start : rows.stop] if isinstance(rows, range) else found[torch.from_numpy(rows)]

    def _whole(self, name: str) -> "Tensor":
        found = self._tensors[name].detach()
        # A stride of zero makes one number look like as many as a file likes to claim.
        if found.numel() * found.element_size() > self._file.size:
            raise self._file.wrong(
                f"the tensor {shown(name)} of shape {tuple(found.shape)} claims more bytes than the file has",
                "Save it with .contiguous().",
            )
        return found


def open_pickled(path: str | Path) -> Contents:
    """Open a state dict, or a dictionary that holds some."""
    file = File(path)
    tensors = load(file)
    entries = {name: entry_of(file, name, tensor) for name, tensor in tensors.items()}
    return Contents("pickle", entries, Pickled(file, tensors))


def entry_of(file: File, name: str, tensor: "Tensor") -> Entry:
    """Say what a tensor is."""
    return Entry(name, tuple(tensor.shape), _kind(tensor), tensor.numel() * tensor.element_size(), file.path)


def load(file: File) -> "dict[str, Tensor]":
    """Unpickle tensors, and nothing else."""
    import torch

    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < _SAFE:
        raise file.wrong(f"torch {torch.__version__} does not read pickles safely", "Install torch 2.6 or later.")
    try:
        # "cpu" in place of None: a file may name a device that this machine does not have.
        found = torch.load(file.path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as problem:
        reason = str(problem).strip().partition("\n")[0][:300] or type(problem).__name__
        raise file.wrong(
            f"torch cannot unpickle tensors from it: {reason}",
            "A file from before torch 1.6, or one that holds more than tensors: open it where it was made, and save "
            "its state_dict as safetensors.",
        ) from None
    tensors = dict(_tensors(found, "", set()))
    if not tensors:
        raise file.wrong("it holds no tensors under names", "Save model.state_dict().")
    _check_sizes(file, tensors)
    return tensors


def _check_sizes(file: File, tensors: "Mapping[str, Tensor]") -> None:
    """Raise CheckpointError if numbers are as long as no part of the zip is: torch would read on into the next one."""
    try:
        with zipfile.ZipFile(file.path) as archive:
            sizes = {info.file_size for info in archive.infolist() if "/data/" in info.filename}
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError) as problem:
        raise file.wrong(f"it cannot be unpacked: {problem}", "It is cut off or damaged: save it anew.") from None
    for name, tensor in tensors.items():
        claimed = tensor.untyped_storage().nbytes()
        if claimed and claimed not in sizes:
            raise file.wrong(
                f"the numbers of the tensor {shown(name)} claim {claimed:,} bytes, which no part of the file has",
                "It is cut off or damaged: save it anew.",
            )


def _tensors(found: Any, prefix: str, seen: set[int]) -> "Iterator[tuple[str, Tensor]]":
    """Give the tensors of dictionaries in dictionaries, named by the way to them; each dictionary is entered once."""
    import torch

    if not isinstance(found, Mapping) or id(found) in seen or len(seen) > _MOST_DICTIONARIES:
        return
    seen.add(id(found))
    for key, value in found.items():
        if not isinstance(key, str):
            continue
        if not isinstance(value, torch.Tensor):
            yield from _tensors(value, f"{prefix}{key}.", seen)
        elif value.layout == torch.strided and value.device.type == "cpu" and _kind(value) in KINDS:
            yield f"{prefix}{key}", value


def _kind(tensor: "Tensor") -> str:
    return str(tensor.dtype).removeprefix("torch.")
