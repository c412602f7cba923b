"""Hold the arguments of `preview`, `up`, `refresh`, `destroy`, `expire` and `repair` as data.

The commands build `RunArguments` from their flags; the modules that run operations read them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from gpuform.stacks.cli.terminal.screen import DisplayOptions
from gpuform.stacks.operations.runs.options import RunOptions

_OPTION_NAMES = frozenset(option.name for option in fields(RunOptions))


@dataclass(frozen=True, slots=True)
class RunArguments:
    """The options of a run, whether it asks for confirmation or rehearses, and what is shown."""

    options: RunOptions
    yes: bool = False
    json: bool = False
    detailed_exitcode: bool = False
    rehearse: bool = False
    display: DisplayOptions = field(default_factory=DisplayOptions)

    @classmethod
    def from_flags(cls, options: RunOptions, flags: Mapping[str, Any]) -> Self:
        """Build the arguments from `options` and the values of the command's flags."""
        option_values = {name: value for name, value in flags.items() if name in _OPTION_NAMES}
        options = replace(options, **option_values)
        return cls(
            options,
            # With defaults, because not every command has all flags: `preview` has no --yes.
            yes=flags.get("yes", False),
            json=flags["json"],
            detailed_exitcode=flags.get("detailed_exitcode", False),
            rehearse=flags.get("rehearse", False),
            display=DisplayOptions(
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
        """Return the name of the command, for messages."""
        return self.options.command
