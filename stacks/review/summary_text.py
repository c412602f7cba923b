"""The lines that count: resources by operation, GPUs, durations."""

from collections.abc import Iterable, Iterator, Mapping

from gpuform.schemas.plan import Plan, PlanAction
from gpuform.stacks.review.names import STYLES, counted
from gpuform.stacks.review.paint import PLAIN, Paint

# Operation -> symbol, what is to be done, what was done; in the order of Pulumi's display.
_COUNTED = {
    "create": ("+", "create", "created"),
    "import": ("=", "import", "imported"),
    "update": ("~", "update", "updated"),
    "replace": ("+-", "replace", "replaced"),
    "delete": ("-", "delete", "deleted"),
    "read": (">", "read", "read"),
    "discard": ("<", "forget", "forgotten"),
}


def resources_lines(
    counts: Mapping[str, int], *, preview: bool, errored: int = 0, paint: Paint = PLAIN
) -> Iterator[str]:
    """Pulumi's summary: `Resources:`, a line for each operation, the unchanged ones.

    `counts` has Pulumi's names of the operations; `errored` is the number of resources that failed.
    """
    found = {op: counts[op] for op in _COUNTED if counts.get(op)}
    unchanged = counts.get("same", 0)
    yield paint("bold", "Resources:")
    for op, count in found.items():
        symbol, to_do, done = _COUNTED[op]
        verb = f"to {to_do}" if preview else done
        yield paint(STYLES[symbol], f"    {symbol:<2}{count} {verb}")
    if len(found) > 1:
        rest = f". {unchanged} unchanged" if unchanged else ""
        yield f"    {counted(sum(found.values()), 'change')}{rest}"
    elif unchanged or not (found or errored):
        yield f"    {unchanged} unchanged" if unchanged else "    nothing to do"
    if errored:
        yield paint("error", f"    {errored} errored")


def counts_text(counts: Mapping[PlanAction, int]) -> str:
    """What would be done, in one line: `2 to create, 1 to replace, 3 unchanged`."""
    by_name = {str(action): count for action, count in counts.items()}
    found = [f"{by_name[op]:,} to {v}" for op, (_, v, _) in _COUNTED.items() if op in by_name]
    if unchanged := counts.get(PlanAction.SAME):
        found.append(f"{unchanged:,} unchanged")
    return ", ".join(found) or "nothing to do"


def done_text(counts: Mapping[PlanAction, int]) -> str:
    """What was done, in one line: `2 created, 1 replaced, 3 unchanged`."""
    by_name = {str(action): count for action, count in counts.items()}
    found = [f"{by_name[op]:,} {done}" for op, (_, _, done) in _COUNTED.items() if op in by_name]
    if unchanged := counts.get(PlanAction.SAME):
        found.append(f"{unchanged:,} unchanged")
    return ", ".join(found) or "nothing to do"


def unchecked_line(count: int, paint: Paint = PLAIN) -> str:
    """What a plan begins with when checks could not be made; empty when all were."""
    if not count:
        return ""
    text = f"Not all was checked: {counted(count, 'check')} could not be made (see Not checked)."
    return paint("warning", text)


def gpus_line(plan: Plan, paint: Paint = PLAIN) -> str:
    """How many GPUs come and go, or nothing when none does."""
    added = _total("+", (change.gpus_added for change in plan.changes))
    removed = _total("-", (change.gpus_removed for change in plan.changes))
    parts = [paint("add", f"{added} to add")] if added else []
    parts += [paint("remove", f"{removed} to remove")] if removed else []
    return f"GPUs: {', '.join(parts)}" if parts else ""


def _total(sign: str, found: Iterable[int | None]) -> str:
    numbers = list(found)
    known = sum(number or 0 for number in numbers)
    if None not in numbers:
        return f"{sign}{known}" if known else ""
    return f"{sign}{known} or more" if known else "an unknown number"


def duration(seconds: float) -> str:
    """Whole seconds, at least one: 45s, 3m20s, 1h05m10s."""
    whole = max(1, round(seconds))
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02d}m{rest:02d}s"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"
