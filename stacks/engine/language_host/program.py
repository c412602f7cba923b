"""What to run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuform.providers.actions import Settings


@dataclass(frozen=True, slots=True)
class Program:
    """What to run, and for which stack.

    `directory` is where the program is: its folder, or its file, as Pulumi.yaml's `main` says;
    `root` is where Pulumi.yaml is. `config` is in plain text under full keys.
    """

    project: str
    stack: str
    directory: Path
    root: Path
    config: Mapping[str, str]
    secret_keys: Sequence[str]
    parallel: int

    def secrets(self) -> set[str]:
        """The secret values of the configuration, and the platforms' keys wherever they are."""
        configured = {self.config[key] for key in self.secret_keys}
        return {*configured, *Settings(config=self.config.get).secrets()}
