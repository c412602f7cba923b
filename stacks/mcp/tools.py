"""Define the tools of an agent. Names, parameters and docstrings are what the agent sees.

`server` registers the tools.
"""

import json
import re
import shlex
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, Final, Literal, ParamSpec

from gpuform.providers.catalog import render_capability_table
from gpuform.providers.context import get_run_context
from gpuform.providers.environment import KNOWN_SCHEDULERS_VARIABLE as KNOWN_SCHEDULERS
from gpuform.providers.environment import find_schedulers
from gpuform.schemas.errors import GpuformError
from gpuform.stacks.engine.project import Project
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.gates.file import read_project_gates
from gpuform.stacks.help_pages import find_page, list_page_names, read_page
from gpuform.stacks.mcp.commands import AgentCommandResult, AgentCommandRunner, run_simulation
from gpuform.stacks.mcp.projects import (
    Answer,
    ProjectFolder,
    Projects,
    RequestRefused,
    get_project_backend,
    is_topology_project,
    list_secret_defaults,
    shorten_answer,
)
from gpuform.stacks.operations.runs.plan_file import read_plan

P = ParamSpec("P")
_GATES_STOP_EXIT_CODE: Final = 5
"""The exit code of a preview with stopping gates. The plan exists (exit-codes page)."""
_STACK_PATTERN: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_PLAN_PATTERN: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,199}\.json")
"""Names without characters that a shell or a terminal interprets: a person pastes the command."""
_MAX_PROBLEMS: Final = 200
_MAX_PAGES: Final = 20
_EXCERPT_LENGTH: Final = 400


def _answer_errors(tool: Callable[P, Answer]) -> Callable[P, Answer]:
    """Wrap a tool to return errors as answers, and to shorten long texts."""

    @wraps(tool)
    def answer_or_problem(*arguments: P.args, **named: P.kwargs) -> Answer:
        try:
            return shorten_answer(tool(*arguments, **named))
        except GpuformError as error:
            problem = {"problem": error.message, "what_to_do": error.hint or ""}
            return Answer(ok=False, data=problem)
        except (OSError, ValueError) as error:  # a path that no file can have
            problem = {"problem": f"not a valid path or value: {error}", "what_to_do": ""}
            return Answer(ok=False, data=problem)

    return answer_or_problem


