"""Stored procedures: `CALL lake.system.compact('orders')`, maintenance, tags, branches, doctor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import types as st

from conroi.errors import NotFoundError
from conroi.lake import Lake
from conroi.spark.connector.lake_session import LakeSession
from conroi.spark.connector.metadata_tables import SYSTEM_NAMESPACE, answer, columns
from conroi.spark.connector.tables import table_name
from conroi.table import Table

Request = Mapping[str, Any]
Given = dict[str, Any]
Rows = Iterable[Sequence[Any]]


@dataclass(frozen=True)
class Parameter:
    """An argument of a procedure."""

    type: str
    comment: str
    default: str | None = None
    """As SQL; None if it must be given."""


@dataclass(frozen=True)
class Procedure:
    """What it takes, what it returns, and its work."""

    description: str
    parameters: Mapping[str, Parameter]
    result: st.StructType
    run: Callable[[LakeSession, Given], Rows]


def load(session: LakeSession, request: Request) -> dict[str, Any]:
    """The parameters of a procedure."""
    del session
    found = _found(request["procedure"])
    if found is None:
        return {"missing": True}
    struct = columns(**{name: parameter.type for name, parameter in found.parameters.items()})
    facts = [
        {"comment": parameter.comment, **({} if parameter.default is None else {"default": parameter.default})}
        for parameter in found.parameters.values()
    ]
    described = f"{found.description} Arguments: {', '.join(found.parameters)}."
    return {"description": described, "parameters": struct.json(), "facts": facts}


def names(session: LakeSession, request: Request) -> dict[str, Any]:
    """The procedures in a namespace."""
    del session
    return {
        "names": sorted(PROCEDURES) if [part.lower() for part in request["namespace"]] == [SYSTEM_NAMESPACE] else []
    }


def call(session: LakeSession, request: Request) -> dict[str, Any]:
    """Run a procedure; arguments that were not given have their defaults."""
    found = _found(request["procedure"])
    assert found is not None, "a procedure that was loaded is known"
    given = dict(zip(found.parameters, request["arguments"], strict=True))
    return answer(found.result, found.run(session, given))


def _found(parts: Sequence[str]) -> Procedure | None:
    *namespace, name = (part.lower() for part in parts)
    return PROCEDURES.get(name) if namespace == [SYSTEM_NAMESPACE] else None


def _table(session: LakeSession, text: str) -> tuple[Lake, Table]:
    """A table by the name that statements give it, and the branch of the lake that has it."""
    parts = [part.strip("`") for part in text.split(".")]
    found = None
    for chosen in (parts, parts[1:] if parts[0] == session.catalog else []):
        found = found or (table_name(chosen, session.lake) if chosen else None)
    if found is None or found.tag is not None:
        raise NotFoundError(f"The lake has no table {text!r}.", table=text, hint=f"SHOW TABLES IN {session.catalog}")
    lake = session.lake if found.branch is None else session.lake.branch(found.branch)
    return lake, lake[found.table]


def _present(given: Given, *wanted: str) -> Given:
    """The arguments that have a value."""
    return {name: given[name] for name in wanted if given[name] is not None}


# ---------------------------------------------------------------------------- transactions


def _begin(session: LakeSession, given: Given) -> Rows:
    session.begin(given["transaction"], given["message"], given["isolation"])
    yield (given["transaction"],)


def _commit(session: LakeSession, given: Given) -> Rows:
    yield (session.commit(given["transaction"]),)


def _rollback(session: LakeSession, given: Given) -> Rows:
    session.rollback(given["transaction"])
    yield (given["transaction"],)


# ---------------------------------------------------------------------------- maintenance


def _compact(session: LakeSession, given: Given) -> Rows:
    _, table = _table(session, given["table"])
    before = len(table.pinned.manifest.fragments)
    sort_by = given["sort_by"] and [name.strip() for name in given["sort_by"].split(",")]
    after = table.compact(sort_by or None, **_present(given, "rows_per_fragment"))
    yield after.version, before, len(after.pinned.manifest.fragments)


def _expire(session: LakeSession, given: Given) -> Rows:
    limits = _present(given, "older_than", "keep")
    found = session.lake.expire(**limits, dry_run=given["dry_run"])
    yield len(found.removed), found.table_versions, found.bytes, found.is_dry_run


def _gc(session: LakeSession, given: Given) -> Rows:
    found = session.lake.gc(**_present(given, "min_age"), dry_run=given["dry_run"])
    yield found.files, found.bytes, found.is_dry_run


def _revert(session: LakeSession, given: Given) -> Rows:
    _, table = _table(session, given["table"])
    restored = table.restore(**_present(given, "version", "tag", "as_of"))
    yield restored.version, restored.count_rows()


def _doctor(session: LakeSession, given: Given) -> Rows:
    owner = session.lake if given["table"] is None else _table(session, given["table"])[1]
    for finding in owner.doctor(fix=given["fix"], deep=given["deep"]).findings:
        yield finding.severity, finding.kind, finding.table, finding.what, finding.hint, finding.fixed


def _create_index(session: LakeSession, given: Given) -> Rows:
    _, table = _table(session, given["table"])
    made = table.create_index(given["column"], given["kind"], replace=given["replace"], **_present(given, "name"))
    yield (made.version,)


def _drop_index(session: LakeSession, given: Given) -> Rows:
    _, table = _table(session, given["table"])
    yield (table.drop_index(given["name"]).version,)


# ---------------------------------------------------------------------------- tags and branches


def _tag(session: LakeSession, given: Given) -> Rows:
    owner = session.lake if given["table"] is None else _table(session, given["table"])[1]
    tag = owner.tags.create(given["name"], given["version"])
    yield tag.name, tag.version


def _drop_tag(session: LakeSession, given: Given) -> Rows:
    owner = session.lake if given["table"] is None else _table(session, given["table"])[1]
    owner.tags.delete(given["name"])
    yield (given["name"],)


def _branch(session: LakeSession, given: Given) -> Rows:
    source = given["source"]
    number = int(source) if source is not None and source.isdecimal() else source
    made = session.lake.branches.create(given["name"], number)
    yield made.name, made.parent, made.parent_version


def _drop_branch(session: LakeSession, given: Given) -> Rows:
    session.lake.branches.delete(given["name"])
    yield (given["name"],)


def _merge(session: LakeSession, given: Given) -> Rows:
    done = session.lake.merge(given["source"], given["target"], dry_run=given["dry_run"], prefer=given["prefer"])
    for each in done.tables:
        yield each.table, each.kind, each.inserted, each.updated, each.deleted, each.conflicts, None
    for conflict in done.conflicts:
        yield conflict.table, "conflict", 0, 0, 0, 1, str(conflict)


_TABLE = Parameter("string", "the table, such as 'sales.orders' or 'orders.branch_dev'")
_LAKE_OR_TABLE = Parameter("string", "the table; without it, the lake", "NULL")
_DRY_RUN = Parameter("boolean", "only report; false to do it", "true")
_MADE = columns(version="bigint NOT NULL")

_TRANSACTION = Parameter("string", "its name, as in SET spark.conroi.transaction.CATALOG = name")

PROCEDURES: dict[str, Procedure] = {
    "begin": Procedure(
        "Begin a transaction over several statements: those of a session whose setting names it.",
        {
            "transaction": _TRANSACTION,
            "message": Parameter("string", "the message of the commit", "NULL"),
            "isolation": Parameter("string", "'snapshot' or 'serializable'; without it, that of the catalog", "NULL"),
        },
        columns(transaction="string NOT NULL"),
        _begin,
    ),
    "commit": Procedure(
        "Commit a transaction.", {"transaction": _TRANSACTION}, columns(version="bigint NOT NULL"), _commit
    ),
    "rollback": Procedure(
        "Drop the changes of a transaction.", {"transaction": _TRANSACTION}, columns(transaction="string"), _rollback
    ),
    "compact": Procedure(
        "Rewrite small fragments and fragments with deleted rows.",
        {
            "table": _TABLE,
            "sort_by": Parameter("string", "columns by which all rows are ordered", "NULL"),
            "rows_per_fragment": Parameter("bigint", "rows of a full fragment", "NULL"),
        },
        columns(version="bigint NOT NULL", fragments_before="bigint NOT NULL", fragments_after="bigint NOT NULL"),
        _compact,
    ),
    "expire": Procedure(
        "Remove old versions of the lake and its tables.",
        {
            "older_than": Parameter("string", "an age such as '7d'", "NULL"),
            "keep": Parameter("bigint", "versions that stay in any case", "NULL"),
            "dry_run": _DRY_RUN,
        },
        columns(
            lake_versions="bigint NOT NULL", table_versions="bigint NOT NULL", bytes="bigint NOT NULL",
            is_dry_run="boolean NOT NULL",
        ),
        _expire,
    ),
    "gc": Procedure(
        "Remove files that no version refers to.",
        {
            "min_age": Parameter("string", "the age of files that may be garbage, such as '2h'", "NULL"),
            "dry_run": _DRY_RUN,
        },
        columns(files="bigint NOT NULL", bytes="bigint NOT NULL", is_dry_run="boolean NOT NULL"),
        _gc,
    ),
    "revert": Procedure(
        "Make a past version of a table the newest again.",
        {
            "table": _TABLE,
            "version": Parameter("bigint", "a version of the table", "NULL"),
            "tag": Parameter("string", "or a tag of it", "NULL"),
            "as_of": Parameter("string", "or a time with zone, such as '2026-11-18T00:00:00Z'", "NULL"),
        },
        columns(version="bigint NOT NULL", rows="bigint NOT NULL"),
        _revert,
    ),
    "doctor": Procedure(
        "Examine the lake or a table.",
        {
            "table": _LAKE_OR_TABLE,
            "fix": Parameter("boolean", "repair what can be repaired", "false"),
            "deep": Parameter("boolean", "read the data files, too", "false"),
        },
        columns(
            severity="string NOT NULL", kind="string NOT NULL", table="string", what="string", hint="string",
            fixed="boolean",
        ),
        _doctor,
    ),
    "create_index": Procedure(
        "Create an index.",
        {
            "table": _TABLE,
            "column": Parameter("string", "the column"),
            "kind": Parameter("string", "BTREE, BITMAP, INVERTED, IVF_PQ, …", "'BTREE'"),
            "name": Parameter("string", "the name of the index", "NULL"),
            "replace": Parameter("boolean", "replace an index of this name", "false"),
        },
        _MADE,
        _create_index,
    ),
    "drop_index": Procedure(
        "Drop an index.", {"table": _TABLE, "name": Parameter("string", "the index")}, _MADE, _drop_index
    ),
    "tag": Procedure(
        "Tag a version of the lake or of a table.",
        {
            "name": Parameter("string", "the tag"),
            "table": _LAKE_OR_TABLE,
            "version": Parameter("bigint", "the version; without it, the newest", "NULL"),
        },
        columns(name="string NOT NULL", version="bigint NOT NULL"),
        _tag,
    ),
    "drop_tag": Procedure(
        "Delete a tag.",
        {"name": Parameter("string", "the tag"), "table": _LAKE_OR_TABLE},
        columns(name="string NOT NULL"),
        _drop_tag,
    ),
    "branch": Procedure(
        "Create a branch of the lake.",
        {
            "name": Parameter("string", "the branch"),
            "source": Parameter("string", "a version, tag or branch; without it, the newest version", "NULL"),
        },
        columns(name="string NOT NULL", parent="string", parent_version="bigint"),
        _branch,
    ),
    "drop_branch": Procedure(
        "Delete a branch of the lake.",
        {"name": Parameter("string", "the branch")},
        columns(name="string NOT NULL"),
        _drop_branch,
    ),
    "merge": Procedure(
        "Merge a branch into another.",
        {
            "source": Parameter("string", "the branch that is merged"),
            "target": Parameter("string", "the branch that changes; without it, that of the catalog", "NULL"),
            "prefer": Parameter("string", "'source' or 'target' wins; without it, a conflict is an error", "NULL"),
            "dry_run": Parameter("boolean", "only report", "false"),
        },
        columns(
            table="string", kind="string", inserted="bigint", updated="bigint", deleted="bigint", conflicts="bigint",
            what="string",
        ),
        _merge,
    ),
}  # fmt: skip
