"""Read set of a publication: the objects whose rows its checks look at, for a store that compares them in its put."""

from __future__ import annotations

from collections.abc import Iterator

from conroi.catalog.names import SEPARATOR, parents
from conroi.catalog.participant import PublishRequest
from conroi.catalog.state import Changes
from conroi.catalog.store import Dependencies


def dependencies_of(request: PublishRequest, changes: Changes) -> Dependencies:
    """What a publication of these changes was checked against: see Publishing.check_at and Publishing.build."""
    return Dependencies(
        frozenset(_objects(request, changes)),
        listing=request.listing is not None,
        everything=_depends_on_folders(request) or _removes_namespaces(request),
    )


def _objects(request: PublishRequest, changes: Changes) -> Iterator[str]:
    for wanted in request.tables:
        yield wanted.object_id
        if wanted.was is not None:
            yield wanted.was
    for expectation in request.expects:
        yield expectation.object_id
    for amendment in request.amendments:
        yield amendment.object_id
    yield from request.rows
    yield from request.leaving
    yield from request.unchanged
    for object_id, row in changes.items():
        yield object_id
        if row is not None and SEPARATOR in object_id:
            yield from parents(object_id)


def _depends_on_folders(request: PublishRequest) -> bool:
    """Whether a folder is brought in that no other table of the lake may have."""
    return any(
        row is not None and row.is_table and object_id not in request.base.rows
        for object_id, row in request.rows.items()
    )


def _removes_namespaces(request: PublishRequest) -> bool:
    """Whether a namespace is removed, which must be empty."""
    leaving = {*request.leaving, *(object_id for object_id, row in request.rows.items() if row is None)}
    found = (request.base.rows.get(object_id) for object_id in leaving)
    return any(row is not None and not row.is_table for row in found)
