"""Generate the page "What counts as evidence" from the decisions in `providers/evidence`."""

from typing import Final

from gpuform.providers.evidence import DECISIONS, Decision
from gpuform.stacks.reference.markdown import page, table

_LEAD: Final = """\
This page lists every decision that gpuform cannot take back, the observations that it needs for it,
and what it does without them.

One answer of a platform proves little: platforms are slow, answer in part, and are sometimes wrong.
Other people and other machines work at the same time. Three rules hold for every row below:

* **Silence is no answer.** A list that is empty, incomplete or fails never means that nothing
  exists, that nothing runs or that nothing is used.
* **The party that knows has to say it.** A monitor, scheduler or registry counts only for the nodes
  and entries that its own answer names.
* **Without enough evidence nothing is lost.** gpuform waits, or stops with an error that names what
  is missing.
"""
_AFTER: Final = """\
## Read on

* [What counts as gone](../concepts/gone.md): when the state forgets an object.
* [Intents](../concepts/intents.md): how an interrupted create is found again.
* [Taking nodes away](../concepts/taking-nodes.md): what is looked at before a node is removed.
"""


def evidence_page() -> str:
    """Return the whole page in Markdown."""
    rows = [
        (decision.name, decision.effect.value, decision.needs, _age(decision), decision.without)
        for decision in DECISIONS
    ]
    head = ("decision", "effect", "evidence", "at most this old", "without it")
    return page("What counts as evidence", _LEAD, [table(head, rows), _AFTER])


def _age(decision: Decision) -> str:
    return "" if decision.max_age_s is None else f"{decision.max_age_s:.0f} s"
