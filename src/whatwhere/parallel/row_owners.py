"""A token table whose rows live on their owners, for processes with batches of their own (data parallelism)."""

from typing import Any, NoReturn, final

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

from whatwhere.errors import SettingError, ShapeError, TokenError
from whatwhere.initialization import own_rows, shard_offsets
from whatwhere.kernels.embedding import scaled
from whatwhere.parallel.vocabulary_shards import VocabularyShards, shard_vocabulary
from whatwhere.tensor_checks import require_ids
from whatwhere.what.embedding import TokenEmbedding, lookup
from whatwhere.what.row_adamw.gradient import ranks_that_average, wrappers


@final
class RowOwners(TokenEmbedding):
    """A token table whose row i is on process i modulo n; `deal_rows` makes one of a TokenEmbedding.

    Each process looks up ids of its own. It sends every different id to the owner of its row and gets the row back; in
    the backward pass it sends the gradient of that row, and the owner averages over the processes, as `fully_shard` and
    DistributedDataParallel average gradients. So what is sent grows with the tokens of a batch, not with the table.
    Frequent tokens, which have the first ids in most vocabularies, are spread evenly.

    `weight` is a DTensor: the rows of each owner in turn, with one to n rows of zeros that nothing reads. Its order
    depends on n: to save a table that another number of processes can load, save `whole_table()`, and of the moments of
    its optimizer `whole(moments)`. A state of another number of processes, or of a table in the order of its ids, is
    refused when it is loaded, or when rows are read. So is that of RowAdamW; that of torch.optim.AdamW cannot be.

    Attributes:
        mesh: the processes, in one dimension.
        owners: their number, which the state stores beside the rows.
    """

    mesh: DeviceMesh
    owners: Tensor
    sharding = "owners"
    _wrapped: tuple[int, int] | None = None

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(self, ids: Integer[Tensor, "*shape"]) -> Float[Tensor, "*shape dim"]:
        """Look up the row of each id and multiply it by the scale; all processes of the mesh take part.

        Raises:
            TokenError: If an id is outside the vocabulary, on any process, or ids are not whole numbers.
            SettingError: If rows of another number of processes were read into the table, or the model around it is
                averaged over processes that are not in the mesh.
        """
        require_ids(ids)
        self._require_order(self.owners)
        if torch.is_grad_enabled():
            self._require_all_ranks()
        group, n = self.mesh.get_group(), self.mesh.size()
        different, slots = ids.long().flatten().unique(return_inverse=True)
        wrong = bool(((different < 0) | (different >= self.num_embeddings)).any())
        by_owner = torch.argsort(different % n, stable=True)
        asked = torch.bincount(different % n, minlength=n)
        given = torch.empty_like(asked)
        torch.distributed.all_to_all_single(given, -1 - 0 * asked if wrong else asked, group=group)
        if wrong:
            self._require_ids(ids)
        if bool((given < 0).any()):
            raise TokenError("an id is outside the vocabulary on another process, which names it.")
        counts = asked.tolist(), given.tolist()
        wanted = different.new_empty(sum(counts[1]))
        torch.distributed.all_to_all_single(wanted, different[by_owner], counts[1], counts[0], group=group)
        got: Tensor = _Exchange.apply(self._own(wanted // n), counts, group, n)  # type: ignore[no-untyped-call]
        return scaled(got[torch.argsort(by_owner)[slots]].view(*ids.shape, self.embedding_dim), self.factor)

    def readout(self, hidden: Float[Tensor, "*shape dim"]) -> Float[Tensor, "*shape vocab_size"]:
        """Raise SettingError, because logits need all rows on every process, at every step."""
        self._project(hidden)

    def _project(self, hidden: Tensor, ids: Tensor | None = None) -> NoReturn:
        raise SettingError(
            "rows that live on their owners are not an output projection: its gradient has every row.\n"
            "Give the model an output projection of its own, or tie a table under shard_vocabulary or fully_shard."
        )

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Raise SettingError, because rows are sampled in the order of their ids, before they are dealt.

        Raises:
            SettingError: If it is called.
        """
        raise SettingError("the rows of this table are dealt already.\nReset the table before deal_rows.")

    def whole_table(self) -> Float[Tensor, "vocab_size dim"]:
        """Return all rows, in the order of their ids, on every process.

        Raises:
            SettingError: If rows of another number of processes were read into the table.
        """
        if self.keeper is not None:
            with torch.no_grad():
                self.keeper.before_readout()
        return self.whole(self.weight)

    def whole(self, values: Tensor) -> Tensor:
        """Return values of all rows by id, on every process, such as moments of an optimizer; a single number as it is.

        All processes of the mesh take part. RowAdamW loads moments by id for any number of owners, and for none.

        Args:
            values: of each row, in the order of the owners, as a DTensor or whole.

        Raises:
            SettingError: If rows of another number of processes were read into the table.
            ShapeError: If there is not a value for each row.
        """
        if values.dim() == 0:
            return values
        self._require_order(self.owners)
        if len(values) != len(self.weight):
            raise ShapeError(
                f"the table has {len(self.weight)} rows on its owners, but the values {len(values)}.\nPass a tensor of "
                "the state of its optimizer."
            )
        whole: Tensor = values.full_tensor() if isinstance(values, DTensor) else values
        rows: Tensor = whole.detach().unflatten(0, (self.mesh.size(), -1))
        return rows.transpose(0, 1).flatten(0, 1)[: self.num_embeddings]

    def extra_repr(self) -> str:
        """Return the settings, for `repr`."""
        return f"{super().extra_repr()}, owners={self.mesh.size()}"

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Load a state, of as many owners."""
        if f"{prefix}weight" in state_dict:
            self._require_order(state_dict.get(f"{prefix}owners"))
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def _require_order(self, owners: Tensor | None) -> None:
        """Raise SettingError unless rows are in the order of as many owners."""
        if owners is None or int(owners) != self.mesh.size():
            order = "by id, or of no known order" if owners is None else f"in the order of {int(owners)} owners"
            raise SettingError(
                f"the rows are {order}, but this table has {self.mesh.size()} owners.\nLoad a state of as many "
                "processes, or load whole_table(), saved by those, into a TokenEmbedding before deal_rows."
            )

    def _require_all_ranks(self) -> None:
        """Raise SettingError if other processes have batches of their own: their rows would drift apart from these."""
        if (now := wrappers()) == self._wrapped:
            return
        ranks, own = ranks_that_average(self), set(self.mesh.mesh.flatten().tolist())
        if ranks - own:
            raise SettingError(
                f"the rows are dealt to {len(own)} processes, but the rest of the model is averaged over {len(ranks)}: "
                "each group of owners would train its copy by its own batches, and they would drift apart.\n"
                "Deal them to all processes with batches of their own, by a mesh of one dimension: "
                f"init_device_mesh(device, ({len(ranks | own)},)), or of some by DeviceMesh(device, ranks)."
            )
        self._wrapped = now

    def _own(self, index: Tensor) -> Tensor:
        """Return own rows, with a gradient."""
        n = self.mesh.size()
        own = self.padding_idx is not None and self.padding_idx % n == self.mesh.get_local_rank()
        padding = self.padding_idx // n if own and self.padding_idx is not None else None
        if self.keeper is not None:
            return self.keeper.lookup(self.weight, index, padding)
        assert isinstance(self.weight, DTensor)
        return lookup(self.weight.to_local(), index, padding)


def deal_rows(tokens: TokenEmbedding, mesh: DeviceMesh) -> RowOwners:
    """Move each row of a token table to its owner, process i modulo n for row i, in place.

    Pass the weight to `fully_shard` in `ignored_params`, and clip by `clip_gradient_norm`.

    Args:
        tokens: the table with its values, before it has an optimizer; of several processes the first one's. A table
            that no process can hold begins as VocabularyShards on the same mesh, made on the meta device.
        mesh: all processes with batches of their own, in one dimension. Where a part of them is given, copies of the
            table drift apart; that is refused if `fully_shard` or DistributedDataParallel shows it.

    Returns:
        The same module, now a RowOwners with another parameter.

    Raises:
        SettingError: As `shard_vocabulary`, or if the table has no values yet.
    """
    if tokens.weight.is_meta:
        raise SettingError(
            "the table has no values yet, and they are sampled in the order of their ids.\n"
            "Call shard_vocabulary, to_empty and reset_parameters before deal_rows."
        )
    if not isinstance(tokens, VocabularyShards):
        shard_vocabulary(tokens, mesh)
    if tokens.keeper is not None or getattr(tokens, "mesh", None) != mesh:
        raise SettingError("the table has an optimizer, or is sharded over another mesh.\nDeal its rows before.")
    weight = tokens.weight
    dealt = _dealt(weight, mesh)
    rows = DTensor.from_local(dealt, mesh, [Shard(0)], run_check=False)
    tokens.weight = nn.Parameter(rows, weight.requires_grad)
    tokens.__class__ = RowOwners
    assert isinstance(tokens, RowOwners)
    tokens.mesh = mesh
    tokens.register_buffer("owners", torch.tensor(mesh.size(), device=dealt.device))
    return tokens


def _dealt(weight: Tensor, mesh: DeviceMesh) -> Tensor:
    """Return the rows of this owner, of a table in contiguous blocks; rows of zeros make owners equal.

    There is always one, so that no table in the order of its ids has the shape of this one.
    """
    n, rank, own = mesh.size(), mesh.get_local_rank(), own_rows(weight).detach()
    offsets = shard_offsets(weight)
    assert offsets is not None
    block = -(-weight.shape[0] // n)
    ids = torch.arange(offsets[0], offsets[0] + len(own), device=own.device)
    sent = torch.bincount(ids % n, minlength=n).tolist()
    everyone = torch.arange(rank, weight.shape[0], n, device=own.device)
    taken = torch.bincount(everyone // block, minlength=n).tolist()
    dealt = own.new_zeros(weight.shape[0] // n + 1, own.shape[1])
    by_owner = own[torch.argsort(ids % n, stable=True)]
    torch.distributed.all_to_all_single(dealt[: sum(taken)], by_owner, taken, sent, group=mesh.get_group())
    return dealt


class _Exchange(torch.autograd.Function):
    """Rows of owners to those who asked; the mean of their gradients back."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, counts: tuple[list[int], list[int]], group: Any, n: int) -> Tensor:
        ctx.counts, ctx.group, ctx.n = counts, group, n
        got = rows.new_empty(sum(counts[0]), rows.shape[1])
        torch.distributed.all_to_all_single(got, rows.contiguous(), counts[0], counts[1], group=group)
        return got

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        back: Tensor = _Exchange.apply(gradients[0], ctx.counts[::-1], ctx.group, 1)  # type: ignore[no-untyped-call]
        return back / ctx.n, None, None, None
