"""One writer of the mixed soak, in an interpreter with a pylance of its own.

    python -m tests.ring.writer '{"root": …, "number": 0, "seed": 1, "seconds": 20, "is_pylance": true}' START

It says `ready`, waits until the file START is there, writes, and prints its books as one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import lance

from tests.soak.writers import Writer, write


def main(job: str, start: str) -> None:
    def meet() -> None:
        print("ready", lance.__version__, flush=True)
        while not Path(start).exists():
            time.sleep(0.05)

    print(json.dumps(vars(write(Writer(**json.loads(job)), meet))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
