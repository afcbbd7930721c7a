"""A manifest: all there is to know about one version of a table.

A manifest repeats every fragment, so a table of 10,000 fragments has one of about a megabyte. The value here keeps
the encoded message and decodes the fragments only when somebody asks; adding fragments concatenates bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TypeVar

from google.protobuf.message import DecodeError

from conroi.errors import CorruptionError
from conroi.format import lance_pb2 as pb


class Manifest:
    """One version of a table, as an immutable value.

    `head` and `fragments` are protobuf messages, because those carry fields that this version of conroi does not
    know. They are shared: never change one; use `changed`, which copies.
    """

    def __init__(self, message: bytes, indices: Sequence[pb.IndexMetadata] = ()) -> None:
        self.message = message
        self.indices: tuple[pb.IndexMetadata, ...] = tuple(indices)

    @cached_property
    def head(self) -> pb.ManifestHead:
        """Everything but the fragments (which it carries undecoded). Read only."""
        return _parse(pb.ManifestHead, self.message)

    @cached_property
    def fragments(self) -> tuple[pb.DataFragment, ...]:
        """The fragments, ascending by id. Read only."""
        return tuple(_parse(pb.FragmentRun, self.message).fragments)

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
        message = self.message if head is None else head.SerializeToString(deterministic=True)
        if fragments is not None:
            full = _parse(pb.Manifest, message)
            del full.fragments[:]
            full.fragments.extend(fragments)
            message = full.SerializeToString(deterministic=True)
        if added_fragments:
            message += pb.FragmentRun(fragments=added_fragments).SerializeToString(deterministic=True)
        return Manifest(message, self.indices if indices is None else indices)

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


_Message = TypeVar("_Message", pb.ManifestHead, pb.FragmentRun, pb.Manifest)


def _parse(kind: type[_Message], data: bytes) -> _Message:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise CorruptionError(
            f"The manifest is not a valid message ({error}).",
            hint="The file is damaged; open an older version with at(version=…), or run doctor.",
        ) from error
