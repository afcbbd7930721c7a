"""Replays what pylance committed: from its manifest n and its transaction n + 1 we must make its manifest n + 1."""

from __future__ import annotations

import difflib
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from google.protobuf import text_format
from pyroaring import BitMap

from conroi import operations
from conroi.format import lance_pb2 as pb
from conroi.format.manifest import Manifest
from conroi.format.transaction import Transaction
from conroi.operations import Operation, Overwrite, Restore, Rewrite, Step

_LAST_V2_VERSION = 2**64 - 1
FRAGMENT_REUSE = "__lance_frag_reuse"
MEM_WAL = "__lance_mem_wal"


@dataclass(frozen=True)
class Version:
    """What pylance wrote for one version of a table."""

    manifest: Manifest
    transaction: Transaction


def versions_of(root: str | Path) -> dict[int, Version]:
    """Every version of the table, as it is on disk."""
    found: dict[int, Version] = {}
    for path in (Path(root) / "_versions").glob("*.manifest"):
        number = int(path.stem)
        found[_LAST_V2_VERSION - number if len(path.stem) == 20 else number] = read_version(path)
    return dict(sorted(found.items()))


def read_version(path: Path) -> Version:
    """The parts of a manifest file, taken apart by hand: this must not depend on the code under test."""
    data = path.read_bytes()
    (at,) = struct.unpack_from("<q", data, len(data) - 16)
    message = _section(data, at)
    whole = pb.Manifest.FromString(message)
    indices = pb.IndexSection()
    if whole.HasField("index_section"):
        indices.ParseFromString(_section(data, whole.index_section))
    # pylance up to 13 names its place in the older of the two fields.
    has_new = whole.HasField("transaction_section")
    at = whole.transaction_section if has_new else whole.transaction_section_deprecated
    wire = pb.Transaction.FromString(_section(data, at))
    return Version(Manifest(message, tuple(indices.indices)), Transaction(wire))


def _section(data: bytes, at: int) -> bytes:
    (length,) = struct.unpack_from("<I", data, at)
    return data[at + 4 : at + 4 + length]


def assert_replayed(
    root: str | Path,
    *,
    stable_row_ids: bool = False,
    data_formats: Mapping[int, str] | None = None,
    source: Manifest | None = None,
) -> list[str]:
    """Replay every version of the table; the answer names the operations, so that a test can state what it saw.

    What a writer wishes without putting it into its transaction is given here: stable row ids when creating the table,
    the data format of an overwrite by version. `source` is the manifest that a clone starts from.
    """
    versions = versions_of(root)
    names: list[str] = []
    base: Manifest | None = None
    for number, theirs in versions.items():
        operation = _with_facts_beside_the_wire(operations.of(theirs.transaction), theirs, stable_row_ids)
        if isinstance(operation, Overwrite) and data_formats is not None:
            operation = replace(operation, data_format=data_formats.get(number))
        step = Step(
            version=number,
            restored=versions[operation.version].manifest if isinstance(operation, Restore) else None,
            source=source,
            read=read.manifest if (read := versions.get(theirs.transaction.read_version)) else None,
        )
        ours = operations.build(base, theirs.transaction, operation, step, timestamp_ns=1, writer_version=("test", "1"))
        assert_same(ours, theirs.manifest, f"version {number}, {operation.name}")
        assert theirs.transaction.wire == _again(theirs.transaction, operation)
        names.append(operation.name)
        base = theirs.manifest
    return names


def _again(transaction: Transaction, operation: Operation) -> pb.Transaction:
    return operations.transaction(
        operation,
        read_version=transaction.read_version,
        uuid=transaction.uuid,
        properties=transaction.properties,
        tag=transaction.wire.tag,
    ).wire


def _with_facts_beside_the_wire(operation: Operation, theirs: Version, stable_row_ids: bool) -> Operation:
    """Two things that a writer knows but does not put into its transaction."""
    if isinstance(operation, Overwrite) and theirs.manifest.version == 1:
        return replace(operation, stable_row_ids=stable_row_ids)
    reuse = [index for index in theirs.manifest.indices if index.name == FRAGMENT_REUSE]
    if isinstance(operation, Rewrite) and reuse:
        return replace(operation, fragment_reuse_index=reuse[0])
    return operation


def assert_same(ours: Manifest, theirs: Manifest, what: str) -> None:
    """Equal but for time, writer and where the sections are; the difference is shown as a diff of text."""
    mine, other = _described(ours), _described(theirs)
    if mine != other:
        diff = difflib.unified_diff(other.splitlines(), mine.splitlines(), "pylance", "conroi", lineterm="", n=4)
        raise AssertionError(f"{what} differs:\n" + "\n".join(diff))


def _described(manifest: Manifest) -> str:
    whole = manifest.full()
    for name in (
        "timestamp",
        "writer_version",
        "index_section",
        "transaction_section",
        "transaction_section_deprecated",
    ):
        whole.ClearField(name)
    whole.base_paths.sort(key=lambda base: base.id)  # pylance keeps them in a hash map
    text = text_format.MessageToString(whole, print_unknown_fields=True)
    return text + "".join(_described_index(index) for index in manifest.indices)


def _described_index(index: pb.IndexMetadata) -> str:
    copy = pb.IndexMetadata()
    copy.CopyFrom(index)
    covered = sorted(BitMap.deserialize(index.fragment_bitmap)) if index.fragment_bitmap else None
    copy.ClearField("fragment_bitmap")
    details = ""
    if index.name == MEM_WAL:  # its id and time are new in every commit, its fields are in another order
        copy.ClearField("uuid")
        copy.ClearField("created_at")
        copy.index_details.ClearField("value")
        details = text_format.MessageToString(
            pb.MemWalIndexDetails.FromString(index.index_details.value), print_unknown_fields=True
        )
    return f"index covering {covered}\n{text_format.MessageToString(copy, print_unknown_fields=True)}{details}"
