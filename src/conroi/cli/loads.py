"""Bringing files into tables, all of them in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from conroi.cli.sources import Source, Together
from conroi.cli.usage import UsageProblem
from conroi.errors import AlreadyExistsError, NotFoundError

if TYPE_CHECKING:
    import pyarrow as pa

    from conroi.lake import Lake
    from conroi.transaction import Transaction, TransactionResult

MODES = ("append", "overwrite", "merge")


@dataclass(frozen=True)
class Load:
    """Files for one table."""

    name: str
    sources: tuple[Source, ...]
    mode: str = "append"
    on: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    creates: bool = False
    """Whether the table is made if it is not there."""
    evolve: bool = False

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise UsageProblem(f"The mode {self.mode!r} is not known. It is one of {', '.join(MODES)}.")
        if self.mode == "merge" and not self.on and not self.key:
            raise UsageProblem(f"A merge into {self.name} needs the columns to match rows by: --on id.")
        if not self.sources:
            raise UsageProblem(f"Say which files to load into {self.name}.")


@dataclass
class Loading:
    """One transaction of loads, which may have to be done more than once."""

    loads: Sequence[Load]
    progress: Callable[[int], None]
    as_frame: Callable[[Load], Any] | None = None
    """The files as a Spark frame; None reads them here."""
    rows: dict[str, int] = field(default_factory=dict[str, int])
    result: TransactionResult | None = None
    _failure: Exception | None = None
    _created: set[str] = field(default_factory=set[str])
    """The tables that this attempt creates."""

    def run(self, lake: Lake, *, message: str | None, author: str | None, once: str | None) -> TransactionResult:
        """Load everything, or nothing."""
        transactions: list[Transaction] = []

        def work(tx: Transaction) -> None:
            transactions.append(tx)
            self.rows = {}
            self._created.clear()
            if not tx.is_done:
                for each in self.loads:
                    self._stage(tx, each)

        said = message or f"load {', '.join(dict.fromkeys(each.name for each in self.loads))}"
        try:
            while True:
                try:
                    lake.run(work, message=said, author=author, idempotency_key=once)
                    break
                except AlreadyExistsError as error:
                    if error.table not in self._created:
                        raise
                    # A concurrent load created it first: --create means "if it is not there", so load into that one.
        except Exception:
            if self._failure is not None:  # the file was at fault; on its way through Rust its error became a text
                raise self._failure from None
            raise
        return transactions[-1].result

    def _stage(self, tx: Transaction, load: Load) -> None:
        if load.name not in tx:
            if not load.creates:
                raise NotFoundError(
                    f"The lake has no table {load.name!r}.",
                    table=load.name,
                    hint="Give --create to make it from the files.",
                )
            self._created.add(load.name)
            tx.create_table(load.name, self._data(load, None), key=list(load.key) or None)
            return
        table = tx[load.name]
        data = self._data(load, table.schema)
        if load.mode == "append":
            table.append(data, evolve_schema=load.evolve)
        elif load.mode == "overwrite":
            table.overwrite(data)
        else:
            merge = table.merge(data, on=list(load.on or load.key))
            merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def _data(self, load: Load, known: pa.Schema | None) -> Any:
        if self.as_frame is not None:
            return self.as_frame(load)
        self.rows.setdefault(load.name, 0)

        def count(rows: int) -> None:
            self.rows[load.name] += rows
            self.progress(rows)

        return Together(load.sources, known, count, self._failed).open()

    def _failed(self, error: Exception) -> None:
        self._failure = error


def spark_frame(load: Load) -> Any:
    """The files as a Spark frame, which its executors read and write."""
    from conroi.spark import session

    spark = session()
    frame: Any = None
    for source in load.sources:
        part = _spark_source(spark, source)
        frame = part if frame is None else frame.unionByName(part)
    return frame


def _spark_source(spark: Any, source: Source) -> Any:
    if source.kind in ("csv", "tsv"):
        separator = "," if source.kind == "csv" else "\t"
        return spark.read.csv(source.path, header=True, inferSchema=True, sep=separator)
    names = {"lance": "conroi"}
    return spark.read.format(names.get(source.kind, source.kind)).load(source.path)
