"""Run gpuform's commands for an agent in processes that may only read, and simulate a change on an
emulator.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final

from gpuform.providers.context import READS_ONLY
from gpuform.providers.platform import platforms
from gpuform.providers.values import Redactor
from gpuform.schemas.cases_file import CaseInputs
from gpuform.schemas.checking import validate_inputs
from gpuform.schemas.safe_text import MASK
from gpuform.stacks.engine.project import Project, StackSettings, is_secure
from gpuform.stacks.mcp.projects import Answer, Place, Refused
from gpuform.stacks.operations.opening.interpreter import MOVED
from gpuform.stacks.testing.case_run import CaseRunSpec, get_address
from gpuform.stacks.testing.comparison import format_duration, get_verdicts
from gpuform.stacks.testing.report import RunReport
from gpuform.stacks.testing.runner import CaseProcess, find_free_ports
from gpuform.stacks.testing.seeding import SECRET_PLACEHOLDER

SECONDS: Final = 300
"""How long a command may take. A plan of 10,000 resources takes a minute."""
_SECRET_NAME: Final = re.compile(r"(?i)key|token|secret|passw|passphrase|credential")
_PASSPHRASE: Final = "PULUMI_CONFIG_PASSPHRASE"  # noqa: S105 - the name of the variable
_FOR_BACKENDS: Final = ("PULUMI_", "AWS_", "AZURE_", "ARM_", "GOOGLE_", "VAULT_")
_SHORTEST: Final = 6
"""A shorter text may be part of any other."""
_PREFIX: Final = re.compile(r"[A-Za-z0-9]{1,8}[_-](?:[A-Za-z0-9]{1,6}[_-]){0,2}(?=.{16})")
"""How the keys of a service begin, all of them: `sk-`, `github_pat_`."""


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
    """Runs commands in folders, with the environment of this process.

    Unless it `runs_programs`, none goes on in the interpreter that a project names.
    """

    runs_programs: bool = False
    _environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def run(self, folder: Path, *arguments: str, environ: Mapping[str, str] | None = None) -> Done:
        """One command on a team's own files. It changes no platform and no state.

        Raises Refused for one that does not end.
        """
        done = self._run(folder, arguments, {**self._environ, **(environ or {})})
        return Done(done.code, self.redacted(done.out), self.redacted(done.said))

    def propose(
        self, place: Place, *arguments: str, asks: bool, environ: Mapping[str, str] | None = None
    ) -> Done:
        """The same where an agent has written a part of the files: with no secret that the command
        can do without, and of those that it needs not even the beginning is looked for.

        What is masked in an agent's own text would tell it what the secret is. `asks` says whether
        platforms and a backend are asked; without that no secret is needed.
        """
        secrets = _secrets_of(self._environ)
        dropped = {name for name in secrets if not (asks and _is_for_asking(name))}
        own = {name: value for name, value in self._environ.items() if name not in dropped}
        done = self._run(place.folder, arguments, {**own, **place.environ, **(environ or {})})
        # Nothing that is asked is told the passphrase, so that nothing can say it.
        told = (value for name, value in secrets.items() if name not in {*dropped, _PASSPHRASE})
        unknown = [_PREFIX.sub("", value, count=1) for value in told]
        redactor = Redactor([each for each in unknown if len(each) >= _SHORTEST])
        return Done(done.code, redactor.redact(done.out), redactor.redact(done.said))

    def redacted(self, text: str, more: Sequence[str] = ()) -> str:
        """The text without the environment's secrets, and without `more` of them."""
        secrets = _secrets_of(self._environ)
        found = [value for value in secrets.values() if len(value) >= _SHORTEST]
        return Redactor([*found, *more]).redact(text)

    def _run(self, folder: Path, arguments: Sequence[str], environ: Mapping[str, str]) -> Done:
        quiet = {READS_ONLY: "1", "NO_COLOR": "1", "PULUMI_DISABLE_CI_DETECTION": "true"}
        if not self.runs_programs:
            quiet[MOVED] = "1"
        try:
            done = subprocess.run(  # noqa: S603 - gpuform itself, and no shell reads the arguments
                [sys.executable, "-P", "-m", "gpuform.stacks.cli", *arguments],
                cwd=folder,
                env={**environ, **quiet},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise Refused(
                f"`gpuform {arguments[0]}` did not end within {SECONDS} seconds",
                hint="propose less, or let a person run it",
            ) from None
        out, said = (each.decode("utf-8", "replace") for each in (done.stdout, done.stderr))
        return Done(done.returncode, out, said)


def _is_for_asking(name: str) -> bool:
    return name in _own_settings() or name.startswith(_FOR_BACKENDS)


def _own_settings() -> set[str]:
    settings = (setting for each in platforms().values() for setting in each.settings)
    return {setting.variable for setting in settings if setting.secret}


def _secrets_of(environ: Mapping[str, str]) -> dict[str, str]:
    """Whatever the environment may hold as a secret, by the names of its variables; not the keys
    of the emulator, which are in its documentation.
    """
    own = _own_settings()
    emulated = set(chain.from_iterable(each.emulated.values() for each in platforms().values()))
    found = {
        name: value
        for name, value in environ.items()
        if (name in own or _SECRET_NAME.search(name)) and value not in emulated
    }
    file = environ.get("PULUMI_CONFIG_PASSPHRASE_FILE")
    if file:
        try:
            found[_PASSPHRASE] = Path(file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return found
    return found


def simulate(
    project: Project, place: Place, stack: str, inputs: Mapping[str, Any], state: bytes | None
) -> Answer:
    """One run of the project in a place, by the fields of a test case, from a state if given.

    A secret of the stack has a text that stands for it, unless the inputs give it another.
    """
    secrets = {**_stand_ins(project, stack), **(inputs.get("secrets") or {})}
    given = {key: value for key, value in inputs.items() if value is not None}
    values, problems = validate_inputs(CaseInputs, {**given, "stack": stack, "secrets": secrets})
    if problems:
        return Answer(ok=False, told={"problems": [str(each) for each in problems]})
    folder = tempfile.TemporaryDirectory(prefix="gpuform-simulation-", ignore_cleanup_errors=True)
    with folder as name:
        kept = Path(name)
        file = kept / f"{stack}.json"
        if state is not None:
            file.write_bytes(state)
        (kept / "played").mkdir()
        part = CaseRunSpec(
            place.folder / project.path.name,
            kept / "played",
            next(find_free_ports()),
            CaseInputs.model_validate(values),
            has_predecessor=False,
            state=None if state is None else file,
            environ=place.environ,
        )
        process = CaseProcess(part)
        report = process.run()
    if report is None:
        return Answer(ok=False, told={"problem": "the run could not be played"}, data=process.error)
    return _answer(report)


def _answer(report: RunReport) -> Answer:
    plan, left = report.plan, report.final_state
    told: dict[str, Any] = {
        "ending": report.ending,
        "platform_time": format_duration(left.seconds),
        "plan": {get_address(each.type, each.urn): str(each.action) for each in plan.changes}
        if plan is not None
        else None,
        "gates": dict(get_verdicts(plan)),
        "hourly_cost": dict(plan.cost.after.sum_hourly_costs())
        if plan is not None and plan.cost
        else {},
        "events_that_did_not_happen": _missed(report),
    }
    data = {
        "errors": list(report.errors),
        "warnings": list(report.warnings),
        "changes": [
            each.model_dump(mode="json", exclude_defaults=True)
            for each in (plan.changes if plan is not None else ())
            if each.action != "same"
        ],
        "outputs": {
            name: MASK if each.secret else each.value for name, each in left.outputs.items()
        },
        "objects": {
            f"{platform}/{kind}": list(objects)
            for platform, kinds in left.objects.items()
            for kind, objects in kinds.items()
            if objects
        },
    }
    return Answer(ok=report.ending == "succeeded", told=told, data=data)


def _missed(report: RunReport) -> list[str]:
    late = [f"event {number}: the run was over before" for number in report.pending_events]
    return [*late, *(f"event {number}: {why}" for number, why in report.failed_events.items())]


def _stand_ins(project: Project, stack: str) -> dict[str, str]:
    """A text for each value that the stack's settings have encrypted."""
    config = StackSettings.load(project, stack).config
    return {key: SECRET_PLACEHOLDER for key, value in config.items() if is_secure(value)}
