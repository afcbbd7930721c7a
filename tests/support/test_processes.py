"""The fork server of the tests: its processes start with everything heavy imported."""

from __future__ import annotations

import sys
from multiprocessing.queues import Queue

from tests.support.processes import fork_context


def tell(answers: Queue[set[str]]) -> None:
    answers.put(set(sys.modules))


def test_a_process_starts_with_everything_heavy_imported() -> None:
    context = fork_context()
    answers: Queue[set[str]] = context.Queue()
    process = context.Process(target=tell, args=(answers,))
    process.start()
    found = answers.get(timeout=120)
    process.join(60)
    assert {"boto3", "conroi.lake", "conroi.merge.request", "conroi.testing", "lance.file", "psycopg"} <= found
