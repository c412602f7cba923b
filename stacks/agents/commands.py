"""gpuform's commands, run for an agent in processes that may only read."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gpuform.providers.calls import READS_ONLY
from gpuform.providers.platforms import platforms
from gpuform.providers.values import Redactor

_SECRET_NAME: Final = re.compile(r"(?i)key|token|secret|passw|passphrase|credential")
_SHORTEST: Final = 6
"""A shorter text may be part of any other."""


@dataclass(frozen=True, slots=True)
class Done:
    """A command that has ended: what it printed, and said beside that, without secrets."""

    code: int
    out: str
    said: str

    @property
    def succeeded(self) -> bool:
        return self.code == 0

    def json(self) -> Any:
        """What it printed, as JSON; None where that is none."""
        try:
            return json.loads(self.out)
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class Commands:
    """Runs commands in folders, with the environment of this process."""

    _redactor: Redactor = field(default_factory=lambda: Redactor(_secrets_of(os.environ)))

    def run(self, folder: Path, *arguments: str, environ: Mapping[str, str] | None = None) -> Done:
        """One command to its end. It changes no platform and no state."""
        quiet = {READS_ONLY: "1", "NO_COLOR": "1", "PULUMI_DISABLE_CI_DETECTION": "true"}
        done = subprocess.run(  # noqa: S603 - gpuform itself, and no shell reads the arguments
            [sys.executable, "-P", "-m", "gpuform.stacks.cli", *arguments],
            cwd=folder,
            env={**os.environ, **(environ or {}), **quiet},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        out, said = (each.decode("utf-8", "replace") for each in (done.stdout, done.stderr))
        return Done(done.returncode, self.redacted(out), self.redacted(said))

    def redacted(self, text: str, more: Sequence[str] = ()) -> str:
        """The text without the environment's secrets, and without `more` of them."""
        text = self._redactor.redact(text)
        return Redactor(more).redact(text) if more else text


def _secrets_of(environ: Mapping[str, str]) -> list[str]:
    """Whatever the environment may hold as a secret, by the names of its variables."""
    settings = (setting for each in platforms().values() for setting in each.settings)
    own = {setting.variable for setting in settings if setting.secret}
    found = [
        value
        for name, value in environ.items()
        if len(value) >= _SHORTEST and (name in own or _SECRET_NAME.search(name))
    ]
    file = environ.get("PULUMI_CONFIG_PASSPHRASE_FILE")
    if file:
        try:
            found.append(Path(file).read_text(encoding="utf-8").strip())
        except (OSError, UnicodeDecodeError):
            return found
    return [each for each in found if len(each) >= _SHORTEST]
