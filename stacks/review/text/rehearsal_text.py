"""Render rehearsals as text: the harmful hazards in full, the harmless ones in a line each.

`gpuform rehearse` and the reviews call this module.
"""

from collections.abc import Iterator
from typing import Final

from gpuform.schemas.rehearsal import (
    OUTAGE_S,
    RERUN_AFTER_S,
    Advice,
    HazardOutcome,
    Rehearsal,
)
from gpuform.stacks.review.paint import PLAIN, Paint
from gpuform.stacks.review.summary_text import format_elapsed, format_money
from gpuform.stacks.review.value_text import counted

_RERUN = format_elapsed(RERUN_AFTER_S)
LIMITS: Final = (
    (
        "The emulator plays one change at a time, with durations of its own: the real platform may "
        "differ."
    ),
    (
        f"After a failed or killed run, somebody runs the command again {_RERUN} later; capacity, "
        f"quotas and credit come back after {OUTAGE_S / 3600:g} hours."
    ),
    "Not played: several hazards at once, other users of the same account, and real schedulers.",
)
"""What the numbers of a rehearsal assume, and what no rehearsal plays."""


def render_rehearsal(rehearsal: Rehearsal, paint: Paint = PLAIN) -> Iterator[str]:
    """Yield the lines of a rehearsal, with what it assumes at the end."""
    yield paint("bold", f"If something goes wrong with {rehearsal.project}/{rehearsal.stack}")
    for difference in rehearsal.differences:
        yield paint("warning", f"  not rehearsed as planned: {difference}")
    yield f"  nothing goes wrong: {format_loss(rehearsal.undisturbed)}"
    for outcome in rehearsal.harmful:
        yield ""
        yield from render_outcome(outcome, paint)
    if rehearsal.harmless:
        yield ""
        count = counted(len(rehearsal.harmless), "hazard")
        verb = "costs" if len(rehearsal.harmless) == 1 else "cost"
        yield f"  {count} {verb} no more than when nothing goes wrong:"
        for outcome in rehearsal.harmless:
            yield paint("dim", f"    {format_harmless(outcome)}")
    if rehearsal.not_played:
        yield ""
        for hazard in rehearsal.not_played:
            yield paint("dim", f"  {hazard.kind} was not played: {hazard.reason}")
    yield ""
    for limit in LIMITS:
        yield paint("dim", f"  {limit}")


def render_outcome(outcome: HazardOutcome, paint: Paint = PLAIN) -> Iterator[str]:
    """Yield the lines of a harmful hazard: the hazard, the loss, the mending, and advice."""
    yield paint("error", f"  {format_hazard(outcome)}")
    yield f"    loses: {format_loss(outcome)}"
    for item in outcome.half_done:
        yield f"    left half done: {item}"
    for error in outcome.errors[:1]:
        yield f"    the run ends with: {error.splitlines()[0]}"
    yield f"    {format_mending(outcome)}"
    for advice in outcome.advice:
        yield paint("add", f"    {format_advice(advice)}")


def format_hazard(outcome: HazardOutcome) -> str:
    """Return the hazard in words, with its kind and the number of points it stands for."""
    hazard = outcome.hazard
    others = hazard.points - 1
    also = f", as for {counted(others, 'other request')}" if others else ""
    return f"{hazard.kind}: {hazard.description}{also}"


def format_loss(outcome: HazardOutcome) -> str:
    """Return what is lost: GPUs and for how long, GPU-hours, jobs, data and money; or nothing."""
    losses = []
    if outcome.lost_gpus:
        seconds = outcome.lost_for_s
        length = "until the cause ends" if seconds is None else f"for {format_elapsed(seconds)}"
        hours = f"{outcome.gpu_hours_without_work:,.1f} GPU-hours without work"
        losses.append(f"{counted(outcome.lost_gpus, 'GPU')} {length} ({hours})")
    if outcome.jobs_ended:
        jobs = counted(len(outcome.jobs_ended), "job")
        losses.append(f"{jobs} ({', '.join(outcome.jobs_ended)})")
    if outcome.data_lost:
        losses.append(f"the data of {'; '.join(outcome.data_lost)}")
    for currency, amount in sorted(outcome.extra_cost.items()):
        losses.append(f"{format_money(amount, currency)} more")
    return ", ".join(losses) or "nothing"


def format_mending(outcome: HazardOutcome) -> str:
    """Return which command completes the plan afterwards."""
    if not outcome.is_mended:
        return "no command of gpuform completes the plan afterwards: mend it by hand"
    if outcome.mended_by:
        return f"mended by `{outcome.mended_by}`; the next plan is empty"
    return "the run completes the plan by itself; the next plan is empty"


def format_harmless(outcome: HazardOutcome) -> str:
    """Return the line of a harmless hazard: the hazard, and the command to run again if any."""
    mending = f"; run `{outcome.mended_by}`" if outcome.mended_by else ""
    return f"{format_hazard(outcome)}{mending}"


def format_advice(advice: Advice) -> str:
    """Return an advice in words, with the loss that remains."""
    loss = (
        f"loses {counted(advice.lost_gpus, 'GPU')} ({advice.gpu_hours_without_work:,.1f} GPU-hours)"
        if advice.lost_gpus
        else "loses no GPU"
    )
    return f"with {advice.declaration} the same hazard {loss}"
