"""Waking whoever watches a store behind a server, by requests that the server holds back."""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from agentlightning.errors import StoreClosed, StoreUnavailable
from agentlightning.records import to_json
from agentlightning.store.http import messages as m
from agentlightning.store.http.operations import CHANGES, MAX_WAIT_S
from agentlightning.store.http.refusals import answer
from agentlightning.store.http.transport import Transport
from agentlightning.store.types import Change
from agentlightning.store.watching import Watchers

logger = logging.getLogger("agentlightning.store")

_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 5.0
_JOIN_S: Final = 1.0

_Topic = tuple[str | None, Change | None]


class Feed:
    """The watchers of one client, by what they watch.

    The server says only *that* something changed, so each pair of a run and a kind of change is asked
    about apart: by one thread, however many watch it, and for as long as somebody does.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._lock = threading.Lock()
        self._topics: dict[_Topic, _Listener] = {}

    def watch(
        self, run_id: str | None, wake: Callable[[], None], on: Change | None
    ) -> Callable[[], None]:
        """See :meth:`agentlightning.store.Store.watch`."""
        self._transport.check_usable()
        topic = (run_id, on)
        with self._lock:
            listener = self._topics.get(topic)
            if listener is None:
                listener = self._topics[topic] = _Listener(self._transport, topic)
            remove = listener.watchers.add(run_id, on, wake)

        def leave() -> None:
            with self._lock:
                remove()
                if listener.watchers or self._topics.get(topic) is not listener:
                    return
                del self._topics[topic]
            listener.stop()

        try:
            listener.ensure_listening()
        except BaseException:
            leave()
            raise
        return leave

    def close(self) -> None:
        """Stop listening, and wake everybody: their next look says that the store was closed."""
        with self._lock:
            listeners, self._topics = list(self._topics.values()), {}
        for listener in listeners:
            listener.stop()
        for listener in listeners:
            listener.join(_JOIN_S)
            listener.watchers.notify_all()


class _Listener:
    """One thread that asks again and again whether something of one kind has changed."""

    def __init__(self, transport: Transport, topic: _Topic) -> None:
        self.watchers = Watchers()
        self._transport = transport
        self._run_id, self._on = topic
        self._line = transport.line()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self._since: str | None = None
        self._missed = False

    def ensure_listening(self) -> None:
        """Return when no change from now on goes unnoticed.

        While the server is away nothing is known of what changes. So the watchers are woken as soon as
        it is back, whatever happened, and that is as good.
        """
        with self._starting:
            if self._thread is not None:
                return
            try:
                self._since = self._ask(0.0).now
            except StoreClosed:
                raise
            except StoreUnavailable as error:
                logger.debug("watching begins when the store is back: %s", error)
                self._missed = True
            thread = threading.Thread(target=self._listen, name="agentlightning-watch", daemon=True)
            contextvars.Context().run(thread.start)  # it outlives the rollout that starts it
            self._thread = thread

    def stop(self) -> None:
        """End the request that is held back, and with it the thread."""
        self._stopped.set()
        self._line.hang_up()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread, unless it is the one that asks for it."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _listen(self) -> None:
        failures = 0
        while not self._stopped.is_set():
            began = time.monotonic()
            try:
                told = self._ask(0.0 if self._missed else MAX_WAIT_S)
            except Exception as error:  # noqa: BLE001 - logged; a dead thread would let its waiters sleep
                failures += 1
                self._fail(error, failures)
                continue
            failures = 0
            self._since = told.now
            if told.changed or self._missed:
                self._missed = False
                self.watchers.notify_all()
            elif time.monotonic() - began < _FIRST_PAUSE_S:  # a server about to stop holds nothing back
                self._stopped.wait(_FIRST_PAUSE_S)

    def _fail(self, error: Exception, failures: int) -> None:
        """Wake the watchers, whose next look tells them what is wrong, and wait a little."""
        if self._stopped.is_set():
            return
        self._missed = True
        once_more = failures == 1  # as when a proxy ends connections that are silent
        logger.log(
            logging.DEBUG if once_more else logging.WARNING,
            "a watched store does not say what changes, asking again: %s",
            error,
        )
        self.watchers.notify_all()
        self._stopped.wait(min(_FIRST_PAUSE_S * 2 ** (failures - 1), _LONGEST_PAUSE_S))

    def _ask(self, wait_s: float) -> m.Changed:
        request = m.Changes(run_id=self._run_id, on=self._on, since=self._since, wait_s=wait_s)
        reply = self._transport.send(
            CHANGES.path, to_json(request), wait_s=wait_s, line=self._line, once=True
        )
        return answer(reply.status, reply.body, CHANGES.reply, self._transport.address.url)
