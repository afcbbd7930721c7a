"""Jobs: tables with a common prefix that the workers of one job share, dropped when it ends."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from conroi.arguments import checked_calls
from conroi.errors import InvalidInputError
from conroi.table import Table

if TYPE_CHECKING:
    from conroi.data.incoming import Data
    from conroi.insertion import Remains
    from conroi.lake import Lake


@checked_calls
class Job:
    """The tables of one job, named `j_<id>_…`: shared between its workers, dropped when the job ends.

    Inserts into them are locked like any other. Only the worker that leaves the `with` block drops them.
    """

    def __init__(self, lake: Lake, job_id: str) -> None:
        if not re.fullmatch(r"[A-Za-z0-9\-]{1,64}", job_id):
            raise InvalidInputError(f"{job_id!r} is not the id of a job.", hint="Use letters, digits and -.")
        self._lake = lake
        self.id = job_id

    def name(self, table: str) -> str:
        """The name of a job's table in the lake."""
        return f"j_{self.id}_{table}"

    def __getitem__(self, table: str) -> Table:
        return self._lake[self.name(table)]

    def tables(self) -> list[str]:
        """The names, in the lake, of the job's tables."""
        return [name for name in self._lake.tables() if name.startswith(self.name(""))]

    def write(
        self,
        table: str,
        data: Data,
        *,
        key: str | Sequence[str] | None = None,
        chunk_rows: int | None = None,
        wait_s: float | None = None,
        message: str | None = None,
        remains: Remains = "remove",
    ) -> Table:
        """As lake.write(), for a table of this job."""
        name = self.name(table)
        return self._lake.write(
            name, data, key=key, chunk_rows=chunk_rows, wait_s=wait_s, message=message, remains=remains
        )

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()

    def drop(self) -> None:
        """Drop all tables of the job, in one commit."""
        names = self.tables()
        if names:
            with self._lake.begin(f"drop the tables of job {self.id}") as tx:
                for name in names:
                    tx.drop_table(name)
