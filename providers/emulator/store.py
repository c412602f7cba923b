"""What the emulator remembers: objects, settings and the request log, in SQLite.

The platforms' rooms and the admin API use it; it knows no platform. Bodies are JSON texts whose
shape belongs to the caller.
"""

import hashlib
import hmac
import secrets
import sqlite3
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

_VERSION = 1
_LOG_LIMIT = 100_000
_SCHEMA = """
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS objects (
    seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, id TEXT NOT NULL, gone_at REAL,
    body TEXT NOT NULL, UNIQUE (kind, id)
);
CREATE INDEX IF NOT EXISTS objects_gone ON objects (gone_at) WHERE gone_at IS NOT NULL;
CREATE TABLE IF NOT EXISTS log (seq INTEGER PRIMARY KEY, body TEXT NOT NULL);
"""


class StoreError(Exception):
    """The store's file cannot be used; the message says why and what to do."""


class Store:
    """State in memory (`path` None) or in a SQLite file that outlives the process.

    Safe for many threads of one process and for several processes on one file. `seed` makes ids
    and tokens repeatable; it counts only when the store is new. Raises `StoreError` when the file
    is not a store of this version.
    """

    def __init__(self, path: Path | None, *, seed: str | None = None) -> None:
        self._lock = threading.RLock()
        self._depth = 0
        try:
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
            # One connection behind one lock: within a process nothing can be "locked".
            self._db = sqlite3.connect(
                ":memory:" if path is None else path,
                timeout=30,
                isolation_level=None,
                check_same_thread=False,
            )
        except (OSError, sqlite3.OperationalError) as error:
            raise StoreError(
                f"cannot open {path} as the emulator's store ({error}): use another file"
            ) from error
        try:
            self._prepare(path, seed)
        except BaseException:
            self._db.close()
            raise

    def _prepare(self, path: Path | None, seed: str | None) -> None:
        try:
            self._db.execute("PRAGMA journal_mode = WAL")
            # Safe against a killed process; only a power cut may lose the last writes.
            self._db.execute("PRAGMA synchronous = NORMAL")
            with self.transaction():
                (version,) = self._db.execute("PRAGMA user_version").fetchone()
                if version not in {0, _VERSION}:
                    raise StoreError(
                        f"{path} was written by another version of the emulator "
                        f"(format {version}, this one reads {_VERSION}): use another file"
                    )
                for statement in _SCHEMA.split(";"):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version = {_VERSION}")
                if self.setting("seed") is None:
                    self.set("seed", secrets.token_hex(16) if seed is None else seed)
                self._seed = str(self.setting("seed"))
        except sqlite3.DatabaseError as error:
            raise StoreError(
                f"cannot use {path} as the emulator's store ({error}): use another file"
            ) from error

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing, and alone; may be nested. An exception undoes the outermost one."""
        with self._lock:
            if self._depth == 0:
                self._db.execute("BEGIN IMMEDIATE")
            self._depth += 1
            try:
                yield
            except BaseException:
                if self._depth == 1:
                    self._db.execute("ROLLBACK")
                raise
            else:
                if self._depth == 1:
                    self._db.execute("COMMIT")
            finally:
                self._depth -= 1

    # Settings: the clock's time, the seed, the counter of ids.

    def setting(self, name: str) -> str | float | None:
        row = self._rows("SELECT value FROM settings WHERE name = ?", name)
        return row[0][0] if row else None

    def set(self, name: str, value: str | float) -> None:
        self._rows("INSERT OR REPLACE INTO settings VALUES (?, ?)", name, value)

    # Chance.

    @property
    def identity(self) -> str:
        """The identity of this data: whoever serves it, and at whatever address."""
        return self.token_for("identity")[:12]

    def new_id(self) -> str:
        """An id that looks like a random UUID and never comes twice from one store."""
        with self.transaction():
            count = int(self.setting("ids") or 0) + 1
            self.set("ids", count)
        digest = hmac.digest(self._seed.encode(), f"id {count}".encode(), hashlib.sha256)
        return str(uuid.UUID(bytes=digest[:16], version=4))

    def token_for(self, name: str) -> str:
        """A credential that stays the same for `name`; computed, so it is never in the file."""
        return hmac.digest(self._seed.encode(), f"token {name}".encode(), hashlib.sha256).hex()

    # Objects, in the order of their creation.

    def put(self, kind: str, key: str, body: str, *, gone_at: float | None = None) -> None:
        """Add or replace; from `gone_at` (unix seconds of the clock) on, `sweep` removes it."""
        self._rows(
            "INSERT INTO objects (kind, id, gone_at, body) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (kind, id)"
            " DO UPDATE SET gone_at = excluded.gone_at, body = excluded.body",
            kind,
            key,
            gone_at,
            body,
        )

    def get(self, kind: str, key: str) -> str | None:
        rows = self._rows("SELECT body FROM objects WHERE kind = ? AND id = ?", kind, key)
        return str(rows[0][0]) if rows else None

    def all(self, kind: str) -> list[str]:
        rows = self._rows("SELECT body FROM objects WHERE kind = ? ORDER BY seq", kind)
        return [str(body) for (body,) in rows]

    def remove(self, kind: str, key: str) -> None:
        """Forget it now. Nothing happens when it is not there."""
        self._rows("DELETE FROM objects WHERE kind = ? AND id = ?", kind, key)

    def sweep(self, now: float) -> None:
        """Forget every object whose time has come."""
        if self._rows("SELECT 1 FROM objects WHERE gone_at <= ? LIMIT 1", now):
            self._rows("DELETE FROM objects WHERE gone_at <= ?", now)

    # The request log.

    def log(self, body: str) -> None:
        """Append; only the last 100 000 entries are kept."""
        with self.transaction():
            self._rows("INSERT INTO log (body) VALUES (?)", body)
            self._rows("DELETE FROM log WHERE seq <= (SELECT max(seq) FROM log) - ?", _LOG_LIMIT)

    def logged(self) -> list[str]:
        return [str(body) for (body,) in self._rows("SELECT body FROM log ORDER BY seq")]

    def clear_log(self) -> None:
        self._rows("DELETE FROM log")

    def reset(self) -> None:
        """Forget objects and log; settings stay, so the clock and the ids go on."""
        with self.transaction():
            self._rows("DELETE FROM objects")
            self.clear_log()

    def _rows(self, statement: str, *values: str | float | None) -> list[tuple[str | float, ...]]:
        with self._lock:
            return self._db.execute(statement, values).fetchall()
