"""Add, find and remove credentials of clusters in the user's kubeconfig, one file or several.

Files are found as kubectl finds them. The commands `kubeconfig` and `connect`, and runs that delete
clusters, call `KubeconfigFiles`; `kubeconfig_document` edits the text.
"""

import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from pydantic import SecretStr

from gpuform.providers.errors import MissingCredentials
from gpuform.providers.kubernetes.kubeconfig import parse_kubeconfig
from gpuform.schemas.errors import EngineError
from gpuform.schemas.models import validate_id
from gpuform.schemas.safe_text import escape_invisible, truncate
from gpuform.stacks.access import NoAccess
from gpuform.stacks.access.kubeconfig_document import (
    EXTENSION_NAME,
    ClusterLabel,
    FormerValues,
    KubeconfigDocument,
)
from gpuform.stacks.access.kubeconfig_editing import CURRENT_CONTEXT, HEADER, SECTIONS
from gpuform.stacks.access.user_file import UserFile


@dataclass(frozen=True, slots=True)
class Credential:
    """The kubeconfig entries of one cluster. `content_by_section` holds secrets."""

    name: str
    label: ClusterLabel
    content_by_section: Mapping[str, Mapping[str, Any]] = field(repr=False)

    @classmethod
    def from_kubeconfig(cls, name: str, label: ClusterLabel, kubeconfig: SecretStr) -> Self:
        """Return the credential in a platform's kubeconfig.

        The credential is that of the current context, else of the first one. `name` becomes the
        name of context, cluster and user.

        Raises:
            NoAccess: the kubeconfig has no usable credential, or `name` is not a valid name. The
                message shows nothing of the kubeconfig.
        """
        try:
            validate_id(name)
        except ValueError as error:
            raise NoAccess(
                f"{truncate(escape_invisible(name), 80)!r} is not a valid context name: it {error}",
                hint="Nothing was written. Choose another name with --context NAME.",
            ) from None
        try:
            parts = parse_kubeconfig(kubeconfig.get_secret_value(), name)
        except MissingCredentials as error:
            raise NoAccess(error.message, hint=f"Nothing was written. {error.hint}") from None
        content_by_section = {
            "clusters": parts.cluster.to_kubeconfig(),
            "users": parts.user.to_kubeconfig(),
            "contexts": {**parts.context.to_kubeconfig(), "cluster": name, "user": name},
        }
        return cls(name, label, content_by_section)


@dataclass(frozen=True, slots=True)
class CredentialOptions:
    """How credentials are added.

    `make_current` makes the last one's context the current context. Without it, the context becomes
    current only if there is none and `may_make_current` is set. `replace_foreign` replaces entries
    of the same name that gpuform did not write for this cluster.
    """

    make_current: bool = False
    may_make_current: bool = True
    replace_foreign: bool = False


def add_credentials(
    content: str, file_label: str, credentials: Iterable[Credential], options: CredentialOptions
) -> str:
    """Return the kubeconfig with the credentials; each replaces the cluster's former one.

    Raises:
        EngineError: an entry of the name exists, gpuform did not write it for this cluster, and
            the options do not allow to replace it.
    """
    for credential in credentials:
        content = _add_credential(content, file_label, credential, options)
    return content


def remove_contexts(
    content: str, file_label: str, should_remove: Callable[[str, ClusterLabel], bool]
) -> str:
    """Return the kubeconfig without gpuform's entries for the chosen clusters.

    `should_remove` is called with each context's name and label; if one context of a cluster is
    chosen, all of them are removed. If the current context is removed, the context that was current
    before becomes current again.
    """
    document = KubeconfigDocument(content, file_label)
    labels = document.find_labels()
    removed = {name: label for name, label in labels.items() if should_remove(name, label)}
    if not removed:
        return content
    former_values: FormerValues = {}
    for label in removed.values():
        former_values = {**label.former_values, **former_values}
    current_context = document.current_context
    for section in SECTIONS:
        for name, entry in document.get_entries(section).items():
            entry_label = ClusterLabel.from_entry(entry)
            if entry_label and any(map(entry_label.is_same_cluster, removed.values())):
                document = document.remove_entry(section, name, former_values)
    if current_context in removed:
        former_context = _find_former_context(document, removed, current_context)
        document = document.restore_current_context(former_context)
    return document.remove_header(former_values).text


def _add_credential(
    content: str, file_label: str, credential: Credential, options: CredentialOptions
) -> str:
    """Return the kubeconfig with the credential, unchanged if the credential is up to date."""
    document = KubeconfigDocument(content, file_label)
    credential = _keep_namespace(document, credential)
    if _is_up_to_date(document, credential) and (
        document.current_context == credential.name or not _should_become_current(document, options)
    ):
        return content
    label = credential.label
    labels = document.find_labels()
    current_label = labels.get(document.current_context)
    former_labels = (it for it in labels.values() if it.is_same_cluster(label))
    former_label = next(former_labels, label)
    content = remove_contexts(
        content, file_label, lambda _name, other: other.is_same_cluster(label)
    )
    document = _remove_same_names(KubeconfigDocument(content, file_label), credential, options)
    is_new = not document.content
    is_current = current_label is not None and current_label.is_same_cluster(label)
    is_used = is_current or _should_become_current(document, options)
    keys = [*SECTIONS, *([CURRENT_CONTEXT] if is_used else []), *(HEADER if is_new else [])]
    known_values = {
        key: former_value
        for key, former_value in former_label.former_values.items()
        if key != CURRENT_CONTEXT
    }
    labels_by_section = {
        "contexts": replace(label, former_values={**known_values, **document.record_values(*keys)})
    }
    for section in reversed(SECTIONS):  # each new key is inserted before the others
        entry = labels_by_section.get(section, label).add_to(credential.content_by_section[section])
        document = document.add_entry(section, credential.name, entry)
    if is_used:
        document = document.set_current_context(credential.name)
    return (document.add_header() if is_new else document).text


