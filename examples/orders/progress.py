"""How far it is: a picture that moves on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from .events import Event, What
from .timeline import Outcome, Recorder


class Progress:
    """Hears every event, records it, and shows what matters."""

    def __init__(self, console: Console, recorder: Recorder, steps: int) -> None:
        self._console = console
        self._recorder = recorder
        self._steps = steps
        self._done = 0
        self._now: dict[str, tuple[str, float]] = {}
        self._tenth = 0
        # The display asks us anew for each picture, so clocks go on while nothing is heard.
        self._live = Live(get_renderable=self._picture, console=console, refresh_per_second=4, transient=True)

    def shown(self) -> AbstractContextManager[object]:
        """Show it while this is open."""
        return self._live if self._console.is_terminal else nullcontext()

    def hear(self, event: Event) -> None:
        """Record an event and show it."""
        self._recorder.hear(event)
        self._done += event.what is What.DONE
        if event.what in (What.STARTING, What.READY, What.BEGIN, What.KILLED, What.ENDED):
            doing = event.step or {What.STARTING: "starting", What.READY: "waiting"}.get(event.what, event.what.value)
            self._now[event.who] = doing, event.at
        elif event.what in (What.DONE, What.REFUSED):
            self._now[event.who] = "waiting", event.at
        for line in self._lines(event):
            self._console.print(Text(f"{self._recorder.seconds(event):6.1f} s  {line}"), soft_wrap=True)

    def _lines(self, event: Event) -> list[str]:
        """What is worth a line that stays."""
        lines = [f"{event.who} found: {problem}" for problem in event.problems]
        if event.what is What.KILLED:
            lines.append(f"{event.who} was killed with signal 9 at {event.step!r} ({event.note}), and is started again")
        elif event.was_done_before:
            lines.append(f"{event.who} found that {event.step!r} was published before its worker was killed")
        elif event.what is What.READY and not self._console.is_terminal:
            lines.append(f"{event.who} is ready")
        elif event.what is What.REFUSED:
            lines.append(f"{event.who}: {event.step!r} was refused and will be done later ({event.note})")
        if self._done * 10 // self._steps > self._tenth and not self._console.is_terminal:
            self._tenth = self._done * 10 // self._steps
            lines.append(f"{self._done} of {self._steps} transactions; {self._conflicts()}; {self._audits()}")
        return lines

    def _conflicts(self) -> str:
        timeline = self._recorder.timeline
        retried, refused = timeline.count(Outcome.RETRIED), timeline.count(Outcome.REFUSED)
        return f"{timeline.rebased} rebased, {retried} retried, {refused} refused"

    def _audits(self) -> str:
        timeline = self._recorder.timeline
        return f"{len(timeline.audits)} audits, {len(timeline.problems)} problems"

    def _picture(self) -> RenderableType:
        bar = Table.grid(padding=(0, 2))
        bar.add_row(ProgressBar(self._steps, self._done, width=40), f"{self._done} of {self._steps} transactions")
        now = Table.grid(padding=(0, 2))
        for name, (doing, since) in self._now.items():
            if name.startswith("worker"):
                now.add_row(name, doing, f"{time.time() - since:.0f} s")
        audits = self._recorder.timeline.audits
        rows = "   ".join(f"{name} {count:,}" for name, count in audits[-1].rows.items()) if audits else ""
        return Group(bar, now, Text(f"{self._conflicts()}   {self._audits()}"), Text(rows, style="dim"))
