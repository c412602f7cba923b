"""Read a past run of a stack: the entry in the history, and the log.

`gpuform logs` and `gpuform stack history` call this module; it reads the stack's backend.
"""

from dataclasses import dataclass

from pydantic import ValidationError

from gpuform.schemas.stacks_plan import RunLog
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.stack import Workspace
from gpuform.stacks.engine.store import DamagedFile, HistoryEntry


@dataclass(frozen=True, slots=True)
class PastRun:
    """A run of a stack's history.

    `number` counts from 1, the oldest run. `log` is None where no log was stored for the run.
    """

    number: int
    entry: HistoryEntry
    log: RunLog | None


def read_run(workspace: Workspace, stack: str, number: int | None) -> PastRun:
    """Return run `number` of the stack, or the latest run where `number` is None.

    Runs count from 1, the oldest. A run of the Pulumi CLI has no log.

    Raises:
        EngineError: the stack has no run of this number, or no run at all.
        DamagedFile: the run's log is not valid.
    """
    runs = workspace.backend.open_history(workspace.project.name, stack)
    names = runs.names
    if not names:
        raise EngineError(f"stack {stack} has no runs yet")
    # Runs count from 1, the oldest: a number stays the same while further runs follow.
    number = number or len(names)
    if number > len(names):
        raise EngineError(
            f"stack {stack} has no run {number}: its latest run is {len(names)}",
            hint="`gpuform stack history` lists the runs",
        )
    name = names[number - 1]
    data = runs.read_log(name)
    try:
        log = None if data is None else RunLog.model_validate_json(data)
    except ValidationError as error:
        raise DamagedFile(
            f"the log of run {number} of stack {stack} cannot be read: it is damaged, or "
            "written by a newer gpuform",
            hint="`gpuform stack history` shows the run's entry in the history",
        ) from error
    return PastRun(number, runs.read_entry(name), log)
