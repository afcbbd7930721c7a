"""The project can be cloned anywhere: no file says on which machine it was made, or from which registry."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.source import REPOSITORY

HOMES = re.compile(r"(?<![\w.})\]/-])/(?:home|root|Users|work|opt|mnt|var/folders)/[\w.]")
TEMPORARY = re.compile(r"(?<![\w.})\]/-])/(?:private/)?tmp/[\w.]")
REGISTRIES = re.compile(
    r"pypi\.org|pythonhosted\.org|registry\.npmjs\.org|repo\.maven|(?<![\w-])--(?:extra-)?index-url|(?<![\w-])--find-links"
)
MADE_HERE = re.compile(r"/\.|/__pycache__/|/bench-out/")
MACHINE = (HOMES, TEMPORARY, REGISTRIES)


def tracked_files() -> list[Path]:
    """What git has or would take in; outside of a checkout, whatever is there."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        files = [REPOSITORY / name for name in listed.stdout.splitlines()]
    else:
        files = [
            f for f in REPOSITORY.rglob("*") if not any(p.startswith(".") for p in f.relative_to(REPOSITORY).parts)
        ]
    return [file for file in files if file.is_file() and file.resolve() != Path(__file__).resolve()]


def machine_names(text: str) -> list[str]:
    """The machine paths and registry addresses in a text."""
    own_folder = re.compile(re.escape(str(REPOSITORY)) + r"(?![\w-])")
    return [found[0] for pattern in (*MACHINE, own_folder) for found in pattern.finditer(text)]


def test_no_file_names_a_machine_path_or_a_registry():
    files = tracked_files()
    assert REPOSITORY / "requirements.lock" in files
    found = {
        str(file.relative_to(REPOSITORY)): names
        for file in files
        if (names := machine_names(file.read_bytes().decode("utf-8", "replace")))
    }
    assert not found


@pytest.mark.parametrize(
    "text",
    [
        "open('/home/ada/table')",
        "see /root/notes.txt",
        "PYTHONPATH=/work/thing",
        "path = '/tmp/scratch'",
        "--index-url https://example.com/simple",
        "--find-links wheels",
        "https://pypi.org/simple",
        f"cd {REPOSITORY} && make",
    ],
)
def test_a_machine_path_or_registry_is_caught(text: str):
    assert machine_names(text)


@pytest.mark.parametrize("text", ["tests/work/plan", "s3://bucket/home/x", "https://example.com/root/x", "./tmp/x"])
def test_paths_inside_the_project_or_a_bucket_are_fine(text: str):
    assert not machine_names(text)
