"""Put a cluster's credential into a kubeconfig's text, take it out, and find it. Pure."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from pydantic import SecretStr

from gpuform.providers.errors import MissingCredentials
from gpuform.providers.kubernetes.kubeconfig import parse_kubeconfig
from gpuform.schemas.ids import validate_id
from gpuform.schemas.safe_text import escape_invisible, truncate
from gpuform.stacks.access.errors import NoAccess
from gpuform.stacks.access.kubeconfig_source import CURRENT, HEAD, SECTIONS
from gpuform.stacks.access.kubeconfig_text import Before, KubeconfigText, Mark
from gpuform.stacks.engine.errors import EngineError


@dataclass(frozen=True, slots=True)
class Credential:
    """What a kubeconfig is to say of one cluster; `held` is by section, and holds secrets."""

    name: str
    mark: Mark
    held: Mapping[str, Mapping[str, Any]] = field(repr=False)

    @classmethod
    def read(cls, name: str, mark: Mark, text: SecretStr) -> Self:
        """The current context of a platform's kubeconfig, else its first one.

        Raises EngineError, without a word of the text, when it has none, when it asks for more than
        to be signed in, and when the name cannot be that of a context.
        """
        try:
            validate_id(name)
        except ValueError as error:
            raise NoAccess(
                f"{truncate(escape_invisible(name), 80)!r} cannot be the name of a context: "
                f"it {error}",
                hint="Nothing was written. Give it another one with --context NAME.",
            ) from None
        try:
            parts = parse_kubeconfig(text.get_secret_value(), name)
        except MissingCredentials as error:
            raise NoAccess(error.message, hint=f"Nothing was written. {error.hint}") from None
        held = {
            "clusters": parts.cluster.to_kubeconfig(),
            "users": parts.user.to_kubeconfig(),
            "contexts": {**parts.context.to_kubeconfig(), "cluster": name, "user": name},
        }
        return cls(name, mark, held)


@dataclass(frozen=True, slots=True)
class CredentialOptions:
    """How credentials are put in.

    `use` makes the last one's context the current one; without it that is done only where there is
    none, and `may_use` says whether it may be. `force` replaces what others wrote.
    """

    use: bool = False
    may_use: bool = True
    force: bool = False


def marked(text: str, where: str) -> dict[str, Mark]:
    """The contexts that gpuform wrote, by name."""
    contexts = KubeconfigText(text, where).entries("contexts")
    marks = {name: Mark.of(held) for name, held in contexts.items()}
    return {name: mark for name, mark in marks.items() if mark is not None}


def with_credentials(
    text: str, where: str, credentials: Iterable[Credential], wanted: CredentialOptions
) -> str:
    """The text with these, each in the place of what gpuform wrote of its cluster before.

    Raises EngineError where the name is somebody else's.
    """
    for each in credentials:
        text = _with(text, where, each, wanted)
    return text


def without_contexts(text: str, where: str, is_meant: Callable[[str, Mark], bool]) -> str:
    """The text without what gpuform wrote of the clusters that are meant."""
    marks = marked(text, where)
    gone = {name: mark for name, mark in marks.items() if is_meant(name, mark)}
    if not gone:
        return text
    before: Before = {}
    for mark in gone.values():
        before = {**mark.before, **before}
    document = KubeconfigText(text, where)
    current = document.current
    for section in SECTIONS:
        for name, held in document.entries(section).items():
            ours = Mark.of(held)
            if ours is not None and any(ours.is_same(each) for each in gone.values()):
                document = document.without(section, name, before)
    if current in gone:
        document = document.with_former(_former(document, gone, current))
    return document.without_head(before).text


def _with(text: str, where: str, credential: Credential, wanted: CredentialOptions) -> str:
    document = KubeconfigText(text, where)
    credential = _as_used(document, credential)
    if _is_there(document, credential) and (
        document.current == credential.name or not _is_to_be_used(document, wanted)
    ):
        return text
    mark, current = credential.mark, marked(text, where).get(document.current)
    former = _mark_there(document, credential)
    text = without_contexts(text, where, lambda _name, each: each.is_same(mark))
    document = _cleared(KubeconfigText(text, where), credential, wanted)
    is_new = not document.meaning
    is_used = _is_to_be_used(document, wanted) or (current is not None and current.is_same(mark))
    keys = [*SECTIONS, *([CURRENT] if is_used else []), *(HEAD if is_new else [])]
    known = {key: was for key, was in (former or mark).before.items() if key != CURRENT}
    marks = {"contexts": replace(mark, before={**known, **document.before(*keys)})}
    for section in reversed(SECTIONS):  # each new key comes before the others
        held = marks.get(section, mark).on(credential.held[section])
        document = document.added(section, credential.name, held)
    if is_used:
        document = document.with_current(credential.name)
    return (document.with_head() if is_new else document).text


def _is_to_be_used(document: KubeconfigText, wanted: CredentialOptions) -> bool:
    return wanted.use or (wanted.may_use and not document.current)


def _is_there(document: KubeconfigText, credential: Credential) -> bool:
    """Whether everything is as it would be written."""
    for section in SECTIONS:
        held = document.entries(section).get(credential.name)
        mark = Mark.of(held) if held is not None else None
        if mark is None or held is None:
            return False
        now = replace(credential.mark, before=mark.before)
        if dict(held) != now.on(credential.held[section]):
            return False
    return True


def _as_used(document: KubeconfigText, credential: Credential) -> Credential:
    """With the namespace that the person chose, where the platform says none."""
    chosen = {}
    for held in document.entries("contexts").values():
        mark = Mark.of(held)
        if mark is not None and mark.is_same(credential.mark) and "namespace" in held:
            chosen = {"namespace": held["namespace"]}
    context = {**chosen, **credential.held["contexts"]}
    return replace(credential, held={**credential.held, "contexts": context})


def _mark_there(document: KubeconfigText, credential: Credential) -> Mark | None:
    marks = (Mark.of(held) for held in document.entries("contexts").values())
    return next((each for each in marks if each and each.is_same(credential.mark)), None)


def _cleared(
    document: KubeconfigText, credential: Credential, wanted: CredentialOptions
) -> KubeconfigText:
    """Without entries of the name; EngineError when that is not wanted."""
    for section in SECTIONS:
        if credential.name not in document.entries(section):
            continue
        if not wanted.force:
            raise taken(document, section, credential.name)
        document = document.without(section, credential.name, {})
    return document


def taken(document: KubeconfigText, section: str, name: str) -> EngineError:
    """The refusal of a name that somebody else's entry has."""
    mark = Mark.of(document.entries(section)[name])
    whose = f"of {mark.urn} (state: {mark.state})" if mark else "not gpuform's"
    place = f"{document.where}:{document.line_of(section, name)}"
    return EngineError(
        f"{place}: there is a {section.removesuffix('s')} {name!r} already, which is {whose}",
        hint="Nothing was changed. Choose another name with --context NAME, or replace what is "
        "there with --force.",
    )


def _former(document: KubeconfigText, gone: dict[str, Mark], current: str) -> str | None:
    """What is to stand behind `current-context` again: it must not name what is gone."""
    seen = set()
    name = current
    while name in gone and name not in seen:
        seen.add(name)
        if CURRENT not in gone[name].before:
            return ' ""'
        raw = gone[name].before[CURRENT]
        if raw is None:
            return None
        name = KubeconfigText(f"{CURRENT}:{raw}", document.where).current
        if name not in gone:
            is_valid = not name or name in document.entries("contexts")
            return raw if is_valid else ' ""'
    return ' ""'
