"""What people look at of a stack of 10,000 resources, and saved plans of as many changes.

python tests/benchmarks/large_stacks.py [--resources 10000] [--only TEXT]

`validate`, `graph`, `status`, `review`, `destroy --target` along a chain in which each resource
needs the one before, and `up --plan` beside an `up` without a plan. Of each the processor time and
the peak memory for a quarter of the resources and for all: what grows more than four times is not
linear. State and plan of the views are those of a few real nodes, copied.
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
from running import Bench, Measured, bench, table
from topology import SPEED, written

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
    """The state of a few nodes in a cluster, and what a preview tells of changing them."""

    state: Mapping[str, Any]
    plan: Mapping[str, Any]
    preview: Mapping[str, Any]


def sampled(stack: Bench) -> Sample:
    """Of four nodes: one to be updated, one to be replaced, one to be deleted, one to be made."""
    topology, state, plan, preview = map(
        stack.directory.joinpath, ("topology.yaml", "state.json", "plan.json", "preview.json")
    )
    topology.write_text(written(3))
    stack.run("up", "--yes", "--skip-preview")
    stack.run("stack", "export", "--file", str(state))
    changed = written(4).replace("memory: 1048576", "memory: 2097152")
    changed = changed.replace("node_id: node-1", "node_id: other-1")
    topology.write_text(re.sub(r"  node-2:\n(    .*\n)+", "", changed))
    stack.run("preview", "--save-plan", str(plan))
    stack.run("preview", "--json", by=[PRINTED, str(preview)])
    return Sample(*(json.loads(file.read_text()) for file in (state, plan, preview)))


def copied(value: Any, count: int) -> Any:
    """A document in which what is told of a few nodes is told of so many."""
    if isinstance(value, list):
        nodes = [each for each in value if NODE.search(_name(each))]
        others = [copied(each, count) for each in value if each not in nodes]
        return [*others, *_copies(nodes, count)]
    if isinstance(value, dict):
        nodes = [[key, each] for key, each in value.items() if NODE.search(key)]
        others = {key: copied(each, count) for key, each in value.items() if not NODE.search(key)}
        return {**others, **dict(_copies(nodes, count))}
    return value


def _name(each: Any) -> str:
    return str(each.get("urn", "")) if isinstance(each, dict) else ""


def _copies(nodes: Sequence[Any], count: int) -> Iterator[Any]:
    texts = [json.dumps(each) for each in nodes]
    for number in range(count if texts else 0):
        yield json.loads(NODE.sub(f"node-{number}", texts[number % len(texts)]))


def chained(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """The state, with each node in need of the one before."""
    before = ""
    for each in state["deployment"]["resources"]:
        if NODE.search(each["urn"]):
            each["dependencies"] = [before] if before else []
            each["propertyDependencies"] = {}
            before = each["urn"]
    return state


def restored(stack: Bench, state: Mapping[str, Any]) -> None:
    """Lets the stack have this state."""
    file = stack.directory / "state.json"
    file.write_text(json.dumps(state))
    stack.run("stack", "import", "--file", str(file))


def looked(stack: Bench, sample: Sample, count: int, only: str) -> Mapping[str, Measured]:
    """The views of a topology, of a state and of a plan."""
    (stack.directory / "topology.yaml").write_text(written(count))
    restored(stack, copied(sample.state, count))
    for name, document in (("plan", sample.plan), ("preview", sample.preview)):
        (stack.directory / f"{name}.json").write_text(json.dumps(copied(document, count)))
    return ran(stack, VIEWS, only)


def destroyed(stack: Bench, sample: Sample, count: int, only: str) -> Mapping[str, Measured]:
    """Previews of deleting what needs a target."""
    restored(stack, chained(copied(sample.state, count)))
    chain = {
        name: tuple(each.format(half=count // 2) for each in arguments)
        for name, arguments in CHAIN.items()
    }
    return ran(stack, chain, only)


def created(stack: Bench, count: int, only: str) -> Mapping[str, Measured]:
    """Creates that are answered at once, with and without a plan."""
    (stack.directory / "machines.py").write_text(PROVIDER)
    stack.declare(f"from machines import declare\n\ndeclare({count}, 0.0)\n")
    stack.run("stack", "export", "--file", "empty.json")
    found: dict[str, Measured] = {}
    for name, arguments in CREATES.items():
        found |= ran(stack, {name: arguments}, only)
        stack.run("stack", "import", "--file", "empty.json")
    return found


def ran(stack: Bench, commands: Mapping[str, Iterable[str]], only: str) -> Mapping[str, Measured]:
    """What each command takes of which the name has this text."""
    return {name: stack.run(*each) for name, each in commands.items() if only in name}


def figures(counts: Sequence[int], only: str) -> list[Mapping[str, Measured]]:
    """By command, for each count."""
    found: list[dict[str, Measured]] = [{} for _ in counts]
    if any(only in name for name in (*VIEWS, *CHAIN)):
        with bench(SPEED) as stack:
            sample = sampled(stack)
            for count, each in zip(counts, found, strict=True):
                each.update(looked(stack, sample, count, only))
                each.update(destroyed(stack, sample, count, only))
    if any(only in name for name in CREATES):
        for count, each in zip(counts, found, strict=True):
            with bench(SPEED) as stack:
                each.update(created(stack, count, only))
    return [*found]


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--resources", type=int, default=10_000)
    parser.add_argument("--only", default="", metavar="TEXT", help="commands whose name has it")
    options = parser.parse_args()
    counts = (max(4, options.resources // 4), options.resources)
    few, many = figures(counts, options.only)
    rows = [("resources", *map(str, counts), "growth", "peak", "growth")]
    for name, small in few.items():
        large = many[name]
        growth, swelling = large.work / small.work, large.peak / small.peak
        times = (f"{small.work:.2f} s", f"{large.work:.2f} s", f"{growth:.1f}")
        rows.append((name, *times, f"{large.peak:.0f} MiB", f"{swelling:.1f}"))
    planned, plain = many.get("up: --plan"), many.get("up: without a plan")
    if planned and plain:
        rows.append(("ratio of up --plan", "", f"{planned.work / plain.work:.2f}", "", "", ""))
    sys.stdout.write(table(rows))


if __name__ == "__main__":
    main()
