"""The external manifest stores that one suite of tests runs over."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.databases import dynamodb_address, sqlite_address

KINDS = ("sqlite", "postgres", "dynamodb")


def new_address(kind: str, request: pytest.FixtureRequest) -> str:
    """The address of an empty store; what it needs to run is running.

    The DynamoDB one is not quite empty: making a table takes long, and tables at different paths do not meet in it.
    """
    if kind == "sqlite":
        folder: Path = request.getfixturevalue("tmp_path")
        return sqlite_address(folder)
    if kind == "postgres":
        return request.getfixturevalue("postgres").new_address()
    assert kind == "dynamodb", kind
    request.getfixturevalue("aws")
    return dynamodb_address(request.getfixturevalue("moto").endpoint, "shared")


def empty_address(kind: str, request: pytest.FixtureRequest) -> str:
    """The address of a store with nothing in it at all."""
    if kind != "dynamodb":
        return new_address(kind, request)
    request.getfixturevalue("aws")
    return dynamodb_address(request.getfixturevalue("moto").endpoint)
