"""A process that uses conroi, forks, and uses it again in the child. Run as a program: prints what the child did.

The child is given a few seconds: what is not done then hangs.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable

import lance_namespace

import conroi
from conroi.namespace import ConroiNamespace
from conroi.storage.objects import Objects
from conroi.testing import FaultyObjects, Request, call_before, connect_through
from tests.support.instruments import CloudLike

CHILD_S = 60.0


def in_child(work: Callable[[], object]) -> str:
    """What the work gave, or its error, in a forked child; "hangs" if it does not end."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = repr(work())
        except BaseException as error:  # noqa: BLE001  # it is told
            said = f"{type(error).__name__}: {error}"
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    ready, _, _ = select.select([reading], [], [], CHILD_S)
    answer = os.read(reading, 1 << 16).decode() if ready else "hangs"
    if not ready:
        os.kill(child, 9)
    _, status = os.waitpid(child, 0)
    return answer or f"the child died with status {os.waitstatus_to_exitcode(status)}"


def appended(lake: conroi.Lake, number: int) -> int:
    lake["t"].append([{"n": number}])
    return lake["t"].count_rows()


def made(lake: conroi.Lake) -> conroi.Lake:
    lake.create_table("t", [{"n": 0}])
    return lake


def a_table(uri: str) -> list[str]:
    table = conroi.create_table(f"{uri}/t", [{"n": 0}]).append([{"n": 1}])
    return [in_child(lambda: table.append([{"n": 2}]).count_rows()), str(table.append([{"n": 3}]).count_rows())]


def a_lake(uri: str) -> list[str]:
    lake = made(conroi.connect(uri))
    appended(lake, 1)
    return [in_child(lambda: appended(lake, 2)), str(appended(lake, 3))]


def a_lake_first_used_in_the_child(uri: str) -> list[str]:
    """The parent has loaded conroi, and connects only after the fork."""
    program = "import conroi, sys; conroi.connect(sys.argv[1]).create_table('t', [{'n': 0}])"
    subprocess.run([sys.executable, "-c", program, uri], check=True)
    return [in_child(lambda: appended(conroi.connect(uri), 1)), str(appended(conroi.connect(uri), 2))]


def a_lake_far_away(uri: str) -> list[str]:
    lake = made(connect_through(uri, CloudLike))
    appended(lake, 1)
    return [in_child(lambda: appended(lake, 2)), str(appended(lake, 3))]


def a_lake_in_sqlite(uri: str) -> list[str]:
    lake = made(conroi.connect(uri, store=f"sqlite:///{uri}.db"))
    appended(lake, 1)
    return [in_child(lambda: appended(lake, 2)), str(appended(lake, 3))]


def while_it_finalizes(uri: str) -> list[str]:
    """A final name is being put, far away, while the process forks: the thread that does it is not in the child."""
    started = threading.Event()

    def slowly(_request: Request) -> None:
        started.set()
        time.sleep(1.0)

    def wrap(objects: Objects) -> Objects:
        slow = call_before(slowly, "put_if_absent", "_versions/*.manifest", skip=1)
        return FaultyObjects(CloudLike(objects), [slow]) if objects.root.endswith("t.lance") else CloudLike(objects)

    lake = made(connect_through(uri, wrap))
    appended(lake, 1)
    started.wait(5.0)
    return [in_child(lambda: appended(lake, 2)), str(appended(lake, 3))]


def while_a_lock_is_held(uri: str) -> list[str]:
    """Another thread of the parent is in the middle of a look at the lake."""
    lake = made(conroi.connect(uri))
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lake._catalog._lock, lake._catalog.queue.turn():
            held.set()
            done.wait(CHILD_S)

    threading.Thread(target=hold, daemon=True).start()
    assert held.wait(5.0), "the other thread did not get the locks"
    answer = in_child(lambda: appended(lake, 1))
    done.set()
    return [answer, str(appended(lake, 2))]


def a_namespace(uri: str) -> list[str]:
    made(conroi.connect(uri))
    namespace = ConroiNamespace(root=uri)

    def listed() -> object:
        return sorted(namespace.list_tables(lance_namespace.ListTablesRequest(id=[])).tables)

    before = repr(listed())
    return [in_child(listed), before]


def an_object_store(uri: str) -> list[str]:
    options = json.loads(os.environ["STORAGE_OPTIONS"])
    lake = made(conroi.connect(uri, storage_options=options))
    appended(lake, 1)
    return [in_child(lambda: appended(lake, 2)), str(appended(lake, 3))]


def an_object_store_first_used_in_the_child(uri: str) -> list[str]:
    options = json.loads(os.environ["STORAGE_OPTIONS"])
    return [in_child(lambda: appended(made(conroi.connect(uri, storage_options=options)), 1)), ""]


def the_scratch_folder(uri: str) -> list[str]:
    """A child that ends in the ordinary way takes only its own temporary files with it."""
    lake = made(connect_through(uri, CloudLike))
    child = os.fork()
    if child == 0:
        sys.exit(0)
    os.waitpid(child, 0)
    return [repr(appended(lake, 1)), ""]


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # lance warns at every fork
    uri, *scenes = sys.argv[1:]
    print(json.dumps([globals()[scene](f"{uri}-{scene}") for scene in scenes]))
