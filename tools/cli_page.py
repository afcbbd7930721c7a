"""The parts of docs/cli.md that are made: the list of verbs, and a first session as the command line really answers."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import typer

from conroi.cli import main
from conroi.cli.commands import app

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"

FILES = {
    "orders.csv": "id,day,amount\n1,Mon,5.0\n2,Mon,7.5\n3,Tue,2.0\n",
    "changes.jsonl": '{"id": 3, "day": "Tue", "amount": 2.5}\n{"id": 4, "day": "Wed", "amount": 9.0}\n',
    "customers.json": (
        '[\n  {"id": 1, "name": "Ada", "since": "1843-10-01", "scores": [1.5, 2]},\n'
        '  {"id": 2, "name": "Grace", "since": "1952-05-02", "scores": []}\n]\n'
    ),
    "late.csv": "id,day,amount\n5,Mon,1.5\n",
    "nightly.toml": (
        'message = "nightly"\n'
        'once = "night 7"              # a second time nothing happens\n\n'
        "[[table]]\n"
        'name = "orders"\n'
        'files = "changes.jsonl"\n'
        'mode = "merge"\n'
        'on = "id"\n\n'
        "[[table]]\n"
        'name = "sales.late"           # the namespace is made with it\n'
        'files = ["late*.csv"]\n'
        "create = true\n"
        'key = "id"\n'
    ),
}
SESSIONS = {
    "first session": """\
cat orders.csv
conroi init lake
conroi load lake/orders orders.csv --create --key id -m "first orders"
conroi head lake/orders
conroi load lake/orders changes.jsonl --mode merge --on id --author ada -m "Tuesday was wrong"
conroi sql lake "SELECT day, sum(amount) AS total FROM orders GROUP BY day ORDER BY day"
conroi log lake
conroi diff lake 2 3
conroi show lake/orders
conroi count lake@2/orders
conroi tag create lake tuesday
conroi restore lake/orders 1 -m "no, it was right"
conroi head lake/nothing""",
    "tables": """\
conroi create lake/customers --schema "id int64 key, name string not null, since date, scores list<double>"
conroi schema lake/customers
cat customers.json
conroi load lake/customers customers.json --author ada
conroi update lake/customers --set "name='Grace Hopper'" --where "id = 2"
conroi update lake/customers --set "name='Grace Hopper'" --where "id = 2" --yes -m "her whole name"
conroi delete lake/customers --where "since < date '1900-01-01'" --yes
conroi diff lake/customers 1 4
conroi copy lake/customers customers_backup
conroi rename lake/customers_backup archive.customers
conroi drop lake/archive.customers
conroi drop lake/archive.customers --yes""",
    "branches": """\
conroi branch create lake dev
conroi load lake@dev/orders late.csv -m "late orders"
conroi load lake/orders changes.jsonl --mode merge --on id -m "the changes again"
conroi merge lake dev --dry-run
conroi merge lake dev
conroi log lake --graph""",
    "plan": """\
cat nightly.toml
conroi load lake --plan nightly.toml
conroi load lake --plan nightly.toml""",
    "upkeep": """\
conroi compact lake
conroi compact lake --yes
conroi expire lake --older-than 30d
conroi doctor lake | head -1
conroi explain-conflict lake/orders --mine delete --since 5""",
}


def page() -> str:
    """The page with its made parts made again; what stands between them is written by hand."""
    text = PAGE.read_text("utf-8")
    parts = {"verbs": _verbs(), **dict(_sessions())}
    for name, made in parts.items():
        pattern = re.compile(rf"(<!-- made: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        assert pattern.search(text), f"{PAGE.name} has no place for {name}"
        text = pattern.sub(lambda found, made=made: f"{found[1]}{made}{found[2]}", text)
    return text


def _verbs() -> str:
    lines = ["| verb | what it does |", "|---|---|"]
    root: Any = typer.main.get_command(app)
    for name, command in root.commands.items():
        inner = getattr(command, "commands", None)
        words = f"{name} {'/'.join(inner)}" if inner else name
        lines.append(f"| `{words}` | {command.get_short_help_str(200)} |")
    return "\n".join([*lines, ""])


def _sessions() -> Iterator[tuple[str, str]]:
    """Each session in the same folder, one after the other."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), patch.dict(os.environ):
        for name in [name for name in os.environ if name.startswith("CONROI_")]:
            del os.environ[name]
        os.environ["COLUMNS"] = "80"
        for name, content in FILES.items():
            Path(name).write_text(content, "utf-8")
        for name, commands in SESSIONS.items():
            shown = "\n".join(f"$ {command}\n{_answer(command)}".rstrip() for command in commands.splitlines())
            # The same on every machine and at every time.
            stable = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", "2026-11-15 09:00:00Z", shown)
            yield name, f"```console\n{stable.replace(os.path.realpath(folder), '~').replace(folder, '~')}\n```\n"


def _answer(command: str) -> str:
    line, _, lines = command.partition(" | head -")
    words = shlex.split(line)
    if words[0] == "cat":
        return Path(words[1]).read_text("utf-8")
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main(words[1:])
    text = said.getvalue()
    text = "\n".join(text.splitlines()[: int(lines)]) if lines else text
    return text if code == 0 else f"{text.rstrip()}\n$ echo $?\n{code}\n"
