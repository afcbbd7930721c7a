"""Everything heavy that the processes of tests need; the fork server imports this module before it forks."""

from __future__ import annotations

import boto3 as boto3
import lance.file
import obstore.store as obstore_store
import psycopg as psycopg
import pyarrow.compute as pc

import conroi
import conroi.testing
from conroi.merge.builder import MergeBuilder
from conroi.namespace.namespace import ConroiNamespace
from tests.support import instruments

__all__ = [
    "ConroiNamespace", "MergeBuilder", "boto3", "conroi", "instruments", "lance", "obstore_store", "pc", "psycopg",
]  # fmt: skip

for _name in conroi.__all__:  # public names are imported when they are first asked for
    getattr(conroi, _name)
