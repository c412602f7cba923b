"""Measure views of a stack of 10,000 resources, and saved plans with as many changes.

python tests/benchmarks/large_stacks.py [--resources 10000] [--only TEXT]

`validate`, `graph`, `status`, `review`, `destroy --target` along a chain in which each resource
depends on the previous one, and `up --plan` beside an `up` without a plan. The figures are
processor time and peak memory for a quarter of the resources and for all: growth over four times is
not linear. The views have the state and plan of a few real nodes, copied.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from engine_cost import PROVIDER
from running import Bench, Measured, create_bench, render_table
from topology import SPEED, render_topology

PRINTED = str(Path(__file__).parent / "printed.py")
VIEWS = {
    "validate": ("validate",),
    "status": ("status",),
    "status: json": ("status", "--json"),
    "graph: dot": ("graph",),
    "graph: mermaid": ("graph", "--format", "mermaid"),
    "graph: html": ("graph", "--format", "html"),
    "graph: html, each for itself": ("graph", "--format", "html", "--most", "0"),
    "graph: dot, of the plan": ("graph", "--plan", "plan.json"),
    "review: text": ("review", "plan.json"),
    "review: github": ("review", "plan.json", "--format", "github"),
    "review: html": ("review", "plan.json", "--format", "html"),
    "review: json": ("review", "plan.json", "--format", "json"),
    "review: text, of preview --json": ("review", "preview.json"),
}
DESTROY = ("destroy", "--preview-only", "--target-dependents", "--target")
CHAIN = {
    "destroy: a chain, from its first": (*DESTROY, "node-0"),
    "destroy: a chain, from its middle": (*DESTROY, "node-{half}"),
    "destroy: a chain, the plan as json": (*DESTROY, "node-0", "--json"),
}
CREATES = {
    "up: preview --save-plan": ("preview", "--save-plan", "plan.json"),
    "up: without a plan": ("up", "--yes"),
    "up: --plan": ("up", "--yes", "--plan", "plan.json"),
}
NODE = re.compile(r"\bnode-\d+")


@dataclass(frozen=True, slots=True)
class Sample:
    """The state of a few nodes in a cluster, and previews that change them."""

    state: Mapping[str, Any]
    plan: Mapping[str, Any]
    preview: Mapping[str, Any]


def take_sample(stack: Bench) -> Sample:
    """Return a sample of nodes, one each to update, to replace, to delete and to create."""
    topology, state, plan, preview = map(
        stack.directory.joinpath, ("topology.yaml", "state.json", "plan.json", "preview.json")
    )
    topology.write_text(render_topology(3))
    stack.run("up", "--yes", "--skip-preview")
    stack.run("stack", "export", "--file", str(state))
    changed = render_topology(4).replace("memory: 1048576", "memory: 2097152")
    changed = changed.replace("node_id: node-1", "node_id: other-1")
    topology.write_text(re.sub(r"  node-2:\n(    .*\n)+", "", changed))
    stack.run("preview", "--save-plan", str(plan))
    stack.run("preview", "--json", by=[PRINTED, str(preview)])
    return Sample(*(json.loads(file.read_text()) for file in (state, plan, preview)))


def copy_nodes(value: Any, count: int) -> Any:
    """Return a document in which the entries of the few nodes are copied for `count` nodes."""
    if isinstance(value, list):
        nodes = [item for item in value if NODE.search(_get_urn(item))]
        others = [copy_nodes(item, count) for item in value if item not in nodes]
        return [*others, *_copy(nodes, count)]
    if isinstance(value, dict):
        nodes = [[key, item] for key, item in value.items() if NODE.search(key)]
        others = {
            key: copy_nodes(item, count) for key, item in value.items() if not NODE.search(key)
        }
        return {**others, **dict(_copy(nodes, count))}
    return value


def _get_urn(item: Any) -> str:
    return str(item.get("urn", "")) if isinstance(item, dict) else ""


def _copy(nodes: Sequence[Any], count: int) -> Iterator[Any]:
    texts = [json.dumps(node) for node in nodes]
    for number in range(count if texts else 0):
        yield json.loads(NODE.sub(f"node-{number}", texts[number % len(texts)]))


def chain_nodes(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the state in which each node depends on the previous one."""
    previous_urn = ""
    for resource in state["deployment"]["resources"]:
        if NODE.search(resource["urn"]):
            resource["dependencies"] = [previous_urn] if previous_urn else []
            resource["propertyDependencies"] = {}
            previous_urn = resource["urn"]
    return state


