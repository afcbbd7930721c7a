"""Processes that start fast: one fork server for each test process, with everything heavy imported before it forks.

A fork server keeps the modules with which it was started, so all tests use this one. Without it every process imports
conroi, pylance and pyarrow again, which takes a second of processor time: more than what most tests do in it.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext

import pytest


def fork_context() -> ForkServerContext:
    """The context of the fork server. Importing starts no threads, which would not survive a fork."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.support.preloaded"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # the server imports before it is told where tests are
        forkserver.ensure_running()
    return context
