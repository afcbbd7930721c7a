"""Tables made by older releases of pylance, each in a Python environment of its own.

    python -m tools.old_tables build FOLDER [VERSION …]     environments and tables of all kinds, below FOLDER
    python -m tools.old_tables fixtures FOLDER [VERSION …]  the small tables that the tests keep in tests/interop/old/
    python -m tools.old_tables evidence FOLDER [VERSION …]  every verb on every table, as the page of docs/evidence

The environments are made by uv from PyPI, once; what they have in common is shared. `tests/interop/test_old_tables.py`
runs every verb on such tables, ours against pylance's own on a copy.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

VERSIONS = ("0.20.0", "0.30.0", "0.39.0", "1.0.4", "7.1.0", "10.0.0", "12.0.0", "13.0.0")
KINDS = ("plain", "stable", "deleted", "fragments", "indexed", "described", "vectors", "nested", "blobs", "v1names")
SMALL_KINDS = ("plain", "stable", "fragments", "indexed")
"""Of these the tests keep some."""
FIXTURES = Path(__file__).parents[1] / "tests" / "interop" / "old"
_PINS = {"0.20.0": ("pyarrow<20", "numpy<2")}
"""What the oldest ones need, which do not say so themselves."""

MAKER = """
import inspect, sys
import lance, numpy as np, pyarrow as pa

root, kind = sys.argv[1], sys.argv[2]
known = inspect.signature(lance.write_dataset).parameters
stable = {n: True for n in ("enable_stable_row_ids", "enable_move_stable_row_ids") if n in known}

def rows(start, stop):
    return pa.table({"id": pa.array(range(start, stop), pa.int64()), "s": [f"s{i}" for i in range(start, stop)],
                     "n": pa.array([i % 3 if i % 4 else None for i in range(start, stop)], pa.int32())})

if kind == "plain":
    lance.write_dataset(rows(0, 20), root)
elif kind == "stable":
    lance.write_dataset(rows(0, 10), root, **stable)
    lance.write_dataset(rows(10, 20), root, mode="append", **stable)
    lance.dataset(root).delete("id = 3")
    lance.dataset(root).update({"s": "'new'"}, where="id = 4")
elif kind == "deleted":
    lance.write_dataset(rows(0, 20), root)
    lance.dataset(root).delete("id in (2, 5)")
    lance.dataset(root).delete("id = 7")
elif kind == "fragments":
    for start in range(0, 20, 5):
        lance.write_dataset(rows(start, start + 5), root, mode="append" if start else "create")
    lance.dataset(root).delete("id >= 5 and id < 10")
elif kind == "indexed":
    lance.write_dataset(rows(0, 10), root)
    lance.dataset(root).create_scalar_index("id", "BTREE")
    lance.dataset(root).create_scalar_index("n", "BITMAP")
    lance.dataset(root).create_scalar_index("s", "INVERTED")
    lance.write_dataset(rows(10, 20), root, mode="append")
elif kind == "described":
    lance.write_dataset(rows(0, 20).replace_schema_metadata({"owner": "gdpr"}), root)
    lance.dataset(root).add_columns({"m": "id * 2"})
    lance.dataset(root).drop_columns(["n"])
elif kind == "vectors":
    values = pa.array(np.arange(300 * 4, dtype=np.float32))
    table = rows(0, 300).append_column("v", pa.FixedSizeListArray.from_arrays(values, 4))
    lance.write_dataset(table, root)
    lance.dataset(root).create_index("v", "IVF_PQ", num_partitions=1, num_sub_vectors=2)
elif kind == "nested":
    table = rows(0, 20)
    table = table.append_column("st", pa.array([{"a": i, "b": [i, i + 1]} for i in range(20)]))
    table = table.append_column("l", pa.array([[str(i)] * (i % 3) if i % 5 else None for i in range(20)]))
    lance.write_dataset(table, root)