@dataclass(frozen=True, slots=True)
class Tools:
    """The tools for the projects of one folder. `commands` decides whether programs may run."""

    projects: Projects
    commands: AgentCommandRunner = field(default_factory=AgentCommandRunner)
    _save_lock: threading.Lock = field(default_factory=threading.Lock)
    """Serializes `save_plan`: an answer must describe the plan of its own call."""

    @_answer_errors
    def list_stacks(self) -> Answer:
        """List the projects below the folder, and the stacks of each with the last change."""
        answer_data = {}
        for project in self.projects.list_projects():
            result = self.commands.run(project.directory, "stack", "ls", "--json")
            stacks = result.parse_json()
            answer_data[self.projects.to_relative_path(project.directory)] = {
                "project": project.name,
                "description": project.description,
                "is_topology": is_topology_project(project),
                "stacks": stacks if result.succeeded else {"problem": result.stderr},
            }
        return Answer(ok=True, data=answer_data)

    @_answer_errors
    def read_stack(self, folder: str, stack: str) -> Answer:
        """Read a stack: resources with states, GPUs and cost, outputs, and configuration.

        The answer is what the state and the files hold; no platform is asked. Secrets are masked.
        `folder` is the project's, as `list_stacks` names it.
        """
        project = self.projects.find_project(folder)
        parts: dict[str, Any] = {"files": self.projects.list_files(project)}
        for name, arguments in (
            ("status", ("status", "--json")),
            ("outputs", ("stack", "output", "--json")),
            ("config", ("config", "--json")),
        ):
            result = self.commands.run(
                project.directory, *arguments, "--stack", self._require_stack_name(stack)
            )
            if not result.succeeded:
                return _build_failure(result)
            parts[name] = result.parse_json()
        return Answer(ok=True, data=parts)

    @_answer_errors
    def read_resource(self, folder: str, stack: str, name: str) -> Answer:
        """Read one resource of a stack's state: its inputs and outputs. Secrets are masked.

        `name` is the resource's name or URN.
        """
        project = self.projects.find_project(folder)
        resources = _get_resources(self._export_stack(project, self._require_stack_name(stack)))
        if not any(name in (resource["urn"], name_of(resource["urn"])) for resource in resources):
            # Not by the name: what is masked in it would tell a secret.
            raise RequestRefused(
                "the stack has no resource with this name", hint="`read_stack` lists the resources"
            )
        arguments = ("state", "show", "--json", "--stack", stack, "--", name)
        result = self.commands.run(project.directory, *arguments)
        if not result.succeeded:
            return _build_failure(result)
        return Answer(ok=True, data=result.parse_json())

    @_answer_errors
    def read_file(self, folder: str, path: str) -> Answer:
        """Read a file of a project: topology, module, gates, prices, tests, or program.

        Secrets are masked. `path` is relative to the project's folder, as `read_stack` lists it.
        """
        project = self.projects.find_project(folder)
        content = self.projects.read_file(project, path)
        return Answer(ok=True, data=self.commands.redact(content, list_secret_defaults(project)))

    @_answer_errors
    def list_kinds(self) -> Answer:
        """List the kinds of resources, with the platforms of each."""
        return Answer(ok=True, told={"kinds": render_capability_table()})

    @_answer_errors
    def read_schema(
        self, of: Literal["topology", "tests", "gates", "prices", "stacks"], part: str = ""
    ) -> Answer:
        """Read the JSON Schema of a kind of file.

        Without `part` the answer lists the names of the parts; with one of them, such as `clusters`
        of a topology, it has that part's schema.
        """
        result = self.commands.run(self.projects.root, "schema", "--of", of)
        schema = result.parse_json()
        if not result.succeeded or not isinstance(schema, dict):
            return _build_failure(result)
        parts = {**schema.get("$defs", {}), **schema.get("properties", {})}
        if part in parts:
            return Answer(ok=True, told={"schema": parts[part]})
        return Answer(ok=not part, told={"parts": sorted(parts), "description": schema["title"]})

    @_answer_errors
    def search_docs(self, words: str) -> Answer:
        """Search the documentation for pages with all of the words, and return excerpts."""
        lowered_words = words.lower().split()
        excerpts = {}
        for name in list_page_names():
            page_text = read_page(name).text
            if lowered_words and all(word in page_text.lower() for word in lowered_words):
                found_at = page_text.lower().find(lowered_words[0])
                start = max(0, found_at - _EXCERPT_LENGTH // 2)
                excerpts[name] = page_text[start : start + _EXCERPT_LENGTH]
            # Agents pay for every character of an answer.
            if len(excerpts) == _MAX_PAGES:
                break
        return Answer(ok=True, told={"pages": excerpts})

    @_answer_errors
    def read_page(self, name: str) -> Answer:
        """Read a page of the documentation, such as reference/resources/together/cluster."""
        page_name = find_page(name)
        return Answer(ok=True, told={"page": page_name, "text": read_page(page_name).text})

    @_answer_errors
    def validate(
        self, folder: str, files: dict[str, str] | None = None, stack: str | None = None
    ) -> Answer:
        """Check a project's topology, and return every problem with file, line and column.

        `files` are proposed texts of topologies and modules, by their paths in the project; nothing
        is written. No platform is asked.
        """
        project = self.projects.find_project(folder)
        stack_arguments = () if stack is None else ("--stack", self._require_stack_name(stack))
        with self.projects.open_with_files(project, files or {}) as project_folder:
            arguments = ("validate", "--format", "json", *stack_arguments)
            result = self.commands.run_proposal(project_folder, *arguments, needs_platforms=False)
        problems = result.parse_json()
        if problems is None:
            return _build_failure(result)
        counts = {"problems": len(problems), "shown": min(len(problems), _MAX_PROBLEMS)}
        return Answer(ok=result.succeeded, told=counts, data=problems[:_MAX_PROBLEMS])

    @_answer_errors
    def simulate(  # noqa: PLR0913, PLR0917 - each of them is a choice of the agent
        self,
        folder: str,
        stack: str,
        files: dict[str, str] | None = None,
        config: dict[str, Any] | None = None,
        secrets: dict[str, str] | None = None,
        events: list[dict[str, Any]] | None = None,
        run: Literal["preview", "up", "refresh", "destroy", "expire", "repair"] = "up",
        from_state: bool = True,
        allow: list[str] | None = None,
    ) -> Answer:
        """Simulate a change on an emulator with the objects of the stack's state.

        The answer has the plan, the events of the run, the time by the platform's clock, and the
        objects afterwards. `files` are as for `validate`. `events` happen during the run, as test
        files describe them (page reference/tests). With `from_state` false the stack starts empty.
        Secrets of the stack have placeholders, unless `secrets` gives other texts.
        """
        project = self.projects.find_project(folder)
        self._require_topology(project)
        stack = self._require_stack_name(stack)
        state = self._export_state(project, stack) if from_state else None
        inputs: dict[str, Any] = {
            "config": config,
            "secrets": secrets,
            "events": events,
            "run": run,
            "allow": allow,
        }
        with self.projects.open_with_files(project, files or {}) as project_folder:
            answer = run_simulation(project, project_folder, stack, inputs, state)
        # A program may read secrets from the environment; a topology cannot.
        return self._redact_answer(answer) if self.commands.runs_programs else answer

    @_answer_errors
    def save_plan(
        self,
        folder: str,
        stack: str,
        save_to: str,
        files: dict[str, str] | None = None,
        operation: Literal["up", "refresh", "destroy"] = "up",
    ) -> Answer:
        """Plan a change by reading the platforms, and save the plan for a person to apply.

        The answer has the plan's review, its digest, and the command that applies it. `save_to` is
        a new file of the project, or an earlier plan. With `files`, as for `validate`, the plan is
        for the project with these files; the person has to put them there before applying the plan.
        """
        project = self.projects.find_project(folder)
        self._require_topology(project)
        stack = self._require_stack_name(stack)
        target = self.projects.resolve_path(project, save_to)
        _require_plan_path(target, save_to)
        arguments: tuple[str, ...] = (
            ("preview",) if operation == "up" else (operation, "--preview-only")
        )
        arguments = (*arguments, "--stack", stack, "--save-plan", str(target))
        with self._save_lock:
            with self.projects.open_with_files(project, files or {}) as project_folder:
                environ = {
                    **project_folder.environ,
                    # From the copy of a proposal, the relative URL of a backend would lead to
                    # another folder.
                    "PULUMI_BACKEND_URL": get_project_backend(project, get_run_context().environ),
                }
                # A proposal may name any address as a scheduler, and would get credentials sent
                # there.
                if project_folder.is_proposal:
                    environ[KNOWN_SCHEDULERS] = self._list_schedulers(project, stack)
                result = self.commands.run_proposal(
                    project_folder, *arguments, needs_platforms=True, environ=environ
                )
            # A plan that gates stop is saved as well: the person sees why.
            if not result.succeeded and result.exit_code != _GATES_STOP_EXIT_CODE:
                return _build_failure(result)
            return self._build_plan_answer(project, target, stack)

    def _build_plan_answer(self, project: Project, target: Path, stack: str) -> Answer:
        """Return the answer about a saved plan: summary, digest, commands, and review."""
        plan = read_plan(target)
        name = target.relative_to(project.directory).as_posix()
        project_folder = ProjectFolder(project.directory, {})
        result = self.commands.run_proposal(
            project_folder, "review", name, "--format", "markdown", needs_platforms=False
        )
        digest = plan.basis.seal if plan.basis is not None else ""
        operation = "up" if plan.operation == "update" else plan.operation
        command = ("gpuform", operation, "--stack", stack, "--plan", name, "--digest", digest)
        facts = {
            "plan": name,
            "digest": digest,
            "summary": {str(action): count for action, count in plan.summary.items()},
            "gates_that_stop": [gate.name for gate in plan.gates or () if gate.is_blocking],
            "to_review": shlex.join(("gpuform", "review", name)),
            "to_apply": shlex.join(command),
            "who_applies": "A person who has reviewed the plan. These tools cannot.",
        }
        return Answer(ok=True, told=facts, data={"review": result.stdout})

    def _export_state(self, project: Project, stack: str) -> bytes | None:
        """Return the stack's state with encrypted secrets, or None without resources."""
        result = self._export_stack(project, stack)
        return result.stdout.encode() if _get_resources(result) else None

    def _list_schedulers(self, project: Project, stack: str) -> str:
        """Return the schedulers of the stack's resources as JSON.

        A proposal may contact no others.
        """
        resources = _get_resources(self._export_stack(project, stack))
        return json.dumps(find_schedulers([resource.get("inputs") for resource in resources]))

    def _export_stack(self, project: Project, stack: str) -> AgentCommandResult:
        """Run `gpuform stack export`, and return its result.

        Raises:
            RequestRefused: the state cannot be read.
        """
        result = self.commands.run(project.directory, "stack", "export", "--stack", stack)
        if not result.succeeded:
            raise RequestRefused(f"the state of {stack} cannot be read: {result.stderr.strip()}")
        return result

    def _require_stack_name(self, stack: str) -> str:
        """Return the name, or raise RequestRefused for an invalid name of a stack."""
        if not _STACK_PATTERN.fullmatch(stack):
            raise RequestRefused(
                f"{stack!r} is not a valid stack name", hint="`list_stacks` lists the stacks"
            )
        return stack

    def _require_topology(self, project: Project) -> None:
        """Raise RequestRefused if planning would run a program or a gate in Python.

        Nothing if the commands may run programs.
        """
        if self.commands.runs_programs:
            return
        hint = "a person may allow that: `gpuform mcp --run-programs`"
        if not is_topology_project(project):
            raise RequestRefused(
                f"project {project.name} is a Python program, and planning would run it", hint=hint
            )
        if any(gate.rule == "python" for gate in read_project_gates(project.directory)):
            raise RequestRefused(
                f"a gate of project {project.name} is written in Python, and planning would run it",
                hint=hint,
            )

    def _redact_answer(self, answer: Answer) -> Answer:
        redacted = self.commands.redact(answer.model_dump_json())
        return Answer.model_validate_json(redacted)


def _get_resources(export_result: AgentCommandResult) -> list[dict[str, Any]]:
    """Return the resources in an exported state; empty if the state has none."""
    return (export_result.parse_json() or {}).get("deployment", {}).get("resources") or []


def _build_failure(result: AgentCommandResult) -> Answer:
    """Return the failure of a command with the command's output as data.

    Programs and platforms may have written parts of the output.
    """
    return Answer(
        ok=False,
        told={"exit_code": result.exit_code},
        data=(result.stderr or result.stdout).strip(),
    )


def _require_plan_path(target: Path, name: str) -> None:
    """Raise RequestRefused unless the file has a safe name and is new or a saved plan.

    Its folder must exist.
    """
    if not _PLAN_PATTERN.fullmatch(name):
        raise RequestRefused(
            "a plan cannot be saved to this path",
            hint="use a file name of letters, digits, `.`, `_`, `-` and `/` that ends with .json",
        )
    if not target.parent.is_dir():
        raise RequestRefused(f"the folder of {name} does not exist", hint="use an existing folder")
    # Any other file of the project would be lost.
    if target.exists():
        try:
            is_plan = "format_version" in json.loads(target.read_text(encoding="utf-8"))
        except (OSError, ValueError, TypeError):
            is_plan = False
        if not is_plan:
            raise RequestRefused(f"{name} exists and is not a plan", hint="use another file name")
