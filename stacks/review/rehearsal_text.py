"""Format what a rehearsal has shown: the section `If something goes wrong` of every review.

Called by the views of plans and reviews, and by `gpuform rehearse`. Three lines say that nothing
is lost. No text is escaped.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from gpuform.providers.context import format_duration
from gpuform.schemas.rehearsal import OUTAGE_S, RERUN_AFTER_S, Advice, HazardOutcome, Rehearsal
from gpuform.schemas.safe_text import escape_invisible
from gpuform.stacks.engine.urn import get_stack_and_project, name_of
from gpuform.stacks.review.paint import PLAIN, Paint
from gpuform.stacks.review.summary_text import format_money
from gpuform.stacks.review.value_text import counted

TITLE: Final = "If something goes wrong"

_RERUN = format_duration(RERUN_AFTER_S)
ASSUMPTIONS: Final = (
    "assumed: the emulator's durations, to the minute",
    f"assumed: after a failed or killed run, somebody runs the command again {_RERUN} later",
    f"assumed: capacity, quota and credit are back after {format_duration(OUTAGE_S)}",
    "never played: several hazards at once, other users of the account, real schedulers",
)
"""What the numbers of a rehearsal rest on, and what no rehearsal plays."""

_MAX_LISTED: Final = 5
"""Hazards that a review describes; the JSON has all of them."""


def render_rehearsal(
    rehearsal: Rehearsal | None, paint: Paint = PLAIN, title: str = TITLE
) -> Iterator[str]:
    """Yield the section of a rehearsal; nothing for None."""
    if rehearsal is not None:
        yield _format_title(title, rehearsal, paint)
        for item in format_outcomes(rehearsal):
            yield from (f"    {escape_invisible(line)}" for line in item.split("\n"))


def render_all_hazards(rehearsal: Rehearsal, paint: Paint = PLAIN) -> Iterator[str]:
    """Yield a rehearsal with all hazards, one line for each harmless one, and its assumptions."""
    yield _format_title(f"{TITLE} with {_name_stacks(rehearsal)}", rehearsal, paint)
    for line in _format_undisturbed(rehearsal):
        yield f"    {escape_invisible(line)}"
    for outcome in rehearsal.harmful:
        yield ""
        first, *others = map(escape_invisible, _format_outcome(outcome))
        yield f"    {paint('remove', str(outcome.hazard.kind))}: {first}"
        yield from (f"    {line}" for line in others)
        # The first line has the reason; the rest is for whoever runs into the error.
        yield from (f"        the run ends with: {e.splitlines()[0]}" for e in outcome.errors[:1])
    if rehearsal.harmless:
        yield ""
        yield f"    {counted(len(rehearsal.harmless), 'hazard')} without harm:"
        for outcome in rehearsal.harmless:
            mending = f" (then run {outcome.mended_by})" if outcome.mended_by else ""
            line = f"{outcome.hazard.kind}: {outcome.hazard.description}{mending}"
            yield paint("dim", f"        {escape_invisible(line)}")
    yield ""
    yield f"    {escape_invisible(_format_limits(rehearsal))}"
    yield from (f"    {assumption}" for assumption in ASSUMPTIONS)


def _format_title(label: str, rehearsal: Rehearsal, paint: Paint) -> str:
    """Return the first line of a rehearsal, with a coloured verdict unless nothing is lost."""
    usual = rehearsal.undisturbed
    is_completed = usual.is_mended and not usual.has_failed
    is_quiet = is_completed and not (rehearsal.harmful or rehearsal.differences)
    verdict = escape_invisible(format_verdict(rehearsal))
    return paint("bold", f"{label}:") + " " + paint("" if is_quiet else "remove", verdict)


def _name_stacks(rehearsal: Rehearsal) -> str:
    """Return the names of the stacks rehearsed together, or of the single rehearsed stack."""
    if rehearsal.project:
        return f"{rehearsal.project}/{rehearsal.stack}"
    stacks = dict.fromkeys(map(get_stack_and_project, rehearsal.actions))
    return ", ".join(f"{project}/{stack}" for stack, project in stacks)


def format_verdict(rehearsal: Rehearsal) -> str:
    """Return the sum of a rehearsal: `nothing is lost`, or how many hazards do harm.

    A rehearsal of something else than the plan does not show that nothing is lost.
    """
    usual = rehearsal.undisturbed
    if usual.has_failed:
        return "the run fails even if nothing goes wrong"
    if count := len(rehearsal.harmful):
        verb = "does" if count == 1 else "do"
        return f"{count} of {counted(len(rehearsal.outcomes) - 1, 'hazard')} {verb} harm"
    if rehearsal.differences:
        return "unknown: the emulator plans something else"
    if not usual.is_mended:
        return "the plan is not completed even if nothing goes wrong"
    # A reader may take the GPUs that the plan deletes for lost.
    exception = " but what the plan deletes" if "delete" in rehearsal.actions.values() else ""
    return (
        f"nothing more is lost{exception}" if _list_losses(usual) else f"nothing is lost{exception}"
    )


def format_outcomes(rehearsal: Rehearsal) -> Iterator[str]:
    """Yield the losses of the undisturbed run, the worst hazards, and the number of played hazards.

    A hazard has several lines: its loss, what is left half done, the command that completes the
    plan, and declarations that avoid the loss.
    """
    yield from _format_undisturbed(rehearsal)
    for outcome in rehearsal.harmful[:_MAX_LISTED]:
        yield "\n".join(_format_outcome(outcome))
    if others := rehearsal.harmful[_MAX_LISTED:]:
        yield f"{counted(len(others), 'other hazard')}: {', '.join(_count_kinds(others))}"
    if rehearsal.harmless:
        yield f"harmless: {', '.join(_count_kinds(rehearsal.harmless))}"
    yield _format_limits(rehearsal)


def _format_undisturbed(rehearsal: Rehearsal) -> Iterator[str]:
    """Yield the differences between rehearsal and plan, and the losses without any hazard."""
    usual = rehearsal.undisturbed
    if rehearsal.played_changes is not None:
        yield (
            f"played: {rehearsal.played_changes} of {counted(rehearsal.changes, 'change')}, the "
            "first and the largest of each kind; losses are those of these changes alone"
        )
    yield from (f"begins with what the refresh has found: {fact}" for fact in rehearsal.drift)
    yield from (
        f"the rehearsal differs from the plan: {difference}" for difference in rehearsal.differences
    )
    if usual.has_failed:
        yield f"without any hazard the run ends as {usual.ending}: {'; '.join(usual.errors)}"
    elif losses := _list_losses(usual):
        yield f"without any hazard: {'; '.join(losses)}"
    if not usual.is_mended and usual.half_done:
        yield f"without any hazard left half done: {', '.join(usual.half_done)}"


def _format_outcome(outcome: HazardOutcome) -> Iterator[str]:
    """Yield the lines of one hazard, all but the first indented."""
    loss = "; ".join(_list_losses(outcome)) or "no GPU is lost, but the plan is not completed"
    yield f"{outcome.hazard.description}: {loss}"
    if outcome.half_done:
        yield f"    left half done: {', '.join(outcome.half_done)}"
    if outcome.mended_by:
        ending = "" if outcome.is_mended else ", not completely"
        yield f"    mended by: {outcome.mended_by}{ending}"
    elif not outcome.is_mended:
        remedy = _find_remedy(outcome)
        quoted_remedy = f"; its error says: {remedy}" if remedy else ""
        yield f"    no command was found that mends it{quoted_remedy}"
    yield from (f"    {_format_advice(advice)}" for advice in outcome.advice)


def _format_advice(advice: Advice) -> str:
    """Return one advice against a loss, with the remaining loss in its rehearsal."""
    remaining = counted(advice.lost_gpus, "GPU") if advice.lost_gpus else "no GPU"
    if advice.gpu_hours_without_work:
        remaining = f"{advice.gpu_hours_without_work:,.1f} GPU-hours"
    condition = f" if {advice.condition}" if advice.condition else ""
    if advice.commands:
        action = f"run {', and then '.join(advice.commands)}"
    else:
        action = f"declare {advice.declaration} of {name_of(advice.urn)}"
    return f"avoid it{condition}: {action}: a rehearsal with it lost {remaining}"


def _find_remedy(outcome: HazardOutcome) -> str:
    """Return the hint of the outcome's last error in one line; empty for an error without one."""
    if not outcome.errors:
        return ""
    # An error's hint is below its message. Its id is one of the emulator.
    _message, *hint = outcome.errors[-1].splitlines()
    return re.sub(r"--adopt [^\s`]+", "--adopt ID", " ".join(line.strip() for line in hint))


