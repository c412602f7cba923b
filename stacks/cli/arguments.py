"""What a person asked of `preview`, `up`, `refresh`, `destroy` or `expire`, as data."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from gpuform.stacks.cli.terminal.screen import Showing
from gpuform.stacks.operations.runs.options import RunOptions

_OPTIONS = frozenset(each.name for each in fields(RunOptions))


@dataclass(frozen=True, slots=True)
class RunArguments:
    """The operation's options, whether it asks, and what of it is shown, and how."""

    options: RunOptions
    yes: bool = False
    json: bool = False
    showing: Showing = field(default_factory=Showing)

    @classmethod
    def of(cls, options: RunOptions, flags: Mapping[str, Any]) -> Self:
        """`options` with what the flags say of them."""
        given = {name: value for name, value in flags.items() if name in _OPTIONS}
        options = replace(options, **given)
        return cls(
            options,
            yes=flags.get("yes", False),
            json=flags["json"],
            showing=Showing(
                sames=flags.get("show_sames", False),
                secrets=flags.get("show_secrets", False),
                urns=flags.get("urns", False),
                outputs=not flags.get("suppress_outputs", False),
                progress=not flags.get("suppress_progress", False),
                removes=options.remove,
            ),
        )

    @property
    def command(self) -> str:
        """The command's name, for messages."""
        options = self.options
        if options.preview_only and options.operation == "update":
            return "preview"
        return "up" if options.operation == "update" else options.operation
