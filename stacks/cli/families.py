"""The families of commands, by which the documentation has them in folders."""

from collections.abc import Mapping
from typing import Final

FAMILIES: Final[Mapping[str, tuple[str, ...]]] = {
    "runs": (
        *("preview", "up", "refresh", "destroy", "import", "drift", "expire", "repair"),
        "cancel",
    ),
    "review": ("review", "fetch-plan", "graph"),
    "files": ("new", "validate", "test", "fmt", "convert", "console", "schema", "manifests"),
    "looking": ("status", "logs", "doctor", "orphans", "offers"),
    "access": ("kubeconfig", "ssh-config", "connect", "topology"),
    "stack": ("stack", "state", "config", "login", "logout", "about", "whoami"),
    "tools": ("emulator", "lsp", "mcp", "plugin", "help", "completion"),
}
"""Each family with its commands. A command of `gpuform` has to be in one of them."""

TITLES: Final[Mapping[str, str]] = {
    "runs": "Plan and change",
    "review": "Review",
    "files": "Files",
    "looking": "Look",
    "access": "Get on a cluster",
    "stack": "Stacks",
    "tools": "Tools",
}
"""What the families are called."""


def page_of(command: str) -> str:
    """The page of a command of `gpuform`, as `gpuform help` takes it. Raises KeyError for none."""
    family = next((name for name, commands in FAMILIES.items() if command in commands), None)
    if family is None:
        raise KeyError(f"{command} is in no family of stacks/cli/families.py")
    return f"reference/commands/{family}/{command}"
