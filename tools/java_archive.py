"""python -m tools.java_archive FILE: an archive of the classes that Spark loads, for Java machines that tests start.

A Java machine that maps the archive (class data sharing) starts Spark with half the processor time. It ignores an
archive that is not for it: of another release of Java, or of another class path. Where none can be made, the file is
empty, and tests run without.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import conroi.spark

QUIET = "-Xlog:disable -Xlog:all=off"
FAST = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def write(archive: Path) -> None:
    """Start a session that dumps its classes when it ends, and use what tests use."""
    archive.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        options = f"{FAST} {QUIET} -XX:ArchiveClassesAtExit={archive.absolute()}"
        settings = {"spark.driver.extraJavaOptions": options, "spark.sql.warehouse.dir": f"{folder}/warehouse"}
        session = conroi.spark.session("classes", master="local[2]", lake=f"{folder}/lake", config=settings)
        java: Any = session.sparkContext._gateway  # pyright: ignore
        try:
            _use(session, folder)
        finally:
            session.stop()
            java.shutdown()
            java.proc.stdin.close()
            java.proc.wait(120)


def _use(session: Any, folder: str) -> None:
    session.sql("CREATE TABLE lake.t (id BIGINT, name STRING) TBLPROPERTIES (key = 'id')")
    session.sql("INSERT INTO lake.t VALUES (1, 'a'), (2, 'b')")
    session.createDataFrame(pa.table({"id": [2, 3], "name": ["c", "d"]})).createOrReplaceTempView("news")
    merge = "MERGE INTO lake.t t USING news s ON t.id = s.id"
    session.sql(f"{merge} WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")
    session.sql("UPDATE lake.t SET name = upper(name) WHERE id > 1")
    session.sql("DELETE FROM lake.t WHERE id = 1")
    session.sql("SELECT name, count(*) FROM lake.t JOIN news USING (name) GROUP BY name ORDER BY name").collect()
    session.range(100).write.parquet(f"{folder}/rows")
    session.read.parquet(f"{folder}/rows").mapInArrow(_unchanged, "id BIGINT").toArrow()


def _unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


if __name__ == "__main__":
    target = Path(sys.argv[1])
    try:
        write(target)
    except Exception as error:  # noqa: BLE001  # tests are slower without it, and that is all
        print(f"no archive of Java classes: {error}")
    if not target.exists():
        target.touch()
