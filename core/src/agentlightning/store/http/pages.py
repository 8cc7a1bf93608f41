"""Reading page by page, with the next page on its way while one is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from agentlightning.store.http.messages import Spans


def pages(first: Spans, ask: Callable[[str], Spans]) -> Iterator[Spans]:
    """``first`` and the pages after it; no more than one is asked for before it is wanted.

    Args:
        first: the first page.
        ask: gives the page that a cursor stands for.
    """
    if first.cursor is None:  # as nearly always: no thread for it
        yield first
        return
    page = first
    asking = ThreadPoolExecutor(1, "agentlightning-pages")
    try:
        while page.cursor is not None:
            coming = asking.submit(ask, page.cursor)
            yield page
            page = coming.result()
        yield page
    finally:  # perhaps in the middle: whoever stops reading does not wait for the page on its way
        asking.shutdown(wait=False, cancel_futures=True)
