"""Folded operation: several changes of one table in one version, where Lance has no operation for them together.

The result is computed in advance and stored as it is, so it fits only the version that it was computed on. Its
transaction names the nearest operation that Lance has: that the lists of fragments and columns were rewritten, or that
all rows were replaced. The names of the original operations are a property of the transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from conroi.errors import InvalidInputError
from conroi.format import lance_pb2 as pb
from conroi.format.manifest import Manifest
from conroi.format.on_disk import FOLDED_PROPERTY
from conroi.operations.base import Operation, Step
from conroi.operations.merge import Merge
from conroi.operations.overwrite import Overwrite
from conroi.operations.restore import Restore


@dataclass(frozen=True, slots=True)
class FoldedMerge(Merge):
    """Changes after which the table still is what it was, with other rows, columns, indices or settings."""

    result: Manifest | None = None
    statements: tuple[str, ...] = ()

    def to_wire(self) -> pb.Transaction:
        return _with_names(Merge.to_wire(self), self.statements)

    def apply(self, base: Manifest, step: Step) -> Manifest:
        return _taken(self.result, base, step)


@dataclass(frozen=True, slots=True)
class FoldedOverwrite(Overwrite):
    """Changes of which one replaced everything, or made the table."""

    result: Manifest | None = None
    statements: tuple[str, ...] = ()

    def to_wire(self) -> pb.Transaction:
        return _with_names(Overwrite.to_wire(self), self.statements)

    def apply(self, base: Manifest, step: Step) -> Manifest:
        return _taken(self.result, base, step)


def folded(base: Manifest | None, result: Manifest, done: Sequence[Operation]) -> FoldedMerge | FoldedOverwrite:
    """One operation that makes `result` of the base, by doing all this; None is a table that is made by it."""
    names = tuple(operation.name for operation in done)
    metadata = dict(result.head.schema_metadata)
    if base is not None and not any(isinstance(operation, Overwrite | Restore) for operation in done):
        return FoldedMerge(result.fragments, tuple(result.fields), metadata, result=result, statements=names)
    before = {} if base is None else base.head.config
    return FoldedOverwrite(
        result.fragments,
        tuple(result.fields),
        metadata,
        {key: value for key, value in result.head.config.items() if before.get(key) != value},
        result=result,
        statements=names,
    )


def as_folded(operation: Operation, transaction: pb.Transaction) -> Operation:
    """An operation that was read, knowing whether it stands for several."""
    if isinstance(operation, Merge) and FOLDED_PROPERTY in transaction.transaction_properties:
        return replace(operation, is_folded=True)
    return operation


def is_folded(operation: Operation) -> bool:
    """Whether it stands for several changes, of which it does not say all."""
    return isinstance(operation, FoldedOverwrite | FoldedMerge) or (
        isinstance(operation, Merge) and operation.is_folded
    )


def _with_names(wire: pb.Transaction, statements: Sequence[str]) -> pb.Transaction:
    wire.transaction_properties[FOLDED_PROPERTY] = ",".join(statements)
    return wire


def _taken(result: Manifest | None, base: Manifest, step: Step) -> Manifest:
    assert result is not None, "what was read from a transaction is never applied again"
    if base.version != result.version:
        raise InvalidInputError(
            f"Several changes were worked out on version {result.version}, so they cannot become version "
            f"{step.version}.",
            hint="Run the work again on the newest version.",
        )
    return result
