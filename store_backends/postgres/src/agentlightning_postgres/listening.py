"""Hearing of what others have committed, while somebody waits for it."""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable, Collection
from typing import Final

import psycopg
from agentlightning.records import from_json
from agentlightning.store import Change
from agentlightning.store.watching import Changed, Watchers

from agentlightning_postgres.tables import CHANNEL

logger = logging.getLogger("agentlightning.store.postgres")

THREAD_NAME: Final = "agentlightning-postgres-listen"
_ALL: Final = 4096
_LINGER_S: Final = 10.0
_LOOK_AGAIN_S: Final = 0.1
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 2.0


class Listener:
    """Wakes watchers for what other openings of the store have committed.

    One thread with one connection, from the first watcher until a while after the last. When the
    connection breaks, everybody is woken and looks; and once more when there is a new one, because
    nobody has told of the changes in between.

    Args:
        connect: makes a connection.
        watchers: whom to wake.
        opening: the name of this opening, whose own changes its watchers know already.
    """

    def __init__(
        self, connect: Callable[[], psycopg.Connection], watchers: Watchers, opening: str
    ) -> None:
        self._connect = connect
        self._watchers = watchers
        self._opening = opening
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._heard_or_failed = threading.Event()
        self._stopped = threading.Event()
        self._bell, self._rope = socket.socketpair()
        self._bell.setblocking(False)
        self._rope.setblocking(False)
        self._again: set[Changed] = set()
        self._again_at = 0.0

    def ensure_listening(self) -> None:
        """Start the thread unless it runs; changes from now on are heard of, or everybody is woken."""
        with self._lock:
            if self._thread is None and not self._stopped.is_set():
                self._heard_or_failed.clear()
                self._thread = threading.Thread(target=self._listen, name=THREAD_NAME, daemon=True)
                self._thread.start()
        self._heard_or_failed.wait()

    def look_again(self, skipped: Collection[Changed]) -> None:
        """Wake those who wait for these changes in a moment, if anybody does."""
        with self._lock:
            if self._thread is None:
                return
            if not self._again:
                self._again_at = time.monotonic() + _LOOK_AGAIN_S
            self._again.update(skipped)
        self._ring()

    def stop(self) -> None:
        """End the thread and start no other."""
        self._stopped.set()
        self._ring()
        with self._lock:
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        self._rope.close()
        self._bell.close()

    def _ring(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):  # rung often enough, or stopped already
            self._rope.send(b"!")

    def _listen(self) -> None:
        pause = _FIRST_PAUSE_S
        is_first = True
        while not self._stopped.is_set():
            try:
                with contextlib.closing(self._connect()) as connection:
                    connection.execute(f"listen {CHANNEL}")
                    if not is_first:
                        self._watchers.notify_all()
                    self._heard_or_failed.set()
                    is_first, pause = False, _FIRST_PAUSE_S
                    self._pass_on(connection)
                    return
            except Exception as error:  # noqa: BLE001  (or all who wait would sleep on, unaware of it)
                is_news = pause == _FIRST_PAUSE_S
                logger.log(
                    logging.WARNING if is_news else logging.DEBUG,
                    "cannot hear of other processes' changes (%s); connecting anew, and until then "
                    "whoever waits looks every %g s",
                    " ".join(str(error).split()),
                    _LONGEST_PAUSE_S,
                )
                is_first = False
                self._heard_or_failed.set()
                self._watchers.notify_all()
                if self._leave():
                    return
            self._stopped.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
        self._heard_or_failed.set()

    def _pass_on(self, connection: psycopg.Connection) -> None:
        """Wake watchers for each notification, until nobody has watched for a while."""
        with selectors.DefaultSelector() as selector:
            selector.register(connection.fileno(), selectors.EVENT_READ)
            selector.register(self._bell, selectors.EVENT_READ)
            quiet_since: float | None = None
            while not self._stopped.is_set():
                selector.select(self._patience_s())
                self._watchers.notify(self._heard(connection) | self._due())
                now = time.monotonic()
                if len(self._watchers):
                    quiet_since = None
                elif quiet_since is None:
                    quiet_since = now
                elif now - quiet_since >= _LINGER_S and self._leave():
                    return

    def _heard(self, connection: psycopg.Connection) -> set[Changed]:
        heard = set()
        for notification in connection.notifies(timeout=0):
            opening, run_id, change = from_json(notification.payload, tuple[str, str, Change])
            if opening != self._opening:
                heard.add(Changed(run_id, change))
        return heard

    def _patience_s(self) -> float:
        with self._lock:
            return max(0.0, self._again_at - time.monotonic()) if self._again else _LINGER_S

    def _due(self) -> set[Changed]:
        """What it is time to look at again."""
        with contextlib.suppress(BlockingIOError):
            self._bell.recv(_ALL)
        with self._lock:
            if not self._again or time.monotonic() < self._again_at:
                return set()
            due, self._again = self._again, set()
            return due

    def _leave(self) -> bool:
        with self._lock:
            if len(self._watchers):
                return False
            self._thread = None
            return True
