"""The tools: what an agent can ask for, and what it is answered."""

import json
import os
import re
import shlex
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, Final, Literal, ParamSpec

from gpuform.providers.catalog import render_capability_table
from gpuform.providers.environment import KNOWN_SCHEDULERS_VARIABLE as KNOWN_SCHEDULERS
from gpuform.providers.environment import find_schedulers
from gpuform.schemas.errors import UserError
from gpuform.schemas.plan import Plan
from gpuform.stacks.engine.project import Project
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.gates.file import read_project_gates
from gpuform.stacks.help_pages import find_page, page_names, read_page
from gpuform.stacks.mcp.commands import Commands, Done, simulate
from gpuform.stacks.mcp.projects import (
    Answer,
    Place,
    Projects,
    Refused,
    backend_of,
    is_topology,
    secret_defaults,
    shortened,
)
from gpuform.stacks.operations.plans.plan_file import read_plan

P = ParamSpec("P")
_STOPPED: Final = 5
"""How a preview ends whose plan gates stop; the plan is there (reference/exit-codes)."""
_STACK: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_PLAN: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,199}\.json")
"""What nobody mistakes for a flag, a command or another text, wherever it is shown."""
_PROBLEMS: Final = 200
_FOUND: Final = 20
_SHOWN: Final = 400


def _answering(tool: Callable[P, Answer]) -> Callable[P, Answer]:
    """What is refused is an answer, too."""

    @wraps(tool)
    def answered(*arguments: P.args, **named: P.kwargs) -> Answer:
        try:
            return shortened(tool(*arguments, **named))
        except UserError as error:
            said = {"problem": error.message, "what_to_do": error.hint or ""}
            return Answer(ok=False, data=said)
        except (OSError, ValueError) as error:  # a path that no file can have
            said = {"problem": f"this cannot be used: {error}", "what_to_do": ""}
            return Answer(ok=False, data=said)

    return answered


