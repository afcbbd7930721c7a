"""Run alone in a process, so that its peak memory is that of one engine: python -m benchmarks.memory ENGINE FOLDER."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa

APPENDS = 5


def conroi_work(table_folder: str, data: pa.Table) -> None:
    import conroi

    _print_peak()
    table = conroi.open_table(table_folder)
    for _ in range(APPENDS):
        table = table.append(data)
    table.count_rows()


def pylance_work(table_folder: str, data: pa.Table) -> None:
    import lance

    _print_peak()
    dataset = lance.dataset(table_folder)
    for _ in range(APPENDS):
        dataset = lance.write_dataset(data, dataset, mode="append")
    dataset.count_rows()


def deltalake_work(table_folder: str, data: pa.Table) -> None:
    from deltalake import DeltaTable, write_deltalake

    _print_peak()
    table = DeltaTable(table_folder)
    for _ in range(APPENDS):
        write_deltalake(table, data, mode="append")
    table.count()


WORK = {"conroi": conroi_work, "pylance": pylance_work, "deltalake": deltalake_work}


def _print_peak() -> None:
    """The peak of this program in MB; getrusage would also count what its parent was before it started this one."""
    status = Path("/proc/self/status").read_text("utf-8")
    print(int(status.split("VmHWM:")[1].split()[0]) / 1024)


if __name__ == "__main__":
    rows = pa.table({"id": range(100), "amount": [0.5] * 100, "name": ["row"] * 100})
    WORK[sys.argv[1]](f"{sys.argv[2]}/t", rows)
    _print_peak()
