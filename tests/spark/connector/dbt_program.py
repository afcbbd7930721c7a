"""dbt in a process of its own, with the packages of its own environment: one command for each line of its input.

A line is a JSON list of arguments of the command `dbt`. The answer is a line that begins with ANSWER: whether the
command succeeded, and the status of each node by its name.
"""

from __future__ import annotations

import json
import sys
from typing import Any

ANSWER = "ANSWER "


def main() -> None:
    """Serve until the input ends. One process runs all commands, so Spark starts once."""
    from dbt.cli.main import dbtRunner  # pyright: ignore[reportMissingImports]

    for line in sys.stdin:
        done: Any = dbtRunner().invoke(json.loads(line))
        nodes = {each.node.name: {"status": str(each.status), "message": each.message} for each in done.result or ()}
        print(
            f"\n{ANSWER}{json.dumps({'success': done.success, 'error': repr(done.exception), 'nodes': nodes})}",
            flush=True,
        )


if __name__ == "__main__":
    main()
