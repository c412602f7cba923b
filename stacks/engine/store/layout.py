"""Build the names of files in Pulumi's DIY layout, and mark stacks that moved to another backend.

`Backend` and `RunHistory` call this module; `engine.stack.moving` writes the markers, and `Backend`
refuses the stacks that have one. A marker lies beside the checkpoint, whose folder every command
lists anyway: looking for a marker costs no request. The Pulumi CLI reads only names with the
suffixes of checkpoints in that folder.
"""

import json
import re
import time
from collections.abc import Iterable

from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.state import format_timestamp
from gpuform.stacks.engine.store.storage import BlobEntry, DamagedFile, Storage
from gpuform.stacks.engine.value_json import load

SUFFIXES = (".json", ".json.gz", ".json.zst")


def build_name(*parts: str) -> str:
    """Return the name of a folder or file in `.pulumi`."""
    return "/".join((".pulumi", *parts))


def build_own_name(project: str, stack: str, kind: str) -> str:
    """Return the name of one of gpuform's own files about a stack."""
    return build_name("gpuform", project, f"{stack}.{kind}")


def get_suffix(name: str, stack: str) -> str:
    """Return the part of a file's name after the stack's name: the format and compression."""
    return name.rpartition("/")[2].removeprefix(stack)


def create_timestamp(storage: Storage, stem: str) -> int:
    """Return a time in nanoseconds for a new name: now, or later than all names with this stem.

    A clock may have been set back; without this, a new entry would sort before an older one.
    """
    pattern = re.compile(rf"{re.escape(stem)}(\d+)(\.|$)")
    now = time.time_ns()
    later = storage.list_entries(stem.rpartition("/")[0], after=f"{stem}{now}")
    matches = (pattern.match(entry.name) for entry in later)
    return max([now, *(int(match[1]) + 1 for match in matches if match)])


MOVED, ARRIVING = "moved", "arriving"
"""The kinds of markers: the stack is at another place, or is being copied from one."""


class StackMoved(EngineError):
    """The stack is at another backend, or its move to this one is not complete."""

    help_page = "guides/state-for-a-team"


def build_marker_name(project: str, stack: str, kind: str) -> str:
    """Return the name of a stack's marker; `kind` is MOVED or ARRIVING."""
    return build_name("stacks", project, f"{stack}.{kind}")


def write_marker(storage: Storage, project: str, stack: str, kind: str, url: str) -> None:
    """Write a marker with the URL of the other backend. Raises BackendError."""
    document = {"version": 1, "url": url, "time": format_timestamp()}
    storage.write(build_marker_name(project, stack, kind), json.dumps(document).encode())


def read_marker(storage: Storage, project: str, stack: str, kind: str) -> str | None:
    """Return the URL in a marker, or None without the marker. Raises DamagedFile."""
    name = build_marker_name(project, stack, kind)
    blob = storage.read(name)
    if blob is None:
        return None
    try:
        return str(load(blob.data)["url"])
    except (ValueError, LookupError, TypeError) as error:
        raise DamagedFile(
            f"{storage.locate(name)} is not a valid marker of a moved stack",
            hint="Find the stack with `gpuform stack ls` at your backends, and remove the file.",
        ) from error


def reject_relocated(
    storage: Storage, entries: Iterable[BlobEntry], project: str, stack: str
) -> None:
    """Raise StackMoved if the stack has a marker among the entries of the folder of checkpoints."""
    names = {entry.name for entry in entries}
    # First: a stack that moves back to a former place has both markers there until it is complete.
    if build_marker_name(project, stack, ARRIVING) in names:
        url = read_marker(storage, project, stack, ARRIVING)
        if url is not None:
            raise StackMoved(
                f"stack '{stack}' is being moved to this backend from {url}, and the move is not "
                "complete",
                hint="Run `gpuform stack migrate` again in the former place, with the same URL.",
            )
    if build_marker_name(project, stack, MOVED) in names:
        url = read_marker(storage, project, stack, MOVED)
        if url is not None:
            raise build_moved_error(storage, project, stack, url)


def build_moved_error(storage: Storage, project: str, stack: str, url: str) -> StackMoved:
    """Build the error of a stack that moved to the backend `url`."""
    pointer = storage.locate(build_marker_name(project, stack, MOVED))
    return StackMoved(
        f"stack '{stack}' moved to {url}",
        hint="Write this URL, with its query if it has one, into backend.url of Pulumi.yaml, or "
        f"set PULUMI_BACKEND_URL. To use the name for another stack here, remove {pointer}.",
    )


def is_marked(names: Iterable[str], project: str, stack: str) -> bool:
    """Return True if the names include a marker of the stack."""
    markers = {build_marker_name(project, stack, kind) for kind in (MOVED, ARRIVING)}
    return not markers.isdisjoint(names)