def import_state(stack: Bench, state: Mapping[str, Any]) -> None:
    """Replace the stack's state."""
    file = stack.directory / "state.json"
    file.write_text(json.dumps(state))
    stack.run("stack", "import", "--file", str(file))


def measure_views(stack: Bench, sample: Sample, count: int, only: str) -> Mapping[str, Measured]:
    """Return the figures of the views of a topology, a state and a plan."""
    (stack.directory / "topology.yaml").write_text(render_topology(count))
    import_state(stack, copy_nodes(sample.state, count))
    for name, document in (("plan", sample.plan), ("preview", sample.preview)):
        (stack.directory / f"{name}.json").write_text(json.dumps(copy_nodes(document, count)))
    return run_matching_commands(stack, VIEWS, only)


def measure_destroys(stack: Bench, sample: Sample, count: int, only: str) -> Mapping[str, Measured]:
    """Return the figures of previews of a destroy with a target."""
    import_state(stack, chain_nodes(copy_nodes(sample.state, count)))
    chain = {
        name: tuple(argument.format(half=count // 2) for argument in arguments)
        for name, arguments in CHAIN.items()
    }
    return run_matching_commands(stack, chain, only)


def measure_creates(stack: Bench, count: int, only: str) -> Mapping[str, Measured]:
    """Return the figures of creates with immediate answers, with and without a plan."""
    (stack.directory / "machines.py").write_text(PROVIDER)
    stack.declare(f"from machines import declare\n\ndeclare({count}, 0.0)\n")
    stack.run("stack", "export", "--file", "empty.json")
    figures_by_command: dict[str, Measured] = {}
    for name, arguments in CREATES.items():
        figures_by_command |= run_matching_commands(stack, {name: arguments}, only)
        stack.run("stack", "import", "--file", "empty.json")
    return figures_by_command


def run_matching_commands(
    stack: Bench, commands: Mapping[str, Iterable[str]], only: str
) -> Mapping[str, Measured]:
    """Return the figures of the commands whose name contains `only`."""
    return {name: stack.run(*arguments) for name, arguments in commands.items() if only in name}


def measure_all(counts: Sequence[int], only: str) -> list[Mapping[str, Measured]]:
    """Return the figures by command, for each count."""
    figures_by_count: list[dict[str, Measured]] = [{} for _ in counts]
    if any(only in name for name in (*VIEWS, *CHAIN)):
        with create_bench(SPEED) as stack:
            sample = take_sample(stack)
            for count, figures in zip(counts, figures_by_count, strict=True):
                figures.update(measure_views(stack, sample, count, only))
                figures.update(measure_destroys(stack, sample, count, only))
    if any(only in name for name in CREATES):
        for count, figures in zip(counts, figures_by_count, strict=True):
            with create_bench(SPEED) as stack:
                figures.update(measure_creates(stack, count, only))
    return [*figures_by_count]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--resources", type=int, default=10_000)
    parser.add_argument("--only", default="", metavar="TEXT", help="commands whose name has it")
    options = parser.parse_args()
    counts = (max(4, options.resources // 4), options.resources)
    few, many = measure_all(counts, options.only)
    rows = [("resources", *map(str, counts), "growth", "peak", "growth")]
    for name, small in few.items():
        large = many[name]
        growth, swelling = large.work / small.work, large.peak / small.peak
        times = (f"{small.work:.2f} s", f"{large.work:.2f} s", f"{growth:.1f}")
        rows.append((name, *times, f"{large.peak:.0f} MiB", f"{swelling:.1f}"))
    planned, plain = many.get("up: --plan"), many.get("up: without a plan")
    if planned and plain:
        rows.append(("ratio of up --plan", "", f"{planned.work / plain.work:.2f}", "", "", ""))
    sys.stdout.write(render_table(rows))


if __name__ == "__main__":
    main()
