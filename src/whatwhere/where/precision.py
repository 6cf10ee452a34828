"""Arithmetic that autocast must not touch."""

from contextlib import AbstractContextManager, nullcontext

import torch


def full_precision(device: torch.device) -> AbstractContextManager[object]:
    """Keep matrix products in the dtype of their operands, also under autocast.

    Autocast would round frequencies and positions to bfloat16, which tells no whole numbers above 256 apart.

    >>> a = torch.ones(1, 1)
    >>> with torch.autocast("cpu", dtype=torch.bfloat16), full_precision(a.device):
    ...     (a @ a).dtype
    torch.float32
    """
    # Devices without arithmetic, such as meta, have no autocast that could be turned off.
    return torch.autocast(device.type, enabled=False) if torch.amp.is_autocast_available(device.type) else nullcontext()
