"""Undoes what a program does to the process that the engine shares with it."""

import gc
import locale
import logging
import os
import random
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any


@contextmanager
def restore_process() -> Iterator[None]:
    """Puts back what a program may change of the process, where it has changed it.

    These are the working folder, variables, import paths, arguments, warnings, logging, hooks for
    exceptions and the interpreter's own settings; signal handlers belong to the main thread, and
    programs do not run there.
    """
    with ExitStack() as undo:
        undo.enter_context(warnings.catch_warnings())
        undo.callback(_restore_environ, dict(os.environ))
        undo.enter_context(_logging())
        for owner, name in _ATTRIBUTES:
            undo.callback(setattr, owner, name, getattr(owner, name))
        for items in (sys.path, sys.argv, sys.meta_path, sys.path_hooks):
            undo.callback(_fill, items, list(items))
        for read, write in _SETTINGS:
            undo.callback(_restore, read, write, read())
        yield


def _fill(items: list[Any], before: list[Any]) -> None:
    items[:] = before


def _umask() -> int:
    """The mask can be read only by setting it: meanwhile new files are the owner's alone."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


_ATTRIBUTES = (
    (sys, "path"),
    (sys, "argv"),
    (sys, "meta_path"),
    (sys, "path_hooks"),
    (sys, "excepthook"),
    (threading, "excepthook"),
)
_SETTINGS: tuple[tuple[Callable[[], Any], Callable[[Any], object]], ...] = (
    (os.getcwd, os.chdir),
    (_umask, os.umask),
    (lambda: locale.setlocale(locale.LC_ALL), lambda value: locale.setlocale(locale.LC_ALL, value)),
    (random.getstate, random.setstate),
    (socket.getdefaulttimeout, socket.setdefaulttimeout),
    (sys.getrecursionlimit, sys.setrecursionlimit),
    (gc.isenabled, lambda wanted: gc.enable() if wanted else gc.disable()),
    (lambda: logging.root.manager.disable, logging.disable),
    (logging.getLoggerClass, logging.setLoggerClass),
    (logging.getLogRecordFactory, logging.setLogRecordFactory),
)


def _restore(read: Callable[[], Any], write: Callable[[Any], object], before: Any) -> None:
    now = None
    with suppress(OSError):  # a working folder that the program removed
        now = read()
    with suppress(OSError):
        if now != before:
            write(before)


def _restore_environ(before: dict[str, str]) -> None:
    zone = os.environ.get("TZ")
    for name in [name for name in os.environ if name not in before]:
        del os.environ[name]
    for name, value in before.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
    if os.environ.get("TZ") != zone and hasattr(time, "tzset"):
        time.tzset()


@dataclass(frozen=True, slots=True)
class _LoggerState:
    level: int = logging.NOTSET
    propagate: bool = True
    disabled: bool = False
    handlers: tuple[logging.Handler, ...] = ()
    filters: tuple[Any, ...] = ()

    @classmethod
    def of(cls, logger: logging.Logger) -> "_LoggerState":
        handlers, filters = tuple(logger.handlers), tuple(logger.filters)
        return cls(logger.level, logger.propagate, logger.disabled, handlers, filters)

    @classmethod
    def of_new(cls, logger: logging.Logger) -> "_LoggerState":
        """A library's logger keeps what silences it: its module is not imported again."""
        silent = (h for h in logger.handlers if isinstance(h, logging.NullHandler))
        return cls(handlers=tuple(silent))

    def put(self, logger: logging.Logger) -> None:
        if _LoggerState.of(logger) != self:
            logger.setLevel(self.level)
            logger.propagate, logger.disabled = self.propagate, self.disabled
            logger.handlers[:], logger.filters[:] = self.handlers, self.filters


def _loggers() -> list[logging.Logger]:
    named = list(logging.root.manager.loggerDict.values())
    return [logging.root, *(entry for entry in named if isinstance(entry, logging.Logger))]


@contextmanager
def _logging() -> Iterator[None]:
    before = {logger: _LoggerState.of(logger) for logger in _loggers()}
    try:
        yield
    finally:
        for logger in _loggers():
            before.get(logger, _LoggerState.of_new(logger)).put(logger)
