"""DDL of the catalog: namespaces; CREATE, REPLACE, ALTER, RENAME and DROP TABLE.

A type that would come back as another one is refused; CHAR and VARCHAR become STRING, as in other catalogs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import types as st

from conroi.errors import AlreadyExistsError, ConroiError, InvalidInputError, UnsupportedError
from conroi.format.json import parse_json
from conroi.spark.connector.lake_session import LakeSession, OpenTransaction, Replaced
from conroi.spark.connector.tables import COMMENT, Name, facts, table_name
from conroi.spark.connector.tasks import struct_from_text
from conroi.spark.types import spark_type, table_schema
from conroi.staged_table import TransactionTable
from conroi.transaction import Transaction

Request = Mapping[str, Any]

# ---------------------------------------------------------------------------- namespaces


def _joined(parts: Sequence[str]) -> str:
    """The name of something new in the lake, where a dot separates namespaces."""
    for part in parts:
        if "." in part:
            raise InvalidInputError(f"{part!r} cannot be a name: it has a dot.", hint="Choose one without dots.")
    return ".".join(parts)


def _missing(session: LakeSession, namespace: Sequence[str]) -> bool:
    return bool(namespace) and ".".join(namespace) not in session.lake.namespaces()


def tables(session: LakeSession, request: Request) -> dict[str, Any]:
    """The tables directly inside a namespace."""
    namespace = request["namespace"]
    if _missing(session, namespace):
        return {"missing": True}
    identity = request.get("transaction")
    opened = None if identity is None else session.transaction(identity)
    source = session.lake if opened is None else opened.on(None)
    hidden = set() if opened is None else {replaced.kept_as for replaced in list(opened.replaced.values())}
    inside = "".join(f"{part}." for part in namespace)
    names = [name for name in source.tables() if name.startswith(inside) and name not in hidden]
    return {"names": [name.split(".")[-1] for name in names if name.count(".") == len(namespace)]}


def namespaces(session: LakeSession, request: Request) -> dict[str, Any]:
    """The namespaces directly inside another, or inside the lake."""
    parent = request["parent"]
    if _missing(session, parent):
        return {"missing": True}
    found = [name.split(".") for name in session.lake.namespaces()]
    return {"names": [name for name in found if len(name) == len(parent) + 1 and name[:-1] == parent]}


def namespace(session: LakeSession, request: Request) -> dict[str, Any]:
    """The properties of a namespace."""
    if _missing(session, request["namespace"]):
        return {"missing": True}
    return {"properties": {}}


def create_namespace(session: LakeSession, request: Request) -> dict[str, Any]:
    """Create a namespace."""
    _refuse_in_transaction(request)
    given = sorted(set(request["properties"]) - {"owner"})
    if given:
        raise UnsupportedError(
            f"A namespace of a lake has no properties ({', '.join(given)}).", hint="Leave out COMMENT and LOCATION."
        )
    try:
        session.lake.create_namespace(_joined(request["namespace"]))
    except AlreadyExistsError:
        return {"exists": True}
    return {}


def _refuse_in_transaction(request: Request) -> None:
    if request.get("transaction") is not None:
        raise UnsupportedError(
            "Namespaces cannot be created or dropped inside a transaction.",
            hint="Do it before the transaction begins, or after it.",
        )


def alter_namespace(session: LakeSession, request: Request) -> dict[str, Any]:
    """Namespaces have no properties."""
    del session
    raise UnsupportedError(
        f"Namespace {'.'.join(request['namespace'])} cannot be altered: it has no properties.", hint="Drop it."
    )


def drop_namespace(session: LakeSession, request: Request) -> dict[str, Any]:
    """Drop a namespace; with cascade, in one transaction with the tables in it."""
    _refuse_in_transaction(request)
    name = ".".join(request["namespace"])
    if _missing(session, request["namespace"]):
        return {"missing": True}
    inside = session.lake.tables(name)
    deeper = [each for each in session.lake.namespaces() if each.startswith(f"{name}.")]
    if (inside or deeper) and not request["cascade"]:
        return {"nonempty": True}
    if inside:
        with session.lake.begin(f"drop the tables of {name}") as tx:
            for table in inside:
                tx.drop_table(table)
    for each in sorted([*deeper, name], key=len, reverse=True):
        session.lake.drop_namespace(each)
    return {}


# ---------------------------------------------------------------------------- creating tables

_OF_SPARK = {"owner", "provider", "is_managed_location", "external", "table_type"}
_KEY, _STABLE = "key", "stable_row_ids"


def create(session: LakeSession, request: Request) -> dict[str, Any]:
    """CREATE TABLE."""
    name = _joined(request["table"])
    try:
        with session.changing(request.get("transaction"), f"create {name}") as tx:
            _create(tx, name, request)
            answer = facts(session, Name(name), tx[name], is_writable=True)
    except AlreadyExistsError:
        return {"exists": True}
    return answer


def stage(session: LakeSession, request: Request) -> dict[str, Any]:
    """CREATE TABLE AS, REPLACE TABLE AS: the table becomes visible with its rows."""
    opened = session.transaction(request["transaction"])
    tx = opened.on(None)
    name, kind = _joined(request["table"]), request["kind"]
    found = table_name(request["table"], tx)
    if found is not None and kind == "create":
        return {"exists": True}
    if found is None and kind == "replace":
        return {"missing": True}
    if found is not None:
        name = found.table
        replaced = Replaced(facts(session, found, tx[name], is_writable=False), _unused(tx, f"{name}__replaced"))
        tx.rename_table(name, replaced.kept_as)
        opened.replaced[name] = replaced
    try:
        _create(tx, name, request)
    except ConroiError:
        _give_back(opened, tx, name)
        raise
    return facts(session, Name(name), tx[name], is_writable=True)


def end_stage(session: LakeSession, request: Request) -> dict[str, Any]:
    """The end of CREATE or REPLACE TABLE AS. The transaction may go on: a statement that failed leaves no trace."""
    opened, name = session.transaction(request["transaction"]), request["target"]["name"]
    tx = opened.on(None)
    if request["failed"]:
        tx.drop_table(name)
        _give_back(opened, tx, name)
    elif (replaced := opened.replaced.pop(name, None)) is not None:
        tx.drop_table(replaced.kept_as)
    return {}


def _unused(tx: Transaction, name: str) -> str:
    while name in tx:
        name += "_"
    return name


def _give_back(opened: OpenTransaction, tx: Transaction, name: str) -> None:
    """Give a table that was to be replaced its name again."""
    replaced = opened.replaced.pop(name, None)
    if replaced is not None:
        tx.rename_table(replaced.kept_as, name)


def _create(tx: Transaction, name: str, request: Request) -> None:
    if request["partitions"]:
        raise UnsupportedError(
            f"Tables have no partitions ({', '.join(request['partitions'])}).",
            table=name,
            hint="Leave out PARTITIONED BY and CLUSTERED BY; compact(sort_by=…) puts rows in order.",
        )
    properties = dict(request["properties"])
    key, stable = properties.pop(_KEY, None), properties.pop(_STABLE, "false")
    tx.create_table(
        name,
        new_schema(struct_from_text(request["schema"])),
        key=None if not key else [column.strip() for column in key.split(",")],
        stable_row_ids=stable.lower() == "true",
        config=_config(properties, name),
    )


def _config(properties: Mapping[str, str], name: str) -> dict[str, str]:
    provider = properties.get("provider", "conroi").lower()
    if provider != "conroi":
        raise UnsupportedError(
            f"USING {provider} is not for tables of a lake.",
            table=name,
            hint="Leave it out, or write USING conroi; for a stream, .format('conroi').toTable(…): without a format "
            "Spark asks for its own default.",
        )
    if "location" in properties:
        raise UnsupportedError("The lake chooses where a table is.", table=name, hint="Leave out LOCATION.")
    return {
        key: value
        for key, value in properties.items()
        if key not in _OF_SPARK and not key.startswith("option.") and value
    }


# ---------------------------------------------------------------------------- changing tables


def drop(session: LakeSession, request: Request) -> dict[str, Any]:
    """DROP TABLE."""
    with session.changing(request.get("transaction"), f"drop {'.'.join(request['table'])}") as tx:
        name = table_name(request["table"], tx)
        if name is None or name.branch or name.tag:
            return {"dropped": False}
        tx.drop_table(name.table)
    return {"dropped": True}


def rename(session: LakeSession, request: Request) -> dict[str, Any]:
    """ALTER TABLE … RENAME TO."""
    wanted = _joined(_without_catalog(session, request["to"]))
    try:
        with session.changing(request.get("transaction"), f"rename to {wanted}") as tx:
            name = table_name(request["table"], tx)
            if name is None or name.branch or name.tag:
                return {"missing": True}
            tx.rename_table(name.table, wanted)
    except AlreadyExistsError:
        return {"exists": True}
    return {}


def _without_catalog(session: LakeSession, parts: Sequence[str]) -> Sequence[str]:
    """Spark takes the whole new name as one inside the catalog, also if it begins with the catalog."""
    is_whole = len(parts) > 1 and parts[0] == session.catalog and parts[0] not in session.lake.namespaces()
    return parts[1:] if is_whole else parts


def alter(session: LakeSession, request: Request) -> dict[str, Any]:
    """ALTER TABLE: all changes of one statement are one version."""
    identity = request.get("transaction")
    source = session.snapshot(None) if identity is None else session.transaction(identity).on(None)
    name = table_name(request["table"], source)
    if name is None or name.tag:
        return {"missing": True}
    with session.changing(request.get("transaction"), f"alter {name.table}", name.branch) as tx:
        table = tx[name.table]
        for change in request["changes"]:
            _apply(table, change)
        return facts(session, name, table, is_writable=True)


def _apply(table: TransactionTable, change: Request) -> None:
    kind = change["change"]
    if kind in ("set", "unset"):
        _set_property(table, change["name"], change.get("value"))
        return
    path = ".".join(change.get("column", ()))
    if kind == "add":
        _add_column(table, path, change)
    elif kind == "rename":
        table.rename_columns({path: change["to"]})
    elif kind == "retype":
        table.alter_columns({path: {"type": column_type(change["type"], path)}})
    elif kind == "nullable":
        table.alter_columns({path: {"nullable": change["nullable"]}})
    elif kind == "comment":
        table.set_metadata(fields={path: {COMMENT: change.get("comment")}})
    elif kind == "drop":
        if not change["ifExists"] or _has(table.schema, change["column"]):
            table.drop_columns([path])
    else:
        what = change.get("text", kind)
        raise UnsupportedError(
            f"ALTER TABLE cannot do {what}.", table=table.name, hint="docs/spark.md says what it can."
        )


def _has(schema: pa.Schema, path: Sequence[str]) -> bool:
    found: Any = pa.struct(list(schema))
    for name in path:
        if not pa.types.is_struct(found) or found.get_field_index(name) < 0:
            return False
        found = found.field(name).type
    return True


def _set_property(table: TransactionTable, name: str, value: str | None) -> None:
    if name == _KEY:
        if value is None:
            raise UnsupportedError("A key cannot be removed.", table=table.name, hint="Create the table again.")
        table.declare_key([column.strip() for column in value.split(",")])
    else:
        table.set_config({name: value})


def _add_column(table: TransactionTable, path: str, change: Request) -> None:
    if not change["nullable"] or change.get("position") or change.get("default"):
        raise UnsupportedError(
            "A new column is null in all rows, and is the last one.",
            table=table.name,
            hint="Leave out NOT NULL, DEFAULT, FIRST and AFTER; UPDATE sets its values.",
        )
    if len(change["column"]) != 1:
        raise UnsupportedError("A struct gets no new fields.", table=table.name, hint="Add a column.")
    comment = {} if change.get("comment") is None else {COMMENT: str(change["comment"])}
    table.add_columns(pa.schema([pa.field(path, column_type(change["type"], path), metadata=comment)]))


# ---------------------------------------------------------------------------- types of columns


def new_schema(struct: st.StructType) -> pa.Schema:
    """The columns of a new table; NOT NULL and comments are kept for top-level columns."""
    return pa.schema([_column(field) for field in struct])


def _column(given: st.StructField) -> pa.Field[Any]:
    comment = given.metadata.get(COMMENT)
    metadata = None if comment is None else {COMMENT: str(comment)}
    return pa.field(given.name, _arrow_type(given.dataType, given.name), given.nullable, metadata)


def column_type(text: str, name: str) -> pa.DataType:
    """The type of a column as Spark writes it in JSON."""
    parsed: Any = parse_json(text, "The type of a column")
    struct = st.StructType.fromJson({"fields": [{"name": name, "type": parsed, "nullable": True, "metadata": {}}]})
    return _arrow_type(struct[0].dataType, name)


def _arrow_type(given: st.DataType, name: str) -> pa.DataType:
    plain = _plain(given)
    try:
        found = table_schema(st.StructType([st.StructField(name, plain)])).field(0).type
    except PySparkException:
        found = None
    back = None if found is None else spark_type(found)
    if found is None or back is None or back.simpleString() != plain.simpleString():
        raise UnsupportedError(
            f"A table has no type for column {name!r} ({given.simpleString()}).",
            hint="Use another type; JSON as STRING, intervals as BIGINT.",
        )
    return found


def _plain(kind: st.DataType) -> st.DataType:
    """The type without the lengths of CHAR and VARCHAR."""
    if isinstance(kind, st.CharType | st.VarcharType):
        return st.StringType()
    if isinstance(kind, st.ArrayType):
        return st.ArrayType(_plain(kind.elementType), kind.containsNull)
    if isinstance(kind, st.MapType):
        return st.MapType(_plain(kind.keyType), _plain(kind.valueType), kind.valueContainsNull)
    if isinstance(kind, st.StructType):
        return st.StructType([st.StructField(each.name, _plain(each.dataType), each.nullable) for each in kind])
    return kind
