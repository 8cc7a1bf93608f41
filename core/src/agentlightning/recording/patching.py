"""Replacing a method of somebody else's class, and putting the exact original back."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Final, TypeAlias

Around: TypeAlias = Callable[..., Any]
"""Called as ``around(original, *args, **kwargs)``; a coroutine function for coroutine methods."""


class Patch:
    """One patched method.

    Removing restores the original object, unless somebody put a wrapper on top meanwhile: theirs
    stays, and ours beneath it only passes calls on until the patch is applied again.
    """

    def __init__(self, owner: type, name: str, around: Around) -> None:
        self._owner: Final = owner
        self._name: Final = name
        self._around: Final = around
        self._original: Any = None
        self._wrapper: Any = None
        self._active = False

    def apply(self) -> None:
        """Patch; harmless when repeated."""
        self._active = True
        present = vars(self._owner)[self._name]
        if self._wrapper is not None and present is not self._original:
            return  # ours is still there, beneath somebody else's wrapper
        self._original = present
        self._wrapper = self._wrapped(present)
        setattr(self._owner, self._name, self._wrapper)

    def remove(self) -> None:
        """Undo :meth:`apply`; harmless when repeated."""
        self._active = False
        if self._wrapper is not None and vars(self._owner)[self._name] is self._wrapper:
            setattr(self._owner, self._name, self._original)
            self._wrapper = None

    def _wrapped(self, original: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(original):

            @functools.wraps(original)
            async def coroutine(*args: Any, **kwargs: Any) -> Any:
                if not self._active:
                    return await original(*args, **kwargs)
                return await self._around(original, *args, **kwargs)

            return coroutine

        @functools.wraps(original)
        def plain(*args: Any, **kwargs: Any) -> Any:
            if not self._active:
                return original(*args, **kwargs)
            return self._around(original, *args, **kwargs)

        return plain
