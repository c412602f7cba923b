"""The names of Pulumi's DIY layout, and of what gpuform keeps beside it."""

import re
import time

from gpuform.stacks.engine.store.storage.protocol import Storage

SUFFIXES = (".json", ".json.gz", ".json.zst")


def folder(*parts: str) -> str:
    """A place in `.pulumi`."""
    return "/".join((".pulumi", *parts))


def own(project: str, stack: str, kind: str) -> str:
    """Where gpuform keeps something of its own about a stack."""
    return folder("gpuform", project, f"{stack}.{kind}")


def suffix(name: str, stack: str) -> str:
    """What a file's name says of how it is packed."""
    return name.rpartition("/")[2].removeprefix(stack)


def later_than(storage: Storage, stem: str) -> int:
    """Now in nanoseconds, but later than any name with this stem: a clock may be put back."""
    pattern = re.compile(rf"{re.escape(stem)}(\d+)(\.|$)")
    now = time.time_ns()
    later = storage.entries(stem.rpartition("/")[0], after=f"{stem}{now}")
    matches = (pattern.match(entry.name) for entry in later)
    return max([now, *(int(match[1]) + 1 for match in matches if match)])
