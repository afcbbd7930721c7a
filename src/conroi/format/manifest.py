"""Manifest: the metadata of one version of a table.

A manifest repeats every fragment, so a table of 10,000 fragments has one of about a megabyte. This class keeps the
encoded message and decodes the fragments only on access; adding fragments concatenates bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TypeVar

from google.protobuf.message import DecodeError

from conroi.errors import CorruptionError
from conroi.format import lance_pb2 as pb

MOST_ROWS = 1 << 32
"""A row of a fragment is addressed by 32 bits."""


class Manifest:
    """One version of a table, as an immutable value.

    `head` and `fragments` are protobuf messages, because those carry fields that this version of conroi does not
    know. They are shared: never change one; use `changed`, which copies.
    """

    def __init__(self, message: bytes, indices: Sequence[pb.IndexMetadata] = ()) -> None:
        self.indices: tuple[pb.IndexMetadata, ...] = tuple(indices)
        self._message: bytes | None = message
        self._parts: tuple[pb.ManifestHead, bytes] | None = None

    @classmethod
    def _of_parts(cls, head: pb.ManifestHead, run: bytes, indices: Sequence[pb.IndexMetadata]) -> Manifest:
        made = cls(b"", indices)
        made._message, made._parts = None, (head, run)
        return made

    @property
    def message(self) -> bytes:
        """The whole, encoded; joined from its parts on first use."""
        if self._message is None:
            before, after = _around_run(self.head)
            self._message = b"".join((before, self._run, after))
        return self._message

    @cached_property
    def head(self) -> pb.ManifestHead:
        """Everything but the fragments. Read only."""
        if self._parts is not None:
            return self._parts[0]
        head = _parse(pb.ManifestHead, self.message)
        head.ClearField("encoded_fragments")
        return head

    @cached_property
    def _run(self) -> bytes:
        """The fragments as they are encoded, one after the other."""
        if self._parts is not None:
            return self._parts[1]
        # Encoders write fields in order: the columns, then the fragments, then the rest. Only a map with several keys
        # may be in another order than ours; then the run is taken out one by one.
        before, after = _around_run(self.head)
        if self.message.startswith(before) and self.message.endswith(after):
            return self.message[len(before) : len(self.message) - len(after)]
        run = _parse(pb.EncodedRun, self.message)
        run.DiscardUnknownFields()
        return run.SerializeToString(deterministic=True)

    @cached_property
    def fragments(self) -> tuple[pb.DataFragment, ...]:
        """The fragments, ascending by id. Read only."""
        fragments = tuple(_parse(pb.FragmentRun, self._run).fragments)
        if any(fragment.physical_rows > MOST_ROWS for fragment in fragments):
            raise CorruptionError(
                f"The manifest has a fragment with more than {MOST_ROWS:,} rows.",
                hint="The manifest is damaged, or its writer is broken; open another version.",
            )
        return fragments

    @cached_property
    def fragments_by_id(self) -> dict[int, pb.DataFragment]:
        """The fragments by their id. Read only."""
        return {fragment.id: fragment for fragment in self.fragments}

    @property
    def version(self) -> int:
        return self.head.version

    @property
    def fields(self) -> Sequence[pb.Field]:
        """The schema, flat, parents before children. Read only."""
        return self.head.fields

    @property
    def has_stable_row_ids(self) -> bool:
        return bool(self.head.reader_feature_flags & 2)

    def editable_head(self) -> pb.ManifestHead:
        """A copy of the head that may be changed and given to `changed`."""
        head = pb.ManifestHead()
        head.CopyFrom(self.head)
        return head

    def changed(
        self,
        *,
        head: pb.ManifestHead | None = None,
        fragments: Iterable[pb.DataFragment] | None = None,
        added_fragments: Sequence[pb.DataFragment] = (),
        indices: Sequence[pb.IndexMetadata] | None = None,
    ) -> Manifest:
        """This manifest with a new head, with other fragments, or with fragments added at the end.

        Without `fragments` the old ones are neither decoded nor encoded again.
        """
        kept = pb.ManifestHead()
        kept.CopyFrom(self.head if head is None else head)
        run = self._run if fragments is None else _encoded(fragments)
        if added_fragments:
            run += _encoded(added_fragments)
        return self._of_parts(kept, run, self.indices if indices is None else indices)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Manifest):
            return NotImplemented
        return self.full() == other.full() and self.indices == other.indices

    def __hash__(self) -> int:
        return hash(self.message)

    def __repr__(self) -> str:
        return f"Manifest(version={self.version}, {len(self.message)} bytes)"

    def full(self) -> pb.Manifest:
        """The whole message, decoded afresh."""
        return _parse(pb.Manifest, self.message)


def _encoded(fragments: Iterable[pb.DataFragment]) -> bytes:
    return pb.FragmentRun(fragments=fragments).SerializeToString(deterministic=True)


def _around_run(head: pb.ManifestHead) -> tuple[bytes, bytes]:
    """What stands before the fragments in an encoded manifest, and what after them."""
    before = pb.ManifestHead(fields=head.fields)
    after = pb.ManifestHead()
    after.CopyFrom(head)
    after.ClearField("fields")
    return before.SerializeToString(deterministic=True), after.SerializeToString(deterministic=True)


_Message = TypeVar("_Message", pb.ManifestHead, pb.FragmentRun, pb.EncodedRun, pb.Manifest)


def _parse(kind: type[_Message], data: bytes) -> _Message:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise CorruptionError(
            f"The manifest is not a valid message ({error}).",
            hint="The file is damaged; open an older version with at(version=…), or run doctor.",
        ) from error
