"""Whole stacks. A topology's `__main__.py` is `run("topology.yaml")`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuform.stacks.module import Module

__all__ = ["Module", "expression", "is_emulated", "run"]


def __getattr__(name: str) -> Any:
    """`Module`, only when a program asks for it: every command imports this package."""
    if name == "Module":
        from gpuform.stacks.module import Module  # noqa: PLC0415 - as said

        return Module
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def expression(text: str, /, **variables: Any) -> Any:
    """The value of a topology's text with `{{ }}`, in a Python program.

    `variables` are what it refers to: values, outputs, resources, or objects of these. The value is
    an output where one of them is needed that is an output or a resource; it fails as it would in a
    topology. What a topology can say is thus never lost on the way to Python:

        expression("{{ clusters.train.urls | dictsort }}", clusters={"train": train})
    """
    from gpuform.stacks.topology.calling import evaluate_expression  # noqa: PLC0415 - as below

    return evaluate_expression(text, variables)


def is_emulated() -> bool:
    """Whether every platform of this run is the emulator: for what must not reach a real one.

    password = (
        config.get_secret("password", "Only4Tests!")
        if is_emulated()
        else config.require_secret("password")
    )
    """
    from gpuform.providers.environment import are_emulated  # noqa: PLC0415 - as above

    return are_emulated()


def run(path: str = "topology.yaml") -> None:
    """Registers what a topology file declares, in the running Pulumi program.

    `path` is relative to the current folder, which is the program's. Ends the program with every
    problem of the file, each with file:line:column, before anything is registered.
    """
    from pathlib import Path  # noqa: PLC0415 - every command imports this package

    from gpuform.stacks.program import run_topology  # noqa: PLC0415

    run_topology(Path(path))