elif kind == "blobs":
    values = [b"x" * i for i in range(5)]
    field = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    try:
        lance.write_dataset(rows(0, 5).append_column(field, pa.array(values, pa.large_binary())), root)
    except OSError:  # from the second kind of blobs on
        lance.write_dataset(rows(0, 5).append_column("b", lance.blob_array(values)), root, data_storage_version="2.2")
elif kind == "v1names":
    more = {"enable_v2_manifest_paths": False} if "enable_v2_manifest_paths" in known else {}
    lance.write_dataset(rows(0, 20), root, **more)
"""


def python_of(folder: Path, version: str) -> Path:
    """The interpreter of the environment for this release; made if it is not there."""
    environment = folder / "environments" / version
    python = environment / "bin" / "python"
    if not (environment / "ready").exists():
        uv = Path(sys.executable).with_name("uv")
        pins = _PINS.get(version, ("pyarrow", "numpy"))
        _run([str(uv), "venv", "-q", "--clear", "--python", sys.executable, str(environment)])
        cache = ["--cache-dir", str(folder / "cache")]
        _run([str(uv), "pip", "install", "-q", *cache, "--python", str(python), f"pylance=={version}", *pins])
        (environment / "ready").touch()
    return python


def make(folder: Path, version: str, kind: str) -> Path | None:
    """A table of this kind, made by this release; None if it cannot make one."""
    root = folder / "tables" / version / f"{kind}.lance"
    if not root.exists():
        root.parent.mkdir(parents=True, exist_ok=True)
        python = python_of(folder, version)
        done = subprocess.run([str(python), "-c", MAKER, str(root), kind], capture_output=True, text=True, timeout=300)
        if done.returncode:
            print(f"{version} cannot make {kind}: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
            return None
    return root


def build(folder: Path, versions: Sequence[str] = VERSIONS) -> list[tuple[str, str, Path]]:
    """All tables, each with the release and the kind."""
    found = [(version, kind, make(folder, version, kind)) for version in versions for kind in KINDS]
    return [(version, kind, root) for version, kind, root in found if root is not None]


def fixtures(folder: Path, versions: Sequence[str] = VERSIONS) -> None:
    """The tables as one small archive for each release."""
    FIXTURES.mkdir(exist_ok=True)
    for version in versions:
        small = [(kind, root) for _, kind, root in build(folder, [version]) if kind in SMALL_KINDS]
        with tarfile.open(FIXTURES / f"{version}.tar.xz", "w:xz") as archive:
            for kind, root in small:
                archive.add(root, f"{kind}.lance", filter=_anonymous)


def evidence(folder: Path, versions: Sequence[str] = VERSIONS) -> None:
    """Every verb on every table, ours against pylance's on a copy; a table of what came out, in Markdown."""
    from tests.interop.old_verbs import VERBS, compared

    print("| release | tables |", " | ".join(VERBS), "|")
    print("|---|---|" + "---|" * len(VERBS))
    for version in versions:
        made = build(folder, [version])
        cells = [_summed([compared(root, verb) for _, _, root in made]) for verb in VERBS]
        print(f"| {version} | {len(made)} |", " | ".join(cells), "|", flush=True)


def _summed(answers: Sequence[str | None]) -> str:
    """How many gave pylance's rows, and how many were refused, by the type of the error."""
    told = [answer for answer in answers if answer is not None]
    same = told.count("same")
    others = [f"{told.count(each)} {each}" for each in sorted(set(told) - {"same"})]
    return ", ".join(([f"{same} same"] if same else []) + others) or "–"


def _anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    return info


def _run(command: Sequence[str]) -> None:
    subprocess.run(command, check=True, timeout=900)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["build", "fixtures", "evidence"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("versions", nargs="*", default=VERSIONS)
    given = parser.parse_args()
    if given.what == "build":
        for version, kind, root in build(given.folder, given.versions):
            print(version, kind, root)
    elif given.what == "fixtures":
        fixtures(given.folder, given.versions)
    else:
        evidence(given.folder, given.versions)


if __name__ == "__main__":
    main()
