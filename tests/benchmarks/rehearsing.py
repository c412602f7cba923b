"""Measure a rehearsal with all hazards, of a plan with many kinds of changes.

python tests/benchmarks/rehearsing.py [--changes 10] [--processes 2] [--report FILE]

The processes play one after the other, so that other programs on the machine change no figure: on
as many idle cores a rehearsal takes as long as the slowest of them. `--report` writes the outcomes
as JSON, to compare those of two versions of gpuform.
"""

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from running import render_table

from gpuform.providers.emulator.server import environment, serve
from gpuform.schemas.plan import Plan
from gpuform.schemas.rehearsal import Rehearsal
from gpuform.stacks.operations import SelectedStack, create_stack
from gpuform.stacks.operations.automation import preview, up
from gpuform.stacks.operations.runs.options import RunOptions
from gpuform.stacks.rehearsing import operation, sealed_states, worker

HEAD = """\
config:
  password: {secret: true, emulator_default: "Only4Tests!"}
  is_changed: {type: boolean, default: false}
defaults:
  node_pools:
    scp:
      node_pool_id: POOL001-krw1a
      region_id: kr-west1
      vpc_id: e58348b1bc9148e5af86500fd4ef99ca
      subnet_id: ab313c43291e4b678f4bacffe10768ae
      server_type_id: "{{ (scp.products('SCALE', region='kr-west1') | \
selectattr('state', 'eq', 'AVAILABLE') | first).id }}"
      os_user_password: "{{ config.password }}"
"""
IMAGE = "{{ (scp.images('kr-west1') | selectattr('os_distro', 'eq', DISTRIBUTION) | first).id }}"


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=10, help="a multiple of 10")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--report", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, serve(seed="benchmark") as server:
        variables = {
            **environment(server.url),
            "PULUMI_HOME": str(Path(name, "home")),
            "PULUMI_BACKEND_URL": f"file://{name}",
            "PULUMI_CONFIG_PASSPHRASE": "",
        }
        stack = bring_up(Path(name), options.changes, variables)
        result = preview(stack, RunOptions(config=(("is_changed", "true"),)))
        assert result.plan is not None, result.diagnostics
        rehearsal, seconds = play(stack, result.plan, options.processes)
    if options.report:
        options.report.write_text(rehearsal.model_dump_json(indent=1))
    rows = [("changes", "outcomes", "processor time", "on as many idle cores")]
    figures = (f"{sum(seconds):.1f} s", f"{max(seconds):.1f} s")
    rows.append((str(rehearsal.changes), str(len(rehearsal.outcomes)), *figures))
    sys.stdout.write(render_table(rows))


def bring_up(folder: Path, changes: int, variables: dict[str, str]) -> SelectedStack:
    """Create a stack with as many resources on the emulator."""
    (folder / "Pulumi.yaml").write_text("name: bench\nruntime: python\n")
    (folder / "__main__.py").write_text('from gpuform.stacks import run\n\nrun("topology.yaml")\n')
    (folder / "topology.yaml").write_text(write_topology(changes))
    stack = create_stack("dev", work_dir=folder, env_vars=variables)
    # One after the other: the ids on the emulator, which errors name, would be in another order.
    result = up(stack, RunOptions(parallel=1))
    assert result.succeeded, result.diagnostics
    return stack


def write_topology(changes: int) -> str:
    """Return a topology with as many resources, which `is_changed` changes in different ways.

    Of ten resources two are volumes that grow. Of six clusters two get another driver, two more
    GPUs, and two fewer GPUs. Of two pools one gets more nodes, and one another image.
    """

    def choose(changed: Any, unchanged: Any) -> str:
        return f'"{{{{ {changed!r} if config.is_changed else {unchanged!r} }}}}"'

    sections: dict[str, list[str]] = {"shared_volumes": [], "clusters": [], "node_pools": []}
    for number in range(changes // 5):
        size = choose(6, 5)
        sections["shared_volumes"].append(
            f"data-{number}: {{platform: together, volume_name: data-{number}, "
            f"region: us-central-8, size_tib: {size}}}"
        )
    for number in range(changes * 3 // 5):
        driver = choose("CUDA_12_5_555", "CUDA_12_6_560") if number % 3 == 0 else "CUDA_12_6_560"
        gpus = [16, choose(24, 16), choose(16, 24)][number % 3]
        sections["clusters"].append(
            f"train-{number}: {{platform: together, cluster_name: train-{number}, "
            f"region: us-central-8, gpu_type: H100_SXM, num_gpus: {gpus}, "
            f"driver_version: {driver}, billing_type: ON_DEMAND}}"
        )
    for number in range(changes // 5):
        distribution = "'RHEL' if config.is_changed else 'UBUNTU'" if number % 2 else "'UBUNTU'"
        count = 2 if number % 2 else choose(3, 2)
        sections["node_pools"].append(
            f"pool-{number}: {{platform: scp, gpu_node_name_prefix: pool{number}x, "
            f"cluster_fabric_name: fab-{number}, count: {count}, "
            f'image_id: "{IMAGE.replace("DISTRIBUTION", distribution)}"}}'
        )
    texts = (f"{name}:\n  " + "\n  ".join(lines) for name, lines in sections.items())
    return HEAD + "\n".join(texts) + "\n"


def play(stack: SelectedStack, plan: Plan, processes: int) -> tuple[Rehearsal, list[float]]:
    """Return the rehearsal of the plan, and the processor time of each process in seconds."""
    options = operation.RehearsalOptions(jobs=processes)
    context = multiprocessing.get_context("fork")
    reports, seconds = [], []
    with tempfile.TemporaryDirectory() as name:
        items, chosen = (
            [sealed_states.PlannedStack(stack, plan)],
            sealed_states.choose_changes(plan),
        )
        for spec in sealed_states.build_specs(items, plan, options, Path(name), chosen):
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=play_share, args=(spec, stack, sender))
            process.start()
            sender.close()
            report, taken = receiver.recv()
            process.join()
            assert not report.failure, report.failure
            reports.append(report)
            seconds.append(taken)
    return operation._build_rehearsal(plan, options, reports), seconds


def play_share(spec: worker.RehearsalSpec, stack: SelectedStack, sender: Connection) -> None:
    """Play a share in this process, and send the report with the processor time."""
    os.chdir(stack.workspace.project.directory)
    began = time.process_time()
    report = worker.rehearse_share(spec, lambda _progress: None)
    sender.send((report, time.process_time() - began))


if __name__ == "__main__":
    main()
