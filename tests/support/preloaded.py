"""Everything heavy that the processes of tests need; the fork server imports this module before it forks."""

from __future__ import annotations

import gc
import importlib

import conroi

MODULES = (
    "boto3", "lance.file", "obstore.store", "psycopg", "pyarrow.compute", "conroi.merge.builder",
    "conroi.namespace", "conroi.testing", "tests.support.instruments",
)  # fmt: skip

for _module in MODULES:
    importlib.import_module(_module)
for _name in dir(conroi):  # public names are imported when they are first asked for
    getattr(conroi, _name)

# What is loaded stays; a collection of garbage in a forked process would look at it and copy every page of it.
gc.collect()
gc.freeze()