def _list_losses(outcome: HazardOutcome) -> list[str]:
    """List the losses of an outcome in the units of a review; empty for none."""
    losses = []
    if outcome.lost_gpus:
        duration = (
            "until the cause has ended"
            if outcome.lost_for_s is None
            else f"for {format_duration(outcome.lost_for_s)}"
        )
        losses.append(f"{counted(outcome.lost_gpus, 'GPU')} without work {duration}")
    if outcome.gpu_hours_without_work:
        losses.append(f"{outcome.gpu_hours_without_work:,.1f} GPU-hours without work")
    if outcome.jobs_ended:
        jobs = ", ".join(outcome.jobs_ended)
        losses.append(f"{counted(len(outcome.jobs_ended), 'job')} ended: {jobs}")
    losses += [f"data lost: {storage}" for storage in outcome.data_lost]
    losses += [
        f"costs {format_money(amount, currency)} more"
        for currency, amount in sorted(outcome.extra_cost.items())
        if amount
    ]
    return losses


def _count_kinds(outcomes: Iterable[HazardOutcome]) -> Iterator[str]:
    """Yield each kind of hazard, with the number of points if more than one."""
    points: Counter[str] = Counter()
    for outcome in outcomes:
        points[outcome.hazard.kind] += outcome.hazard.points
    for kind, count in points.items():
        yield f"{kind} ({count})" if count > 1 else str(kind)


def _format_limits(rehearsal: Rehearsal) -> str:
    """Return the sentence about the limits of the rehearsal, with the hazards not played."""
    reasons: dict[str, list[str]] = {}
    for hazard in rehearsal.not_played:
        reasons.setdefault(hazard.reason, []).append(str(hazard.kind))
    not_played = "; ".join(f"{', '.join(kinds)}: {reason}" for reason, kinds in reasons.items())
    played = "played on the emulator: the real platform may differ"
    return f"{played}; not played: {not_played}" if not_played else played
