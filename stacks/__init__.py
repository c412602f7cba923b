"""Run stacks of GPU clusters. A topology's `__main__.py` is `run("topology.yaml")`.

User programs import `run`, `Module`, `expression` and `is_emulated` from here.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuform.stacks.topology_program import Module

__all__ = ["Module", "expression", "is_emulated", "run"]


def __getattr__(name: str) -> Any:
    """Import `Module` when a program uses the class: every command imports this package."""
    if name == "Module":
        from gpuform.stacks.topology_program import Module  # noqa: PLC0415 - every command imports this package

        return Module
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def expression(text: str, /, **variables: Any) -> Any:
    """Return the value of a topology's text with `{{ }}`, for a Python program.

    `variables` are the names in the text: values, outputs, resources, or objects of these. The
    value is an output if the text uses an output or a resource; errors are those of a topology. So
    Python programs can use every expression of a topology:

        expression("{{ clusters.train.urls | dictsort }}", clusters={"train": train})
    """
    from gpuform.stacks.topology_program import evaluate_expression  # noqa: PLC0415

    return evaluate_expression(text, variables)


def is_emulated() -> bool:
    """Return whether every platform of this run is the emulator.

    Programs use this to keep values for tests away from real platforms:

        password = (
            config.get_secret("password", "Only4Tests!")
            if is_emulated()
            else config.require_secret("password")
        )
    """
    from gpuform.providers.environment import are_emulated  # noqa: PLC0415

    return are_emulated()


def run(path: str = "topology.yaml") -> None:
    """Register the declarations of a topology file in the running Pulumi program.

    `path` is relative to the current folder, which is the program's. If the file has problems, the
    program ends with all of them, each with file:line:column, before anything is registered.
    """
    from pathlib import Path  # noqa: PLC0415 - every command imports this package

    from gpuform.stacks.topology_program import run_topology  # noqa: PLC0415

    run_topology(Path(path))
