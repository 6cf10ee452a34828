"""Orthogonal matching pursuit: vectors as sparse sums of others."""

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from whatwhere.checks import require_whole
from whatwhere.errors import ShapeError

_TARGETS = 256


def pursue(
    atoms: Float[Tensor, "atoms dim"], targets: Float[Tensor, "targets dim"], most: int = 64
) -> tuple[Int64[Tensor, "targets most"], Float64[Tensor, "targets most"]]:
    """Return each target as a sum of at most `most` atoms: greedy selection, least squares over the selected ones.

        r <- t;  repeat: n = argmax |<r, a_n>| / |a_n|;  c = argmin |t - sum_i c_i a_i|;  r = t - sum_i c_i a_i

    Pati, Rezaiifar and Krishnaprasad 1993, https://doi.org/10.1109/ACSSC.1993.342465. Goddard and Fernandes Neto 2025,
    https://arxiv.org/abs/2506.06607, transplant tokenizers with it: a new token is decomposed into shared tokens in the
    table of the donor model, and the same sum is taken in the own table; they use 64 atoms.

    Args:
        atoms: the dictionary.
        targets: to decompose.
        most: atoms of a sum, at least 1; at most the number of atoms and of features.

    Returns:
        Ids and coefficients. Where fewer atoms are enough, the other coefficients are zero.

    Raises:
        ShapeError: atoms and targets are no matrices of one dim, or there are no atoms.

    Examples:
        >>> ids, coefficients = pursue(torch.eye(3), torch.tensor([[0.0, 2.0, -5.0]]), most=2)
        >>> ids.tolist(), coefficients.tolist()
        ([[2, 1]], [[-5.0, 2.0]])
    """
    require_whole("pursue", most=most)
    if atoms.dim() != 2 or targets.dim() != 2 or atoms.shape[1] != targets.shape[1] or not len(atoms):
        raise ShapeError(
            f"atoms have shape (atoms, dim) and targets (targets, dim), but got {tuple(atoms.shape)} and "
            f"{tuple(targets.shape)}."
        )
    most = min(most, *atoms.shape)
    atoms = atoms.detach().float()
    norms = atoms.norm(dim=1).clamp_min(torch.finfo(torch.float32).tiny)
    sums = [_pursue(atoms, norms, block.detach(), most) for block in targets.split(_TARGETS)]
    if not sums:
        return torch.zeros(0, most, dtype=torch.int64), torch.zeros(0, most, dtype=torch.float64)
    return torch.cat([ids for ids, _ in sums]), torch.cat([coefficients for _, coefficients in sums])


def _pursue(atoms: Tensor, norms: Tensor, targets: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Extend an orthonormal basis of the selected atoms, so that each step costs one product with all atoms."""
    count, dim = targets.shape
    residual = targets.double()
    tolerance = residual.norm(dim=1) * 1e-6
    ids = torch.zeros(count, most, dtype=torch.int64, device=atoms.device)
    basis = torch.zeros(count, most, dim, dtype=torch.float64, device=atoms.device)
    upper = torch.eye(most, dtype=torch.float64, device=atoms.device).repeat(count, 1, 1)
    along = torch.zeros(count, most, dtype=torch.float64, device=atoms.device)
    available = torch.ones(count, len(atoms), dtype=torch.bool, device=atoms.device)
    for step in range(most):
        scores = (residual.float() @ atoms.T).abs() / norms
        selected = scores.masked_fill(~available, -1.0).argmax(1)
        available[torch.arange(count), selected] = False
        new = atoms[selected].double()
        part = torch.zeros(count, most, dtype=torch.float64, device=atoms.device)
        for _ in range(2):  # the second pass removes what rounding has left
            projection = torch.einsum("nkd,nd->nk", basis, new)
            new, part = new - torch.einsum("nkd,nk->nd", basis, projection), part + projection
        norm = new.norm(dim=1)
        # An atom in the span of the others adds nothing, nor does any once the target is reached.
        adds = (norm > 1e-6 * norms[selected]) & (residual.norm(dim=1) > tolerance)
        new = torch.where(adds[:, None], new / norm.clamp_min(1e-300)[:, None], torch.zeros_like(new))
        upper[:, :, step] = torch.where(adds[:, None], part, upper[:, :, step])
        upper[:, step, step] = torch.where(adds, norm, torch.ones_like(norm))
        along[:, step] = (residual * new).sum(1)
        basis[:, step] = new
        residual = residual - along[:, step, None] * new
        ids[:, step] = selected
    return ids, torch.linalg.solve_triangular(upper, along[:, :, None], upper=True)[:, :, 0]
