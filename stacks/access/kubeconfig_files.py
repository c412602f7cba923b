"""Change the user's kubeconfig, one file or several, as kubectl finds them.

The commands `kubeconfig` and `connect`, and runs that delete clusters, call `KubeconfigFiles`.
"""

import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from gpuform.stacks.access.kubeconfig_credentials import (
    Credential,
    CredentialOptions,
    add_credentials,
    create_name_conflict_error,
    find_labels,
    remove_contexts,
)
from gpuform.stacks.access.kubeconfig_document import (
    EXTENSION_NAME,
    ClusterLabel,
    KubeconfigDocument,
)
from gpuform.stacks.access.kubeconfig_editing import SECTIONS
from gpuform.stacks.access.user_file import UserFile
from gpuform.stacks.engine.errors import EngineError


@dataclass(frozen=True, slots=True)
class ContextChange:
    """A context with its file; `changed` is False if the file had the context already."""

    context: str
    path: Path
    changed: bool


@dataclass(frozen=True, slots=True)
class KubeconfigFiles:
    """The files in kubectl's order: the first one with a value decides."""

    files: Sequence[UserFile]

    @classmethod
    def from_environment(cls, file: Path | None, environ: Mapping[str, str]) -> Self:
        """Return the file `file`, else the files of KUBECONFIG, else ~/.kube/config."""
        listed_paths = [
            Path(listed_path)
            for listed_path in environ.get("KUBECONFIG", "").split(os.pathsep)
            # kubectl ignores empty parts of KUBECONFIG as well.
            if listed_path
        ]
        paths = [file] if file else listed_paths or [Path.home() / ".kube" / "config"]
        # KUBECONFIG may list a file twice.
        return cls([UserFile(path, "the kubeconfig") for path in dict.fromkeys(paths)])

    def find_contexts(self) -> dict[str, ClusterLabel]:
        """Return the labels of the contexts written by gpuform and visible to kubectl, by name."""
        labels: dict[str, ClusterLabel] = {}
        seen_names: set[str] = set()
        for file in self.files:
            document = self._parse(file)
            for name, entry in document.get_entries("contexts").items():
                label = ClusterLabel.from_entry(entry)
                # kubectl reads an entry only from the first file that has its name.
                if label is not None and name not in seen_names:
                    labels.setdefault(name, label)
                seen_names.add(name)
        return labels

    def add_credentials(
        self,
        credentials: Iterable[Credential],
        project: Path,
        *,
        make_current: bool,
        replace_foreign: bool,
    ) -> list[ContextChange]:
        """Add credentials, and return the changes.

        A credential replaces the cluster's former one, or goes into the file that kubectl would
        choose. Each file gets all of its credentials or none.

        Raises:
            EngineError: a file is inside of `project` or cannot be changed, a name is taken
                (`replace_foreign` applies only to the chosen file), or another file sets the
                current context that `make_current` would change.
        """
        credentials_by_file: dict[UserFile, list[Credential]] = {}
        has_current = False
        for credential in credentials:
            file = self._choose_file(credential)
            file.refuse_inside(project)
            # All conflicts are found before the first file is changed.
            has_current = (
                self._refuse_conflicts(file, credential, make_current=make_current) or has_current
            )
            credentials_by_file.setdefault(file, []).append(credential)
        changes = []
        for file, file_credentials in credentials_by_file.items():
            options = CredentialOptions(
                make_current=make_current,
                may_make_current=not has_current,
                replace_foreign=replace_foreign,
            )
            changed = file.update(_create_addition(file_credentials, str(file.path), options))
            changes += [
                ContextChange(credential.name, file.path, changed)
                for credential in file_credentials
            ]
        return changes

    def remove_contexts(
        self, should_remove: Callable[[str, ClusterLabel], bool]
    ) -> list[ContextChange]:
        """Remove the chosen contexts written by gpuform, and return the changes."""
        changes = []
        for file in self.files:
            file_label, content = str(file.path), file.read()
            # A damaged file without the extension's name holds no context of gpuform.
            labels = find_labels(content, file_label) if EXTENSION_NAME in content else {}
            removed_names = [name for name, label in labels.items() if should_remove(name, label)]
            if removed_names:
                file.update(_create_removal(file_label, should_remove))
                changes += [ContextChange(name, file.path, changed=True) for name in removed_names]
        return changes

    def _choose_file(self, credential: Credential) -> UserFile:
        """Return the file for a credential.

        This is the file with the cluster's former credential, else the first existing file, else
        the last file.
        """
        for file in self.files:
            labels = find_labels(file.read(), str(file.path)).values()
            if any(label.is_same_cluster(credential.label) for label in labels):
                return file
        return next((file for file in self.files if file.path.exists()), self.files[-1])

    def _refuse_conflicts(
        self, file: UserFile, credential: Credential, *, make_current: bool
    ) -> bool:
        """Return whether a file other than `file` has a current context.

        Raises:
            EngineError: another file has an entry of the name, or sets the current context that
                `make_current` would change.
        """
        has_current = False
        for other in self.files:
            if other is file:
                continue
            document = self._parse(other)
            for section in SECTIONS:
                if credential.name in document.get_entries(section):
                    raise create_name_conflict_error(document, section, credential.name)
            if document.current_context and make_current:
                raise EngineError(
                    f"{other.path} sets the current context {document.current_context!r} of your "
                    "files in KUBECONFIG",
                    hint="Nothing was changed. Run the command without --use, then `kubectl config "
                    f"use-context {shlex.quote(credential.name)}`.",
                )
            has_current = has_current or bool(document.current_context)
        return has_current

    @staticmethod
    def _parse(file: UserFile) -> KubeconfigDocument:
        """Read a file, and return the kubeconfig document in the file."""
        return KubeconfigDocument(file.read(), str(file.path))


def _create_addition(
    credentials: list[Credential], file_label: str, options: CredentialOptions
) -> Callable[[str], str]:
    """Return the function that adds the credentials to the text of a kubeconfig."""
    return lambda text: add_credentials(text, file_label, credentials, options)


def _create_removal(
    file_label: str, should_remove: Callable[[str, ClusterLabel], bool]
) -> Callable[[str], str]:
    """Return the function that removes contexts from the text of a kubeconfig.

    `should_remove` decides about each context, by its name and its cluster's label.
    """
    return lambda text: remove_contexts(text, file_label, should_remove)
