"""Namespace requests that list, describe and delete table versions."""

from __future__ import annotations

from lance_namespace import TableVersion

from conroi.catalog.names import shown
from conroi.catalog.namespace_errors import no_version
from conroi.catalog.namespace_requests import Request
from conroi.catalog.namespace_view import View
from conroi.catalog.prebuilt import current_version, make_final
from conroi.catalog.rows import Row
from conroi.catalog.state import LakeState
from conroi.commit.foreign import delete_manifests, key_in_store
from conroi.errors import InvalidInputError
from conroi.refs.tags import Tags
from conroi.stores.versions import Located


def located(view: View, row: Row, version: int | None) -> Located:
    """Where a version is, under its final name; the newest if none is named."""
    current = current_version(view.catalog, row)
    wanted = current if version is None else version
    if not 0 < wanted <= current:
        raise no_version(row.object_id, version)
    if row.pin is not None and wanted == current:
        return make_final(view.catalog, row)
    found = view.catalog.folder_of(row).locate(wanted)
    if found is None:
        raise no_version(row.object_id, version)
    return found


def table_version(view: View, row: Row, found: Located) -> TableVersion:
    """What is told of a version."""
    objects = view.catalog.objects_of(row)
    return TableVersion(version=found.version, manifest_path=key_in_store(objects, found.path))


def list_versions(view: View, request: Request) -> tuple[list[TableVersion], str | None]:
    """The versions, newest first; and the token of the next page if there are more."""
    request.refuse_branch()
    row = view.row(request.object_id(), view.state())
    before, limit = request.number("page_token"), request.number("limit")
    current = current_version(view.catalog, row)
    if not current or limit == 0:
        return [], None
    if limit == 1 and before is None:  # every opening sends this request; it needs no listing
        newest = located(view, row, None)
        return [table_version(view, row, newest)], str(newest.version) if current > 1 else None
    folder = view.catalog.folder_of(row).all()
    found = [located(view, row, None), *(each for each in reversed(folder) if each.version < current)]
    left = [each for each in found if before is None or each.version < before]
    page = left if limit is None else left[:limit]
    token = str(page[-1].version) if len(page) < len(left) else None
    return [table_version(view, row, each) for each in page], token


def describe_version(view: View, request: Request) -> TableVersion:
    request.refuse_branch()
    row = view.row(request.object_id(), view.state())
    return table_version(view, row, located(view, row, request.number("version")))


def delete_versions(view: View, request: Request) -> int:
    """Delete manifests that no version of the lake and no tag needs; all or none. Returns how many there were."""
    request.refuse_branch()
    base = view.newest()
    row = view.row(request.object_id(), base)
    folder = view.catalog.folder_of(row).all()
    ranges = [(each.number("start_version") or 0, each.number("end_version")) for each in request.many("ranges")]
    chosen = [each for each in folder if any(_is_in(each.version, start, end) for start, end in ranges)]
    oldest = _oldest_needed(view, row, base)
    tagged = {tag.version for tag in Tags(view.files(row), oldest)}
    needed = [each.version for each in chosen if each.version >= oldest or each.version in tagged]
    if needed:
        raise InvalidInputError(
            f"Versions {needed[:5]} of table {shown(row.object_id)!r} belong to versions of the lake, or have a tag; "
            "nothing was deleted.",
            table=shown(row.object_id),
            hint=f"Only versions before {oldest} can be deleted here.",
        )
    delete_manifests(view.catalog.objects_of(row), chosen)
    return len(chosen)


def _is_in(version: int, start: int, end: int | None) -> bool:
    return start <= version and (end is None or end < 0 or version < end)


def _oldest_needed(view: View, row: Row, state: LakeState) -> int:
    """The oldest version of the table that some version of the lake pins."""
    oldest = current_version(view.catalog, row)
    for published in view.catalog.heads.history(state.version, None):
        known = published.changes
        for change in (view.catalog.heads.at(published.version).rows if known is None else known).values():
            if change is not None and change.location == row.location and change.pin is not None:
                oldest = min(oldest, change.pin.version)
    return oldest
