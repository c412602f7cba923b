"""Whole stacks. A topology's `__main__.py` is `run("topology.yaml")`."""

from typing import Any

__all__ = ["expression", "run"]


def expression(text: str, /, **variables: Any) -> Any:
    """The value of a topology's text with `{{ }}`, in a Python program.

    `variables` are what it refers to: values, outputs, resources, or objects of these. The value is
    an output where one of them is needed that is an output or a resource; it fails as it would in a
    topology. What a topology can say is thus never lost on the way to Python:

        expression("{{ clusters.train.urls | dictsort }}", clusters={"train": train})
    """
    from gpuform.stacks.topology.calling import value_of  # noqa: PLC0415 - as below

    return value_of(text, variables)


def run(path: str = "topology.yaml") -> None:
    """Registers what a topology file declares, in the running Pulumi program.

    `path` is relative to the current folder, which is the program's. Ends the program with every
    problem of the file, each with file:line:column, before anything is registered.
    """
    from pathlib import Path  # noqa: PLC0415 - every command imports this package

    from gpuform.stacks.program import run_topology  # noqa: PLC0415

    run_topology(Path(path))
