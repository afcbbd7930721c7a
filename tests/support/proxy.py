"""A line between a client and a server that counts round trips, adds latency, loses answers, or goes down."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Generator
from typing import Literal

Mood = Literal["well", "down", "silent", "losing one answer", "cutting one request"]


class Proxy:
    """Set `mood` and `latency_s` at any time; `round_trips` counts requests, whatever their number of packets."""

    def __init__(self, target_port: int) -> None:
        self.mood: Mood = "well"
        self.latency_s = 0.0
        self.round_trips = 0
        self.lines: list[str] = []
        """The first line of each request, if it is one of HTTP: `GET /bucket/key HTTP/1.1`."""
        self.connections = 0
        self._target_port = target_port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._lines: list[socket.socket] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    @contextlib.contextmanager
    def counting(self) -> Generator[list[int]]:
        """The round trips made inside, as the only element of a list when it is left."""
        found: list[int] = []
        before = self.round_trips
        yield found
        found.append(self.round_trips - before)

    def close(self) -> None:
        self._listening.close()
        self.cut()

    def cut(self) -> None:
        """End all connections."""
        with self._lock:
            lines, self._lines = self._lines, []
        for line in lines:
            _end(line)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            if self.mood == "down":
                client.close()
                continue
            server = socket.create_connection(("127.0.0.1", self._target_port))
            for line in (client, server):
                line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self.connections += 1
                self._lines += [client, server]
            connection = _Connection(self, client, server)
            threading.Thread(target=connection.carry_up, daemon=True).start()
            threading.Thread(target=connection.carry_down, daemon=True).start()

    def take_fault(self, mood: Mood) -> bool:
        """Whether this request is the one that the fault is for."""
        with self._lock:
            if self.mood != mood:
                return False
            self.mood = "well"
            return True


class _Connection:
    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._is_answered = True
        self._is_losing = False

    def carry_up(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._client.recv(1 << 16):
                if self._is_answered:  # the first packet of a request
                    self._is_answered = False
                    self._proxy.round_trips += 1
                    self._proxy.lines.append(data.partition(b"\r\n")[0].decode("latin-1"))
                    time.sleep(self._proxy.latency_s)
                    if self._proxy.take_fault("cutting one request") or self._proxy.mood == "down":
                        break
                    self._is_losing = self._proxy.take_fault("losing one answer")
                self._server.sendall(data)
        self._end()

    def carry_down(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._server.recv(1 << 16):
                if self._is_losing:
                    break
                while self._proxy.mood == "silent":
                    time.sleep(0.01)
                self._is_answered = True
                self._client.sendall(data)
        self._end()

    def _end(self) -> None:
        _end(self._client)
        _end(self._server)


def _end(line: socket.socket) -> None:
    with contextlib.suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)
    line.close()


@contextlib.contextmanager
def proxy_to(port: int) -> Generator[Proxy]:
    """A proxy to a port of this machine."""
    proxy = Proxy(port)
    try:
        yield proxy
    finally:
        proxy.mood = "well"  # no client may be left waiting
        proxy.close()
