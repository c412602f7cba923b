"""Run gpuform commands for an agent in read-only processes, and simulate changes on an emulator.

`tools` calls this module.
"""

import json
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final

from gpuform.providers.context import READS_ONLY, get_run_context
from gpuform.providers.platform import platforms
from gpuform.providers.values import Redactor
from gpuform.schemas.cases_file import CaseInputs
from gpuform.schemas.checking import validate_inputs
from gpuform.schemas.safe_text import MASK
from gpuform.stacks.engine.project import Project, StackSettings, is_secure
from gpuform.stacks.mcp.projects import Answer, ProjectFolder, RequestRefused
from gpuform.stacks.operations.opening.interpreter import MOVED, build_command_start
from gpuform.stacks.testing.case_run import CaseRunSpec
from gpuform.stacks.testing.cases import RunReport, get_address
from gpuform.stacks.testing.comparison import format_duration, get_verdicts
from gpuform.stacks.testing.processes import CaseProcess
from gpuform.stacks.testing.runner import find_free_ports
from gpuform.stacks.testing.seeding import SECRET_PLACEHOLDER

COMMAND_TIMEOUT_S: Final = 300
"""The time limit of a command. A plan of 10,000 resources takes a minute."""
_SECRET_NAME: Final = re.compile(r"(?i)key|token|secret|passw|passphrase|credential")
_PASSPHRASE: Final = "PULUMI_CONFIG_PASSPHRASE"  # noqa: S105 - the name of the variable
_BACKEND_PREFIXES: Final = ("PULUMI_", "AWS_", "AZURE_", "ARM_", "GOOGLE_", "VAULT_")
_MIN_SECRET_LENGTH: Final = 6
"""The shortest secret to mask. A shorter text may be part of any other text."""
_KEY_PREFIX: Final = re.compile(r"[A-Za-z0-9]{1,8}[_-](?:[A-Za-z0-9]{1,6}[_-]){0,2}(?=.{16})")
"""The common beginning of all keys of a service, such as `sk-` or `github_pat_`."""