def _should_become_current(document: KubeconfigDocument, options: CredentialOptions) -> bool:
    """Return whether a new context becomes current: on request, or if allowed and none is."""
    return options.make_current or (options.may_make_current and not document.current_context)


def _is_up_to_date(document: KubeconfigDocument, credential: Credential) -> bool:
    for section in SECTIONS:
        entry = document.get_entries(section).get(credential.name)
        label = ClusterLabel.from_entry(entry) if entry is not None else None
        if label is None or entry is None:
            return False
        new_label = replace(credential.label, former_values=label.former_values)
        if dict(entry) != new_label.add_to(credential.content_by_section[section]):
            return False
    return True


def _keep_namespace(document: KubeconfigDocument, credential: Credential) -> Credential:
    """Return the credential with the user's namespace, unless the platform sets one."""
    namespace, entries = {}, document.get_entries("contexts")
    for name, label in document.find_labels().items():
        if label.is_same_cluster(credential.label) and "namespace" in entries[name]:
            # `kubectl config set-context --namespace` is the user's choice and survives new
            # credentials.
            namespace = {"namespace": entries[name]["namespace"]}
    context = {**namespace, **credential.content_by_section["contexts"]}
    contents = {**credential.content_by_section, "contexts": context}
    return replace(credential, content_by_section=contents)


def _remove_same_names(
    document: KubeconfigDocument, credential: Credential, options: CredentialOptions
) -> KubeconfigDocument:
    """Return the document without entries of the credential's name.

    Raises:
        EngineError: there are such entries, and the options do not allow to replace them.
    """
    for section in SECTIONS:
        if credential.name not in document.get_entries(section):
            continue
        if not options.replace_foreign:
            raise create_name_conflict_error(document, section, credential.name)
        document = document.remove_entry(section, credential.name, {})
    return document


def create_name_conflict_error(
    document: KubeconfigDocument, section: str, name: str
) -> EngineError:
    """Return the error about a name with an entry of somebody else."""
    label = ClusterLabel.from_entry(document.get_entries(section)[name])
    owner = (
        f"it belongs to {label.urn} (state: {label.state})" if label else "gpuform did not write it"
    )
    position = f"{document.file_label}:{document.find_line(section, name)}"
    return EngineError(
        f"{position}: the {section.removesuffix('s')} {name!r} already exists, and {owner}",
        hint="Nothing was changed. Choose another name with --context NAME, or replace the "
        "existing entry with --force.",
    )


def _find_former_context(
    document: KubeconfigDocument, removed: dict[str, ClusterLabel], current_context: str
) -> str | None:
    """Return the former text behind `current-context`, or None for a missing key.

    A former context that is removed as well, or no longer exists, is not restored.
    """
    # After updates, two contexts can name each other as the former context.
    visited = set()
    name = current_context
    while name in removed and name not in visited:
        visited.add(name)
        if CURRENT_CONTEXT not in removed[name].former_values:
            return ' ""'
        former_value = removed[name].former_values[CURRENT_CONTEXT]
        if former_value is None:
            return None
        name = KubeconfigDocument(
            f"{CURRENT_CONTEXT}:{former_value}", document.file_label
        ).current_context
        if name not in removed:
            is_valid = not name or name in document.get_entries("contexts")
            return former_value if is_valid else ' ""'
    return ' ""'


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
        # kubectl ignores empty parts of KUBECONFIG as well.
        parts = filter(None, environ.get("KUBECONFIG", "").split(os.pathsep))
        listed_paths = list(map(Path, parts))
        paths = [file] if file else listed_paths or [Path.home() / ".kube" / "config"]
        # KUBECONFIG may list a file twice.
        return cls([UserFile(path, "the kubeconfig") for path in dict.fromkeys(paths)])

    def find_contexts(self) -> dict[str, ClusterLabel]:
        """Return the labels of the contexts written by gpuform and visible to kubectl, by name."""
        labels: dict[str, ClusterLabel] = {}
        seen_names: set[str] = set()
        for file in self.files:
            document = self._parse(file)
            # kubectl reads an entry only from the first file that has its name.
            labels |= {
                name: label
                for name, label in document.find_labels().items()
                if name not in seen_names
            }
            seen_names.update(document.get_entries("contexts"))
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
            has_current |= self._refuse_conflicts(file, credential, make_current=make_current)
            credentials_by_file.setdefault(file, []).append(credential)
        changes = []
        for file, file_credentials in credentials_by_file.items():
            options = CredentialOptions(make_current, not has_current, replace_foreign)
            change = partial(
                add_credentials,
                file_label=str(file.path),
                credentials=file_credentials,
                options=options,
            )
            changed = file.update(change)
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
            # A damaged file without the extension's name holds no context of gpuform.
            labels = self._parse(file).find_labels() if EXTENSION_NAME in file.read() else {}
            removed_names = [name for name, label in labels.items() if should_remove(name, label)]
            if removed_names:
                file_label = str(file.path)
                file.update(
                    partial(remove_contexts, file_label=file_label, should_remove=should_remove)
                )
                changes += [ContextChange(name, file.path, changed=True) for name in removed_names]
        return changes

    def _choose_file(self, credential: Credential) -> UserFile:
        """Return the file for a credential.

        This is the file with the cluster's former credential, else the first existing file, else
        the last file.
        """
        for file in self.files:
            labels = self._parse(file).find_labels().values()
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
        return KubeconfigDocument(file.read(), str(file.path))
