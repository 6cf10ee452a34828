"""Orthogonal matching pursuit: a vector as a sum of few others."""

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from whatwhere.checks import require_whole
from whatwhere.errors import ShapeError

_TARGETS = 256


def pursue(
    atoms: Float[Tensor, "atoms dim"], targets: Float[Tensor, "targets dim"], most: int = 64
) -> tuple[Int64[Tensor, "targets most"], Float64[Tensor, "targets most"]]:
    """Write each target as a sum of at most so many atoms: greedy choice, least squares over what was chosen.

        r <- t;  again: n = argmax |<r, a_n>| / |a_n|;  c = argmin |t - sum_i c_i a_i|;  r = t - sum_i c_i a_i

    Pati, Rezaiifar and Krishnaprasad 1993, https://doi.org/10.1109/ACSSC.1993.342465. Goddard and Fernandes Neto 2025,
    https://arxiv.org/abs/2506.06607, move a vocabulary by it: a token that only the other model has is written in the
    tokens that both have, by the other's table, and the sum is taken in one's own; they choose 64.

    Args:
        atoms: what may be chosen.
        targets: what is written.
        most: atoms of a sum, at least 1; no more than there are atoms or features.

    Gives ids and coefficients. Where a target is met before, the coefficients left are zero.

    >>> ids, coefficients = pursue(torch.eye(3), torch.tensor([[0.0, 2.0, -5.0]]), most=2)
    >>> ids.tolist(), coefficients.tolist()
    ([[2, 1]], [[-5.0, 2.0]])
    """
    require_whole("pursue", most=most)
    if atoms.dim() != 2 or targets.dim() != 2 or atoms.shape[1] != targets.shape[1] or not len(atoms):
        raise ShapeError(
            f"atoms have shape (atoms, dim) and targets (targets, dim), but these {tuple(atoms.shape)} and "
            f"{tuple(targets.shape)}."
        )
    most = min(most, *atoms.shape)
    atoms = atoms.detach().float()
    lengths = atoms.norm(dim=1).clamp_min(torch.finfo(torch.float32).tiny)
    found = [_pursue(atoms, lengths, some.detach(), most) for some in targets.split(_TARGETS)]
    if not found:
        return torch.zeros(0, most, dtype=torch.int64), torch.zeros(0, most, dtype=torch.float64)
    return torch.cat([ids for ids, _ in found]), torch.cat([coefficients for _, coefficients in found])


def _pursue(atoms: Tensor, lengths: Tensor, targets: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Go on an orthonormal basis of what was chosen, so that each step costs one product with the atoms."""
    count, dim = targets.shape
    rest = targets.double()
    least = rest.norm(dim=1) * 1e-6
    ids = torch.zeros(count, most, dtype=torch.int64, device=atoms.device)
    basis = torch.zeros(count, most, dim, dtype=torch.float64, device=atoms.device)
    upper = torch.eye(most, dtype=torch.float64, device=atoms.device).repeat(count, 1, 1)
    along = torch.zeros(count, most, dtype=torch.float64, device=atoms.device)
    open_to = torch.ones(count, len(atoms), dtype=torch.bool, device=atoms.device)
    for step in range(most):
        scores = (rest.float() @ atoms.T).abs() / lengths
        chosen = scores.masked_fill(~open_to, -1.0).argmax(1)
        open_to[torch.arange(count), chosen] = False
        new = atoms[chosen].double()
        part = torch.zeros(count, most, dtype=torch.float64, device=atoms.device)
        for _ in range(2):  # the second pass takes out what rounding left in
            inside = torch.einsum("nkd,nd->nk", basis, new)
            new, part = new - torch.einsum("nkd,nk->nd", basis, inside), part + inside
        length = new.norm(dim=1)
        # An atom that lies in the span of the others, or a target that is met, adds nothing.
        adds = (length > 1e-6 * lengths[chosen]) & (rest.norm(dim=1) > least)
        new = torch.where(adds[:, None], new / length.clamp_min(1e-300)[:, None], torch.zeros_like(new))
        upper[:, :, step] = torch.where(adds[:, None], part, upper[:, :, step])
        upper[:, step, step] = torch.where(adds, length, torch.ones_like(length))
        along[:, step] = (rest * new).sum(1)
        basis[:, step] = new
        rest = rest - along[:, step, None] * new
        ids[:, step] = chosen
    return ids, torch.linalg.solve_triangular(upper, along[:, :, None], upper=True)[:, :, 0]
