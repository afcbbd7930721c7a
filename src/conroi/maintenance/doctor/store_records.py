"""External store check: the records of the store and the manifests in the folder agree."""

from __future__ import annotations

from conroi.format.naming import parse_staged_name
from conroi.maintenance.doctor.subject import Subject
from conroi.stores.external_versions import ExternalVersions
from conroi.stores.listed import Listed
from conroi.stores.records import Record
from conroi.stores.versions import Located


def recorded_head(versions: ExternalVersions, listed: Listed) -> Located | None:
    """The newest version, if it has no final name yet; None if the folder knows by itself."""
    record = newest_recorded(versions)
    staged = None if record is None else parse_staged_name(record.path.rpartition("/")[2])
    if record is None or staged is None or record.version in listed.manifests or record.path not in listed.staged:
        return None
    return Located(record.version, record.path, staged[0].naming)


def newest_recorded(versions: ExternalVersions) -> Record | None:
    """The newest version that the store knows."""
    records = versions.records()
    return records[-1] if records else None


def check_records(subject: Subject, versions: ExternalVersions) -> None:
    """Findings about the records of the table."""
    records = versions.records()
    subject.examination.looked_at("records", len(records))
    for record in records:
        _check(subject, versions, record, is_newest=record == records[-1])
    newest, recorded = max(subject.listed.manifests, default=0), records[-1].version if records else 0
    if newest > recorded and not _is_known_now(versions, newest):
        subject.add(
            "past-the-store",
            f"The folder has version {newest}, the store knows {recorded}.",
            version=newest,
            fix=lambda: versions.adopt(recorded),
        )


def _is_known_now(versions: ExternalVersions, version: int) -> bool:
    """Whether it was committed through the store while we looked."""
    record = newest_recorded(versions)
    return record is not None and record.version >= version


def _check(subject: Subject, versions: ExternalVersions, record: Record, *, is_newest: bool) -> None:
    if record.version in subject.listed.manifests:
        return
    if record.path in subject.listed.staged:
        info = subject.listed.files[record.path]
        if subject.examination.is_settled(info.modified_ns):
            subject.add(
                "unfinished-record",
                "The version is recorded, but has no final name.",
                version=record.version,
                path=record.path,
                fix=lambda: versions.locate(record.version),
            )
    elif is_newest and subject.objects.head(record.path) is None and not _is_known_now(versions, record.version + 1):
        what = "The store has the version, but its manifest does not exist."
        subject.add("record-without-manifest", what, version=record.version, path=record.path)
