"""Processes that start fast, for tests that kill some of them."""

from __future__ import annotations

import multiprocessing
import os
import sys
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext

import pytest

_PRELOAD = ["conroi", "conroi.testing", "lance", "lance.file", "obstore.store", "psycopg", "pyarrow.compute"]


def context(module: str) -> ForkServerContext:
    """What they need is imported once, with the module that has their work; importing starts no threads yet."""
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload([*_PRELOAD, module])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # the server imports before it is told where tests are
        forkserver.ensure_running()
    return made
