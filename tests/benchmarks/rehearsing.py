"""Measure a rehearsal: `python tests/benchmarks/rehearsing.py FOLDER`, of the plan in plan.json.

Prints the number of outcomes and the processor time of all plays in one process.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

from gpuform.stacks.operations import select_stack
from gpuform.stacks.operations.plans.plan_file import read_plan
from gpuform.stacks.rehearsing import operation, worker


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    plan = read_plan(folder / "plan.json")
    stack = select_stack(plan.stack, work_dir=folder)
    options = operation.RehearsalOptions(jobs=1)
    with tempfile.TemporaryDirectory() as work_folder:
        chosen = operation.choose_changes(plan)
        (spec,) = operation._build_specs(stack, plan, options, Path(work_folder), chosen)
        os.chdir(folder)
        began = time.process_time()
        report = worker.rehearse_share(spec, lambda _progress: None)
    seconds = time.process_time() - began
    print(f"{len(report.outcomes)} outcomes, {seconds:.1f} s of processor time")  # noqa: T201 - its purpose


if __name__ == "__main__":
    main()