@dataclass(frozen=True, slots=True)
class AgentCommandResult:
    """The result of an ended command, with masked secrets."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def succeeded(self) -> bool:
        return self.exit_code == 0

    def parse_json(self) -> Any:
        """Return the parsed standard output, or None without valid JSON."""
        try:
            return json.loads(self.stdout)
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class AgentCommandRunner:
    """Run commands in folders, with the environment of this process.

    Unless it `runs_programs`, no command switches to the interpreter that a project names.
    """

    runs_programs: bool = False
    _environ: Mapping[str, str] = field(default_factory=lambda: get_run_context().environ)

    def run(
        self, folder: Path, *arguments: str, environ: Mapping[str, str] | None = None
    ) -> AgentCommandResult:
        """Run one command on a project's own files, with read-only access.

        Raises:
            RequestRefused: the command did not end in time.
        """
        result = self._run(folder, arguments, {**self._environ, **(environ or {})})
        return AgentCommandResult(
            result.exit_code, self.redact(result.stdout), self.redact(result.stderr)
        )

    def run_proposal(
        self,
        folder: ProjectFolder,
        *arguments: str,
        needs_platforms: bool,
        environ: Mapping[str, str] | None = None,
    ) -> AgentCommandResult:
        """Run one command on files partly written by an agent.

        With `needs_platforms` the command gets the secrets for platforms and backends, otherwise
        none. The known prefix of a key is not masked: a mask in the agent's own text would confirm
        a guess of the secret, letter by letter.
        """
        secrets = _find_secrets(self._environ)
        dropped = {name for name in secrets if not (needs_platforms and _is_needed_to_ask(name))}
        kept_environ = {k: value for k, value in self._environ.items() if k not in dropped}
        final_environ = {**kept_environ, **folder.environ, **(environ or {})}
        result = self._run(folder.folder, arguments, final_environ)
        # No platform and no backend gets the passphrase, so that none can return it.
        dropped.add(_PASSPHRASE)
        kept_secrets = (value for name, value in secrets.items() if name not in dropped)
        secret_parts = [_KEY_PREFIX.sub("", value, count=1) for value in kept_secrets]
        redactor = Redactor([part for part in secret_parts if len(part) >= _MIN_SECRET_LENGTH])
        return AgentCommandResult(
            result.exit_code, redactor.redact(result.stdout), redactor.redact(result.stderr)
        )

    def redact(self, text: str, more_secrets: Sequence[str] = ()) -> str:
        """Return the text with the environment's secrets and `more_secrets` masked.

        Very short secrets of the environment stay.
        """
        secrets = _find_secrets(self._environ)
        values = [value for value in secrets.values() if len(value) >= _MIN_SECRET_LENGTH]
        return Redactor([*values, *more_secrets]).redact(text)

    def _run(
        self, folder: Path, arguments: Sequence[str], environ: Mapping[str, str]
    ) -> AgentCommandResult:
        """Run one command with read-only access, and return its unmasked output.

        Raises:
            RequestRefused: the command did not end in time.
        """
        settings = {READS_ONLY: "1", "NO_COLOR": "1", "PULUMI_DISABLE_CI_DETECTION": "true"}
        if not self.runs_programs:
            # The variable says that the interpreter was chosen already: no other one is started.
            settings[MOVED] = "1"
        try:
            completed = subprocess.run(  # noqa: S603 - gpuform itself, and no shell reads the arguments
                [*build_command_start(), *arguments],
                cwd=folder,
                # The settings come last: no variable of the environment may lift the read-only
                # access.
                env={**environ, **settings},
                # The messages of the protocol arrive on this process's stdin.
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=COMMAND_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            raise RequestRefused(
                f"`gpuform {arguments[0]}` did not end within {COMMAND_TIMEOUT_S} seconds",
                hint="propose less, or let a person run it",
            ) from None
        output_text, error_text = (
            stream.decode("utf-8", "replace") for stream in (completed.stdout, completed.stderr)
        )
        return AgentCommandResult(completed.returncode, output_text, error_text)


def _is_needed_to_ask(name: str) -> bool:
    """Return whether a command needs the variable to ask platforms or the backend."""
    return name in _list_secret_variables() or name.startswith(_BACKEND_PREFIXES)


def _list_secret_variables() -> set[str]:
    settings = (setting for platform in platforms().values() for setting in platform.settings)
    return {setting.variable for setting in settings if setting.secret}


def _find_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the possibly secret values of the environment, by variable.

    The passphrase of a passphrase file is included. The emulator's keys are left out: the
    documentation has them.
    """
    secret_variables = _list_secret_variables()
    emulator_keys = set(
        chain.from_iterable(platform.emulated.values() for platform in platforms().values())
    )
    secrets = {
        name: value
        for name, value in environ.items()
        if (name in secret_variables or _SECRET_NAME.search(name)) and value not in emulator_keys
    }
    passphrase_file = environ.get("PULUMI_CONFIG_PASSPHRASE_FILE")
    if passphrase_file:
        try:
            secrets[_PASSPHRASE] = Path(passphrase_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return secrets
    return secrets


def run_simulation(
    project: Project,
    project_folder: ProjectFolder,
    stack: str,
    inputs: Mapping[str, Any],
    state: bytes | None,
) -> Answer:
    """Simulate one run of the project, described by the fields of a test case.

    `state` is an exported state to begin with, or None for an empty stack. Each encrypted value of
    the settings has a placeholder, unless `inputs` give another value. Invalid fields are an answer
    as well, not an error.
    """
    # The settings are encrypted, and this process must not need the passphrase.
    secrets = {**_build_placeholders(project, stack), **(inputs.get("secrets") or {})}
    case_values = {key: value for key, value in inputs.items() if value is not None}
    values, problems = validate_inputs(
        CaseInputs, {**case_values, "stack": stack, "secrets": secrets}
    )
    if problems:
        return Answer(ok=False, told={"problems": [str(problem) for problem in problems]})
    # The emulator of an ended simulation may still hold files for a moment.
    temporary_folder = tempfile.TemporaryDirectory(
        prefix="gpuform-simulation-", ignore_cleanup_errors=True
    )
    with temporary_folder as name:
        temporary_path = Path(name)
        file = temporary_path / f"{stack}.json"
        if state is not None:
            file.write_bytes(state)
        (temporary_path / "played").mkdir()
        part = CaseRunSpec(
            project_folder.folder / project.path.name,
            temporary_path / "played",
            next(find_free_ports()),
            CaseInputs.model_validate(values),
            has_predecessor=False,
            state=None if state is None else file,
            environ=project_folder.environ,
        )
        process = CaseProcess(part)
        report = process.run()
    if report is None:
        return Answer(
            ok=False, told={"problem": "the simulation could not run"}, data=process.error
        )
    return _build_answer(report)


def _build_answer(report: RunReport) -> Answer:
    """Build the answer of a tool from the report of a simulated run, with secret outputs masked."""
    plan, remaining_state = report.plan, report.final_state
    changes = plan.changes if plan is not None else ()
    actions = {get_address(change.type, change.urn): str(change.action) for change in changes}
    cost = plan.cost if plan is not None else None
    facts: dict[str, Any] = {
        "ending": report.ending,
        "platform_time": format_duration(remaining_state.seconds),
        "plan": None if plan is None else actions,
        "gates": get_verdicts(plan),
        "hourly_cost": dict(cost.after.sum_hourly_costs()) if cost else {},
        "events_that_did_not_happen": _list_unplayed_events(report),
    }
    data = {
        "errors": list(report.errors),
        "warnings": list(report.warnings),
        "changes": [
            change.model_dump(mode="json", exclude_defaults=True)
            for change in changes
            if change.action != "same"
        ],
        "outputs": {
            name: MASK if output.secret else output.value
            for name, output in remaining_state.outputs.items()
        },
        "objects": {
            f"{platform}/{kind}": list(objects)
            for platform, kinds in remaining_state.objects.items()
            for kind, objects in kinds.items()
            if objects
        },
    }
    return Answer(ok=report.ending == "succeeded", told=facts, data=data)


def _list_unplayed_events(report: RunReport) -> list[str]:
    """Describe each event of the case that did not happen, with the reason."""
    late = dict.fromkeys(report.pending_events, "the run ended before this event")
    reasons = [*late.items(), *report.failed_events.items()]
    return [f"event {number}: {reason}" for number, reason in reasons]


def _build_placeholders(project: Project, stack: str) -> dict[str, str]:
    """Return a placeholder for each encrypted value of the stack's settings, by key."""
    config = StackSettings.load(project, stack).config
    return {key: SECRET_PLACEHOLDER for key, value in config.items() if is_secure(value)}
