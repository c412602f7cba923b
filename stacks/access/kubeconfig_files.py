"""The user's kubeconfig, of one file or of several, as kubectl finds it."""

import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from gpuform.stacks.access.kubeconfig import (
    Credential,
    CredentialOptions,
    marked,
    taken,
    with_credentials,
    without_contexts,
)
from gpuform.stacks.access.kubeconfig_source import SECTIONS
from gpuform.stacks.access.kubeconfig_text import NAME, KubeconfigText, Mark
from gpuform.stacks.access.user_file import UserFile
from gpuform.stacks.engine.errors import EngineError


@dataclass(frozen=True, slots=True)
class Written:
    """A context, the file that has it or had it, and whether that was changed."""

    context: str
    path: Path
    changed: bool


@dataclass(frozen=True, slots=True)
class KubeconfigFiles:
    """The files in the order in which kubectl reads them: the first that says something counts."""

    files: Sequence[UserFile]

    @classmethod
    def of(cls, file: Path | None, environ: Mapping[str, str]) -> Self:
        """The one given, else those of KUBECONFIG, else ~/.kube/config."""
        named = [Path(each) for each in environ.get("KUBECONFIG", "").split(os.pathsep) if each]
        paths = [file] if file else named or [Path.home() / ".kube" / "config"]
        return cls([UserFile(path, "the kubeconfig") for path in dict.fromkeys(paths)])

    def contexts(self) -> dict[str, Mark]:
        """The contexts that gpuform wrote, by name, as kubectl sees them."""
        found: dict[str, Mark] = {}
        hidden: set[str] = set()
        for file in self.files:
            document = self._read(file)
            for name, held in document.entries("contexts").items():
                mark = Mark.of(held)
                if mark is not None and name not in hidden:
                    found.setdefault(name, mark)
                hidden.add(name)
        return found

    def put(
        self, credentials: Iterable[Credential], project: Path, *, use: bool, force: bool
    ) -> list[Written]:
        """Puts credentials in: each where gpuform wrote it before, else as kubectl would.

        All that go into one file, or none. Raises EngineError for a file inside the project, a
        name that is taken and a file that cannot be changed.
        """
        placed: dict[UserFile, list[Credential]] = {}
        has_current = False
        for each in credentials:
            file = self._place(each)
            file.refuse_inside(project)
            has_current = self._refuse_elsewhere(file, each, use=use) or has_current
            placed.setdefault(file, []).append(each)
        done = []
        for file, those in placed.items():
            wanted = CredentialOptions(use=use, may_use=not has_current, force=force)
            changed = file.update(_putting(those, str(file.path), wanted))
            done += [Written(each.name, file.path, changed) for each in those]
        return done

    def take_out(self, is_meant: Callable[[str, Mark], bool]) -> list[Written]:
        """Takes out the contexts that are meant, of those that gpuform wrote."""
        done = []
        for file in self.files:
            where, text = str(file.path), file.read()
            # What somebody else has broken concerns only who has to find something in it.
            marks = marked(text, where) if NAME in text else {}
            gone = [name for name, mark in marks.items() if is_meant(name, mark)]
            if gone:
                file.update(_taking_out(where, is_meant))
                done += [Written(name, file.path, changed=True) for name in gone]
        return done

    def _place(self, credential: Credential) -> UserFile:
        for file in self.files:
            marks = marked(file.read(), str(file.path)).values()
            if any(mark.is_same(credential.mark) for mark in marks):
                return file
        return next((file for file in self.files if file.path.exists()), self.files[-1])

    def _refuse_elsewhere(self, file: UserFile, credential: Credential, *, use: bool) -> bool:
        """Raises EngineError for what another file has; whether one has a current context."""
        has_current = False
        for other in self.files:
            if other is file:
                continue
            document = self._read(other)
            for section in SECTIONS:
                if credential.name in document.entries(section):
                    raise taken(document, section, credential.name)
            if document.current and use:
                raise EngineError(
                    f"{other.path} has the current context {document.current!r} of your files in "
                    "KUBECONFIG",
                    hint="Nothing was changed. Run it without --use, and then `kubectl config "
                    f"use-context {shlex.quote(credential.name)}`.",
                )
            has_current = has_current or bool(document.current)
        return has_current

    @staticmethod
    def _read(file: UserFile) -> KubeconfigText:
        return KubeconfigText(file.read(), str(file.path))


def _putting(
    credentials: list[Credential], where: str, wanted: CredentialOptions
) -> Callable[[str], str]:
    return lambda text: with_credentials(text, where, credentials, wanted)


def _taking_out(where: str, is_meant: Callable[[str, Mark], bool]) -> Callable[[str], str]:
    return lambda text: without_contexts(text, where, is_meant)
