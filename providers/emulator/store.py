"""Keep the emulator's objects, settings and request log in SQLite, in memory or in a file.

The APIs of the platforms and the admin API use the store, which knows no platform: bodies are JSON
texts whose shape belongs to the caller.
"""

import hashlib
import hmac
import secrets
import sqlite3
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

if TYPE_CHECKING:
    from pydantic import BaseModel

Model = TypeVar("Model", bound="BaseModel")


def parse_stored(model: type[Model], body: str) -> Model:
    """Return a stored body as a frozen `model`; the same object for the same body."""
    stored: Model = _parse_once(model, body)
    return stored


# Kept, for records are immutable and most requests read what others have read before.
@lru_cache(maxsize=16384)
def _parse_once(model: Any, body: str) -> Any:
    return model.model_validate_json(body)


class StoreError(Exception):
    """Raised where the store's file cannot be used; the message says why and what to do."""


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


class Store:
    """State in memory (`path` None) or in a SQLite file that outlives the process.

    Safe for many threads of one process and for several processes on one file. `seed` makes ids and
    tokens repeatable; it counts only when the store is new. Raises `StoreError` when the file is
    not a store of this version.
    """

    def __init__(self, path: Path | None, *, seed: str | None = None) -> None:
        # Re-entrant: statements within a transaction take the lock as well.
        self._lock = threading.RLock()
        self._depth = 0
        self.change_count = 0
        """Differs after each change that this process has made to an object."""
        self._tokens: dict[str, str] = {}
        # Nobody else writes to a store in memory, whose settings each request reads several times.
        self._cached_settings: dict[str, str | float | None] | None = {} if path is None else None
        try:
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
            # One connection behind one lock: within a process nothing can be "locked".
            self._db = sqlite3.connect(
                ":memory:" if path is None else path,
                # Another process may be in a transaction on the same file.
                timeout=30,
                # The driver begins no transactions of its own: `transaction` does.
                isolation_level=None,
                check_same_thread=False,
            )
        except (OSError, sqlite3.OperationalError) as error:
            raise StoreError(
                f"cannot open {path} as the emulator's store ({error}): use another file"
            ) from error
        try:
            self._open_schema(path, seed)
        except BaseException:
            self._db.close()
            raise

    def _open_schema(self, path: Path | None, seed: str | None) -> None:
        """Create the tables of a new store, check the version of an old one, and load the seed.

        A new store gets `seed`, or a random one; an old store keeps its own. Raises `StoreError`.
        """
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
                if self.get_setting("seed") is None:
                    self.set_setting("seed", secrets.token_hex(16) if seed is None else seed)
                self._seed = str(self.get_setting("seed"))
        except sqlite3.DatabaseError as error:
            raise StoreError(
                f"cannot use {path} as the emulator's store ({error}): use another file"
            ) from error

    def close(self) -> None:
        """Close the database; the store cannot be used any more."""
        with self._lock:
            self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the block alone: other threads and processes wait for its end to change the store.

        Transactions may be nested. An exception that leaves the outermost block undoes all changes;
        one caught within that block undoes nothing.
        """
        with self._lock:
            if self._depth == 0:
                # IMMEDIATE takes the write lock at once: two processes that read first and write
                # later would both fail.
                self._db.execute("BEGIN IMMEDIATE")
            self._depth += 1
            try:
                yield
            except BaseException:
                if self._depth == 1:
                    self._db.execute("ROLLBACK")
                    self._forget_cached()
                raise
            else:
                if self._depth == 1:
                    self._db.execute("COMMIT")
            finally:
                self._depth -= 1

    # Settings: the clock's time, the seed, the counter of ids.

    def get_setting(self, name: str) -> str | float | None:
        """Return the setting `name`, or None if never set."""
        cache = self._cached_settings
        if cache is not None and name in cache:
            return cache[name]
        with self._lock:
            rows = self._execute("SELECT value FROM settings WHERE name = ?", name)
            value = rows[0][0] if rows else None
            if cache is not None:
                cache[name] = value
        return value

    def set_setting(self, name: str, value: str | float) -> None:
        """Store or replace a value of the emulator itself, such as the clock's time."""
        with self._lock:
            self._execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", name, value)
            if self._cached_settings is not None:
                self._cached_settings[name] = value

    def _forget_cached(self) -> None:
        """Forget what this process knows of the store, whose content was replaced."""
        self.change_count += 1
        if self._cached_settings is not None:
            self._cached_settings.clear()

    # Ids and tokens, computed from the seed.

    @property
    def identity(self) -> str:
        """Return 12 hexadecimal digits that name this store, wherever the store is served."""
        return self.derive_token("identity")[:12]

    def create_id(self) -> str:
        """Return a new id in the form of a UUID, unique in the store and computed from the seed."""
        with self.transaction():
            count = int(self.get_setting("ids") or 0) + 1
            self.set_setting("ids", count)
        # Computed from the seed, so that a test with a seed meets the same ids every time.
        digest = hmac.digest(self._seed.encode(), f"id {count}".encode(), hashlib.sha256)
        return str(uuid.UUID(bytes=digest[:16], version=4))

    def derive_token(self, name: str) -> str:
        """Return the credential for `name`, computed from the seed and never stored in the file."""
        if name not in self._tokens:
            digest = hmac.digest(self._seed.encode(), f"token {name}".encode(), hashlib.sha256)
            self._tokens[name] = digest.hex()
        return self._tokens[name]

    # Objects, in the order of their creation.

    def put(self, kind: str, key: str, body: str, *, gone_at: float | None = None) -> None:
        """Add an object, or replace its body in place.

        From `gone_at` (unix seconds of the clock) on, the next `remove_expired` removes the object;
        until then it is still returned. None: never.
        """
        with self._lock:
            cursor = self._db.execute(
                # An update keeps the row, and with it the object's place in lists, which are
                # ordered by creation.
                "INSERT INTO objects (kind, id, gone_at, body) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (kind, id)"
                " DO UPDATE SET gone_at = excluded.gone_at, body = excluded.body"
                " WHERE gone_at IS NOT excluded.gone_at OR body != excluded.body",
                (kind, key, gone_at, body),
            )
            self.change_count += cursor.rowcount

    def get(self, kind: str, key: str) -> str | None:
        """Return the body of an object, or None without the object."""
        rows = self._execute("SELECT body FROM objects WHERE kind = ? AND id = ?", kind, key)
        return str(rows[0][0]) if rows else None

    def list_all(self, kind: str) -> list[str]:
        """Return the bodies of all objects of a kind, in the order of creation."""
        rows = self._execute("SELECT body FROM objects WHERE kind = ? ORDER BY seq", kind)
        return [str(body) for (body,) in rows]

    def list_bodies(self) -> list[str]:
        """Return the bodies of all objects of all kinds, in the order of creation."""
        return [str(body) for (body,) in self._execute("SELECT body FROM objects ORDER BY seq")]

    def remove(self, kind: str, key: str) -> None:
        """Remove an object now. Nothing happens where there is no such object."""
        with self._lock:
            statement = "DELETE FROM objects WHERE kind = ? AND id = ?"
            self.change_count += self._db.execute(statement, (kind, key)).rowcount

    def remove_expired(self, now: float) -> None:
        """Remove every object whose `gone_at` is at or before `now` (unix seconds)."""
        # A look before the delete: most requests find nothing to remove, and a delete writes to the
        # file.
        if self._execute("SELECT 1 FROM objects WHERE gone_at <= ? LIMIT 1", now):
            with self._lock:
                self._execute("DELETE FROM objects WHERE gone_at <= ?", now)
                self.change_count += 1

    def find_next_removal(self) -> float | None:
        """Return the earliest `gone_at` (unix seconds) of all objects, or None without one."""
        rows = self._execute("SELECT gone_at FROM objects WHERE gone_at NOTNULL ORDER BY 1 LIMIT 1")
        return next((float(moment) for (moment,) in rows), None)

    # The request log.

    def append_to_log(self, body: str) -> None:
        """Append a request to the log; only the last 100 000 are kept."""
        with self.transaction():
            self._execute("INSERT INTO log (body) VALUES (?)", body)
            # By sequence numbers: counting the rows would read the log at every request.
            self._execute("DELETE FROM log WHERE seq <= (SELECT max(seq) FROM log) - ?", _LOG_LIMIT)

    def list_log(self) -> list[str]:
        """Return the logged requests as JSON texts, oldest first."""
        return [str(body) for (body,) in self._execute("SELECT body FROM log ORDER BY seq")]

    def clear_log(self) -> None:
        """Delete all entries of the request log."""
        self._execute("DELETE FROM log")

    def reset(self) -> None:
        """Remove all objects, the platforms' settings among them, and the request log.

        Values of `set_setting` stay, so that the clock and the ids go on.
        """
        with self.transaction():
            self._execute("DELETE FROM objects")
            self.change_count += 1
            self.clear_log()

    def dump(self) -> bytes:
        """Return a copy of everything in the store, for `restore`: settings, objects and log."""
        with self._lock:
            return self._db.serialize()

    def restore(self, copy: bytes) -> None:
        """Replace everything in the store by a copy of `dump`, the clock's time among it.

        Only for a store in memory, and outside of transactions.
        """
        with self._lock:
            self._db.deserialize(copy)
            self._forget_cached()

    def _execute(
        self, statement: str, *values: str | float | None
    ) -> list[tuple[str | float, ...]]:
        """Run one SQL statement under the lock, and return all rows.

        `values` are the `?` in order.
        """
        with self._lock:
            return self._db.execute(statement, values).fetchall()
