"""What the clauses decide: which rows leave the table, and which rows come in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from conroi.data.fitting import cast_batch
from conroi.data.pinned import Pinned
from conroi.data.pylance import pylance_errors
from conroi.data.quoting import quoted
from conroi.data.rows import addresses_of
from conroi.merging.clauses import Action, Clause, Rows
from conroi.merging.matching import Addresses, Match, Positions, take_rows
from conroi.merging.scratch import evaluate

_TARGET_PREFIX = re.compile(r"'(?:[^']|'')*'|\btarget\s*\.\s*", re.IGNORECASE)


@dataclass
class Decided:
    """The sum of all clauses."""

    deleted: list[Addresses] = field(default_factory=list[Addresses])
    updated: list[Addresses] = field(default_factory=list[Addresses])
    updated_rows: list[pa.Table] = field(default_factory=list[pa.Table])
    inserted_rows: list[pa.Table] = field(default_factory=list[pa.Table])


@dataclass(frozen=True)
class Decision:
    """Applies clauses to matched and unmatched rows; of those for the same rows the first that holds wins."""

    pinned: Pinned
    source: pa.Table
    """As it came."""
    fitted: pa.Table
    """Its columns that the table has, in the table's types."""
    found: Match

    def decide(self, clauses: Sequence[Clause]) -> Decided:
        decided = Decided()
        self._matched([c for c in clauses if c.rows is Rows.MATCHED], decided)
        self._target_only([c for c in clauses if c.rows is Rows.TARGET_ONLY], decided)
        self._source_only([c for c in clauses if c.rows is Rows.SOURCE_ONLY], decided)
        return decided

    # ------------------------------------------------------------------------ matched rows

    def _matched(self, clauses: Sequence[Clause], decided: Decided) -> None:
        left = np.arange(len(self.found.addresses))
        for clause in clauses:
            chosen, left = self._split(clause, left)
            if not len(chosen):
                continue
            addresses = self.found.addresses[chosen]
            if clause.action is Action.DELETE:
                decided.deleted.append(addresses)
            else:
                decided.updated.append(addresses)
                decided.updated_rows.append(self._updated(clause, chosen, addresses))

    def _split(self, clause: Clause, left: Positions) -> tuple[Positions, Positions]:
        """Those of the pairs for which the condition holds, and the others."""
        if clause.condition is None or not len(left):
            return left, left[:0]
        holds = self._evaluate({"holds": clause.condition}, left)["holds"].to_numpy() == True  # noqa: E712
        return left[holds], left[~holds]

    def _evaluate(self, expressions: Mapping[str, str], pairs: Positions) -> pa.Table:
        names = self._mentioned(expressions.values())
        target = take_rows(self.pinned, self.found.addresses[pairs], {name: quoted(name) for name in names})
        source = self.source.take(pa.array(self.found.source_rows[pairs]))
        return evaluate(
            self.pinned.files.environment, expressions, source=source, target=target, table=self.pinned.root
        )

    def _mentioned(self, texts: Sequence[str] | object) -> list[str]:
        """The table's columns whose names stand anywhere in the expressions (too many does no harm)."""
        text = " ".join(texts).lower()  # type: ignore[arg-type]
        return [name for name in self.pinned.schema.names if name.lower() in text]

    def _updated(self, clause: Clause, chosen: Positions, addresses: Addresses) -> pa.Table:
        """The new rows, in the table's schema."""
        if clause.values is None:
            new = self.fitted.take(pa.array(self.found.source_rows[chosen]))
        else:
            new = self._evaluate(dict(clause.values), chosen)
        kept = [name for name in self.pinned.schema.names if name not in new.column_names]
        old = take_rows(self.pinned, addresses, {name: quoted(name) for name in kept})
        return self._in_schema({**_columns(new), **_columns(old)}, len(addresses))

    # ----------------------------------------------------------------- rows of the source only

    def _source_only(self, clauses: Sequence[Clause], decided: Decided) -> None:
        left = self.found.unmatched_source
        for clause in clauses:
            rows = self.source.take(pa.array(left))
            chosen = left
            if clause.condition is not None and len(left):
                holds = self._evaluate_source({"holds": clause.condition}, rows)["holds"].to_numpy() == True  # noqa: E712
                chosen, left = left[holds], left[~holds]
                rows = self.source.take(pa.array(chosen))
            else:
                left = left[:0]
            if len(chosen):
                decided.inserted_rows.append(self._inserted(clause, chosen, rows))

    def _evaluate_source(self, expressions: Mapping[str, str], rows: pa.Table) -> pa.Table:
        return evaluate(self.pinned.files.environment, expressions, source=rows, target=None, table=self.pinned.root)

    def _inserted(self, clause: Clause, chosen: Positions, rows: pa.Table) -> pa.Table:
        if clause.values is None:
            new = self.fitted.take(pa.array(chosen))
        else:
            new = self._evaluate_source(dict(clause.values), rows)
        return self._in_schema(_columns(new), len(chosen))

    # ----------------------------------------------------------------- rows of the target only

    def _target_only(self, clauses: Sequence[Clause], decided: Decided) -> None:
        left = self.found.unmatched_target
        for clause in clauses:
            chosen = left
            if clause.condition is not None:
                chosen = np.intersect1d(left, self._where(unqualified(clause.condition)))
            left = np.setdiff1d(left, chosen)
            if not len(chosen):
                continue
            if clause.action is Action.DELETE:
                decided.deleted.append(chosen)
            else:
                values = {name: unqualified(text) for name, text in (clause.values or {}).items()}
                columns = {name: values.get(name, quoted(name)) for name in self.pinned.schema.names}
                rows = take_rows(self.pinned, chosen, columns)
                decided.updated.append(chosen)
                decided.updated_rows.append(self._in_schema(_columns(rows), len(chosen)))

    def _where(self, condition: str) -> Addresses:
        with pylance_errors(self.pinned.root):
            found = self.pinned.dataset.scanner(columns=[], filter=condition, with_row_address=True).to_table()
        return addresses_of(found["_rowaddr"])

    def _in_schema(self, columns: Mapping[str, pa.ChunkedArray], rows: int) -> pa.Table:
        schema = self.pinned.schema
        complete = {f.name: columns.get(f.name, pa.chunked_array([pa.nulls(rows, f.type)])) for f in schema}
        batches = pa.table(complete).combine_chunks().to_batches()
        return pa.Table.from_batches([cast_batch(batch, schema, self.pinned.root) for batch in batches], schema)


def _columns(table: pa.Table) -> dict[str, pa.ChunkedArray]:
    return {name: table[name] for name in table.column_names}


def unqualified(text: str) -> str:
    """An expression over the target alone, without `target.` in front of its columns (but not inside quotes)."""
    return _TARGET_PREFIX.sub(lambda found: found.group(0) if found.group(0).startswith("'") else "", text)
