"""Whole stacks. A topology's `__main__.py` is `run("topology.yaml")`."""

__all__ = ["run"]


def run(path: str = "topology.yaml") -> None:
    """Registers what a topology file declares, in the running Pulumi program.

    `path` is relative to the current folder, which is the program's. Ends the program with every
    problem of the file, each with file:line:column, before anything is registered.
    """
    from pathlib import Path  # noqa: PLC0415 - every command imports this package

    from gpuform.stacks.program import run_topology  # noqa: PLC0415

    run_topology(Path(path))