@dataclass(frozen=True, slots=True)
class Tools:
    """Those of one folder. What the commands may run, they may, too."""

    projects: Projects
    commands: Commands = field(default_factory=Commands)
    _saving: threading.Lock = field(default_factory=threading.Lock)
    """An answer is about the plan that it has made, and no other call's."""

    @_answering
    def list_stacks(self) -> Answer:
        """List the projects below the folder, and the stacks of each with its last change."""
        found = {}
        for project in self.projects.all():
            done = self.commands.run(project.directory, "stack", "ls", "--json")
            stacks = done.json()
            found[self.projects.shown(project.directory)] = {
                "project": project.name,
                "description": project.description,
                "is_topology": is_topology(project),
                "stacks": stacks if done.succeeded else {"problem": done.said},
            }
        return Answer(ok=True, data=found)

    @_answering
    def read_stack(self, folder: str, stack: str) -> Answer:
        """Read a stack: its resources with their states, GPUs and cost, its outputs and its
        configuration, as the state and the files have them. Secrets are masked.

        `folder` is the project's, as `list_stacks` names it.
        """
        project = self.projects.find(folder)
        parts: dict[str, Any] = {"files": self.projects.files(project)}
        for name, words in (
            ("status", ("status", "--json")),
            ("outputs", ("stack", "output", "--json")),
            ("config", ("config", "--json")),
        ):
            done = self.commands.run(project.directory, *words, "--stack", self._named(stack))
            if not done.succeeded:
                return _failed(done)
            parts[name] = done.json()
        return Answer(ok=True, data=parts)

    @_answering
    def read_resource(self, folder: str, stack: str, name: str) -> Answer:
        """Read one resource of a stack's state: its inputs and outputs. Secrets are masked.

        `name` is its name or its URN.
        """
        project = self.projects.find(folder)
        known = _resources(self._exported(project, self._named(stack)))
        if not any(name in (each["urn"], name_of(each["urn"])) for each in known):
            # Not by the name: what is masked in it would tell a secret.
            raise Refused(
                "the stack has no resource of that name", hint="`read_stack` lists the resources"
            )
        words = ("state", "show", "--json", "--stack", stack, "--", name)
        done = self.commands.run(project.directory, *words)
        return Answer(ok=True, data=done.json()) if done.succeeded else _failed(done)

    @_answering
    def read_file(self, folder: str, path: str) -> Answer:
        """Read a file of a project: its topology, modules, gates, prices, tests, programs.

        `path` is from the project's folder, as `read_stack` tells it. Secrets are masked.
        """
        project = self.projects.find(folder)
        text = self.projects.read(project, path)
        return Answer(ok=True, data=self.commands.redacted(text, secret_defaults(project)))

    @_answering
    def list_kinds(self) -> Answer:
        """List the kinds of resources, and which platforms have them."""
        return Answer(ok=True, told={"kinds": render_capability_table()})

    @_answering
    def read_schema(
        self, of: Literal["topology", "tests", "gates", "prices", "stacks"], part: str = ""
    ) -> Answer:
        """Read the JSON Schema of a kind of file. Without `part` it tells the names of the parts;
        with one of them it gives that part, such as `clusters` of a topology.
        """
        done = self.commands.run(self.projects.root, "schema", "--of", of)
        schema = done.json()
        if not done.succeeded or not isinstance(schema, dict):
            return _failed(done)
        parts = {**schema.get("$defs", {}), **schema.get("properties", {})}
        if part in parts:
            return Answer(ok=True, told={"schema": parts[part]})
        return Answer(ok=not part, told={"parts": sorted(parts), "description": schema["title"]})

    @_answering
    def search_docs(self, words: str) -> Answer:
        """Search the documentation: the pages that have all of the words, with where they do."""
        wanted = words.lower().split()
        found = {}
        for name in page_names():
            text = read_page(name).text
            if wanted and all(word in text.lower() for word in wanted):
                at = max(0, text.lower().find(wanted[0]) - _SHOWN // 2)
                found[name] = text[at : at + _SHOWN]
            if len(found) == _FOUND:
                break
        return Answer(ok=True, told={"pages": found})

    @_answering
    def read_page(self, name: str) -> Answer:
        """Read a page of the documentation, such as reference/resources/together/cluster."""
        found = find_page(name)
        return Answer(ok=True, told={"page": found, "text": read_page(found).text})

    @_answering
    def validate(
        self, folder: str, files: dict[str, str] | None = None, stack: str | None = None
    ) -> Answer:
        """Check a project's topology: every problem with file, line and column.

        `files` are texts of topologies and modules that are proposed, by their paths in the
        project; nothing is written. No platform is asked.
        """
        project = self.projects.find(folder)
        chosen = () if stack is None else ("--stack", self._named(stack))
        with self.projects.with_files(project, files or {}) as place:
            words = ("validate", "--format", "json", *chosen)
            done = self.commands.propose(place, *words, asks=False)
        problems = done.json()
        if problems is None:
            return _failed(done)
        told = {"problems": len(problems), "shown": min(len(problems), _PROBLEMS)}
        return Answer(ok=done.succeeded, told=told, data=problems[:_PROBLEMS])

    @_answering
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
        """Play a change on an emulator that holds what the stack's state names: the plan, how it
        goes, how long it takes by the platform's clock, what is there afterwards.

        `files` are as for `validate`. `events` are what happens meanwhile, as test files have them
        (page reference/tests). With `from_state` false the stack starts empty. Secrets of the
        stack are not known here: a text stands for each, or give others in `secrets`.
        """
        project = self.projects.find(folder)
        self._require_topology(project)
        stack = self._named(stack)
        state = self._state(project, stack) if from_state else None
        inputs = {"config": config, "secrets": secrets, "events": events, "run": run}
        with self.projects.with_files(project, files or {}) as place:
            answer = simulate(project, place, stack, {**inputs, "allow": allow}, state)
        # A topology knows nothing of the environment.
        return self._redacted(answer) if self.commands.runs_programs else answer

    @_answering
    def save_plan(
        self,
        folder: str,
        stack: str,
        save_to: str,
        files: dict[str, str] | None = None,
        operation: Literal["up", "refresh", "destroy"] = "up",
    ) -> Answer:
        """Make the plan of a change against the platforms, which are only read, and save it for a
        person to review and apply: the answer has its review, its digest, and the command.

        `save_to` is a file of the project that is new, or an earlier plan. With `files`, as for
        `validate`, the plan is of the project with them; the person has to put them there first.
        """
        project = self.projects.find(folder)
        self._require_topology(project)
        stack = self._named(stack)
        target = self.projects.inside(project, save_to)
        _require_place_of_plan(target, save_to)
        words: tuple[str, ...] = (
            ("preview",) if operation == "up" else (operation, "--preview-only")
        )
        words = (*words, "--stack", stack, "--save-plan", str(target))
        with self._saving:
            with self.projects.with_files(project, files or {}) as place:
                environ = {**place.environ, "PULUMI_BACKEND_URL": backend_of(project, os.environ)}
                if place.is_proposal:
                    environ[KNOWN_SCHEDULERS] = self._schedulers(project, stack)
                made = self.commands.propose(place, *words, asks=True, environ=environ)
            if not made.succeeded and made.code != _STOPPED:
                return _failed(made)
            return self._reviewed(project, target, stack)

    def _reviewed(self, project: Project, target: Path, stack: str) -> Answer:
        plan = read_plan(target)
        name = target.relative_to(project.directory).as_posix()
        own = Place(project.directory, {})
        done = self.commands.propose(own, "review", name, "--format", "markdown", asks=False)
        digest = plan.basis.seal if plan.basis is not None else ""
        command = ("gpuform", _verb(plan), "--stack", stack, "--plan", name, "--digest", digest)
        told = {
            "plan": name,
            "digest": digest,
            "summary": {str(action): count for action, count in plan.summary.items()},
            "gates_that_stop": [each.name for each in plan.gates or () if each.is_blocking],
            "to_review": shlex.join(("gpuform", "review", name)),
            "to_apply": shlex.join(command),
            "who_applies": "A person who has reviewed the plan. These tools cannot.",
        }
        return Answer(ok=True, told=told, data={"review": done.out})

    def _state(self, project: Project, stack: str) -> bytes | None:
        """The stack's state with its secrets encrypted; None where it has no resources."""
        done = self._exported(project, stack)
        return done.out.encode() if _resources(done) else None

    def _schedulers(self, project: Project, stack: str) -> str:
        """Those that the resources of the stack name: a proposal has no others asked."""
        inputs = [each.get("inputs") for each in _resources(self._exported(project, stack))]
        return json.dumps(find_schedulers(inputs))

    def _exported(self, project: Project, stack: str) -> Done:
        done = self.commands.run(project.directory, "stack", "export", "--stack", stack)
        if not done.succeeded:
            raise Refused(f"the state of {stack} cannot be read: {done.said.strip()}")
        return done

    def _named(self, stack: str) -> str:
        """A stack's name in its project. Raises Refused for what is no name."""
        if not _STACK.fullmatch(stack):
            raise Refused(
                f"{stack!r} is not a valid stack name", hint="`list_stacks` lists the stacks"
            )
        return stack

    def _require_topology(self, project: Project) -> None:
        if self.commands.runs_programs:
            return
        hint = "a person may allow that: `gpuform mcp --run-programs`"
        if not is_topology(project):
            raise Refused(
                f"project {project.name} is a Python program, and planning would run it", hint=hint
            )
        if any(each.rule == "python" for each in read_project_gates(project.directory)):
            raise Refused(
                f"a gate of project {project.name} is written in Python, and planning would run it",
                hint=hint,
            )

    def _redacted(self, answer: Answer) -> Answer:
        text = self.commands.redacted(answer.model_dump_json())
        return Answer.model_validate_json(text)


def _resources(exported: Done) -> list[dict[str, Any]]:
    return (exported.json() or {}).get("deployment", {}).get("resources") or []


def _verb(plan: Plan) -> str:
    return "up" if plan.operation == "update" else plan.operation


def _failed(done: Done) -> Answer:
    """The command's own words; programs and platforms may be among those who speak."""
    return Answer(ok=False, told={"exit_code": done.code}, data=(done.said or done.out).strip())


def _require_place_of_plan(target: Path, name: str) -> None:
    """A new file, or one that is a saved plan."""
    if not _PLAN.fullmatch(name):
        raise Refused(
            "a plan cannot be written there",
            hint="name a file that ends with .json, of letters, digits, `.`, `_`, `-` and `/`",
        )
    if not target.parent.is_dir():
        raise Refused(f"there is no folder for {name}", hint="name one that is there")
    if target.exists():
        try:
            is_plan = "format_version" in json.loads(target.read_text(encoding="utf-8"))
        except (OSError, ValueError, TypeError):
            is_plan = False
        if not is_plan:
            raise Refused(f"{name} exists and is not a plan", hint="name another file")
