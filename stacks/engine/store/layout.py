"""Build the names of files in Pulumi's DIY layout, and of gpuform's own files beside them.

`Backend` and `RunHistory` call this module.
"""

import re
import time

from gpuform.stacks.engine.store.storage.protocol import Storage

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
