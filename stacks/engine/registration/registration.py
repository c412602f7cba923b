"""Read what a program registers, with Pulumi's aliases."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from gpuform.stacks.engine import values
from gpuform.stacks.engine.errors import USE_THE_CLI, EngineError
from gpuform.stacks.engine.state import get_provider_urn
from gpuform.stacks.engine.urn import (
    BUILTIN_PACKAGE,
    DYNAMIC_PACKAGE,
    PLUGIN_PACKAGE,
    PLUGIN_PROVIDER_TYPE,
    STACK_TYPE,
    is_provider,
    is_urn,
    make_urn,
    name_of,
    type_of,
)
from gpuform.stacks.engine.values import PropertyMap, PropertyValue, property_paths

if TYPE_CHECKING:
    from pulumi.runtime.proto import alias_pb2, resource_pb2, source_pb2


@dataclass(frozen=True, slots=True)
class Alias:
    """One alias of a registration: a whole URN, or what was different in the old one.

    Empty parts are as they are now; `no_parent`: it had no parent but the stack.
    """

    urn: str = ""
    name: str = ""
    type: str = ""
    stack: str = ""
    project: str = ""
    parent: str = ""
    no_parent: bool = False


@dataclass(frozen=True, slots=True)
class UrnParts:
    """What a URN is made of, before it is one."""

    stack: str
    project: str
    parent: str
    type: str
    name: str


def alias_urns(
    resource: UrnParts, aliases: Sequence[Alias], used: Mapping[str, str]
) -> tuple[str, ...]:
    """The URNs to look for, the best first.

    `used` tells for each URN of this run that was found under an alias which one that was: what
    is inside such a resource may be known under it, too.
    """
    own = [_collapse(resource, alias, used) for alias in aliases]
    inherited: list[str] = []
    if resource.parent in used:
        was = used[resource.parent]
        inherited.append(_inherited(resource, resource.type, resource.name, was))
        inherited += [_inherited(resource, type_of(urn), name_of(urn), was) for urn in own]
    return tuple(dict.fromkeys([*own, *inherited]))


def _collapse(resource: UrnParts, alias: Alias, used: Mapping[str, str]) -> str:
    if alias.urn:
        return alias.urn
    parent = used.get(alias.parent, alias.parent) or resource.parent
    if alias.no_parent or (parent and type_of(parent) == STACK_TYPE):
        parent = ""
    return make_urn(
        alias.stack or resource.stack,
        alias.project or resource.project,
        parent,
        alias.type or resource.type,
        alias.name or resource.name,
    )


def _inherited(resource: UrnParts, type_: str, name: str, parent_was: str) -> str:
    """Children are often named after their parent: the old parent's name then begins theirs."""
    parent_is = name_of(resource.parent)
    if name.startswith(parent_is):
        name = name_of(parent_was) + name.removeprefix(parent_is)
    return make_urn(resource.stack, resource.project, parent_was, type_, name)


@dataclass(frozen=True, slots=True)
class Source:
    """A line of a file, where something is declared.

    `included` are the lines that include a module's file, the nearest first.
    """

    file: str
    line: int
    included: tuple["Source", ...] = ()


@dataclass(frozen=True, slots=True)
class Registration:
    """One `RegisterResource` request, with the URN that it makes.

    `delete_before_replace` is None when the program leaves the order to the provider.
    """

    urn: str
    type: str
    name: str
    custom: bool
    inputs: PropertyMap
    parent: str = ""
    dependencies: Sequence[str] = ()
    property_dependencies: Mapping[str, Sequence[str]] | None = None
    protect: bool | None = None
    retain_on_delete: bool | None = None
    delete_before_replace: bool | None = None
    ignore_changes: Sequence[str] = ()
    replace_on_changes: Sequence[str] = ()
    additional_secret_outputs: Sequence[str] = ()
    custom_timeouts: Mapping[str, float] | None = None
    aliases: Sequence[Alias] = ()
    source_position: str = ""
    stack_trace: Sequence[str] = ()
    hide_diff: Sequence[str] = ()
    import_id: str = ""
    deleted_with: str = ""
    replace_with: Sequence[str] = ()
    replacement_trigger: PropertyValue = None
    provider: str = ""
    """The URN of an explicit provider."""
    version: str = ""
    plugin_download_url: str = ""

    @property
    def place(self) -> str:
        """Where the program declares it, `file.py:line`: its outermost known line."""
        return _place(self.stack_trace, self.source_position)


@dataclass(frozen=True, slots=True)
class Read:
    """One `ReadResource` request (`.get`, a stack reference), with the URN that it makes.

    `id` is `values.UNKNOWN_TEXT` while planning, when another resource will tell it.
    """

    urn: str
    type: str
    name: str
    id: str
    inputs: PropertyMap
    parent: str = ""
    dependencies: Sequence[str] = ()
    additional_secret_outputs: Sequence[str] = ()
    source_position: str = ""
    stack_trace: Sequence[str] = ()
    provider: str = ""
    """The URN of an explicit provider."""
    version: str = ""
    plugin_download_url: str = ""

    @property
    def place(self) -> str:
        """Where the program reads it, `file.py:line`: its outermost known line."""
        return _place(self.stack_trace, self.source_position)


_PROJECT = "project:///"
_DECLARED = re.compile(r"\.ya?ml#\d+$")
_INSTALLED = ("/site-packages/", "/dist-packages/")
_VERBS = ("create", "update", "delete", "read")


def source_of(asked: "Registration | Read", root: str) -> Source | None:
    """The program's own line that registers a resource, in the project's root folder.

    Of a topology it is the line of the entry; None when the program does not tell.
    """
    own = _own(asked.stack_trace) or [asked.source_position]
    found = [source for frame in own if (source := _source(frame, root)) is not None]
    if not found:
        return None
    return replace(found[0], included=tuple(found[1:]) if _DECLARED.search(own[0]) else ())


@cache
def _source(frame: str, root: str) -> Source | None:
    file, _, line = frame.removeprefix(_PROJECT).rpartition("#")
    if not file or not frame.startswith(_PROJECT) or not line.isdecimal():
        return None
    return Source(f"{root.rstrip('/')}/{unquote(file)}", int(line))


def _own(stack_trace: Sequence[str]) -> list[str]:
    """The program's own lines, not those of a virtualenv inside the project; innermost first.

    A topology's are before those of what reads it.
    """
    frames = [
        frame
        for frame in stack_trace
        if frame.startswith(_PROJECT) and not any(part in frame for part in _INSTALLED)
    ]
    declared = [frame for frame in frames if _DECLARED.search(frame)]
    return declared or frames


def _place(stack_trace: Sequence[str], source_position: str) -> str:
    place = (_own(stack_trace) or [source_position or "an unknown place"])[-1]
    file, _, line = place.removeprefix(_PROJECT).rpartition("#")
    return f"{file}:{line}" if file else place


def from_request(
    request: "resource_pb2.RegisterResourceRequest", *, stack: str, project: str, root: str
) -> Registration:
    """The registration of a request.

    Raises EngineError for what only the Pulumi CLI can do, before anything is changed.
    """
    _refuse_what_needs_the_cli(request)
    return Registration(
        urn=make_urn(stack, project, request.parent, request.type, request.name),
        type=request.type,
        name=request.name,
        custom=request.custom,
        inputs=values.from_struct(request.object),
        parent=request.parent,
        dependencies=sorted(request.dependencies),
        property_dependencies={
            key: sorted(deps.urns) for key, deps in request.propertyDependencies.items()
        },
        protect=request.protect if request.HasField("protect") else None,
        retain_on_delete=request.retainOnDelete if request.HasField("retainOnDelete") else None,
        delete_before_replace=(
            request.deleteBeforeReplace if request.deleteBeforeReplaceDefined else None
        ),
        ignore_changes=list(request.ignoreChanges),
        replace_on_changes=list(request.replaceOnChanges),
        additional_secret_outputs=list(request.additionalSecretOutputs),
        custom_timeouts=_timeouts(request),
        aliases=_aliases(request),
        source_position=_position(request.sourcePosition, root),
        stack_trace=_positions(request.stackTrace, root),
        hide_diff=list(request.hideDiffs),
        import_id=request.importId,
        deleted_with=request.deletedWith,
        replace_with=sorted(request.replace_with),
        replacement_trigger=values.from_value(request.replacement_trigger),
        provider=get_provider_urn(request.provider),
        version=request.version,
        plugin_download_url=request.pluginDownloadURL,
    )


def read_from_request(
    request: "resource_pb2.ReadResourceRequest", *, stack: str, project: str, root: str
) -> Read:
    """The read of a request. Raises EngineError for what only the Pulumi CLI can do."""
    package = request.type.split(":", 1)[0]
    if package not in (DYNAMIC_PACKAGE, BUILTIN_PACKAGE, PLUGIN_PACKAGE):
        raise EngineError(
            f"the program reads '{request.name}' of package '{package}' ({request.type}); "
            "the embedded engine runs dynamic providers and gpuform's own",
            hint=USE_THE_CLI,
        )
    return Read(
        urn=make_urn(stack, project, request.parent, request.type, request.name),
        type=request.type,
        name=request.name,
        id=request.id,
        inputs=values.from_struct(request.properties),
        parent=request.parent,
        dependencies=sorted(request.dependencies),
        additional_secret_outputs=list(request.additionalSecretOutputs),
        source_position=_position(request.sourcePosition, root),
        stack_trace=_positions(request.stackTrace, root),
        provider=get_provider_urn(request.provider),
        version=request.version,
        plugin_download_url=request.pluginDownloadURL,
    )


def _aliases(request: "resource_pb2.RegisterResourceRequest") -> list[Alias]:
    """Return the aliases of a registration.

    Raises:
        EngineError: an alias is no URN. It would match nothing, and the old resource would be
            deleted: the program most likely means a name, `Alias(name=...)`.
    """
    aliases = [
        *map(_alias, request.aliases),
        *(Alias(urn=urn) for urn in request.aliasURNs),
    ]
    for alias in aliases:
        for part, urn in (("alias", alias.urn), ("parent alias", alias.parent)):
            if urn and not is_urn(urn):
                raise EngineError(
                    f"resource '{request.name}': invalid {part} URN: {urn!r}",
                    hint="write the complete URN (urn:pulumi:STACK::PROJECT::TYPE::NAME), or "
                    f"Alias(name={urn!r}) for an earlier name",
                )
    return aliases


def _alias(alias: "alias_pb2.Alias") -> Alias:
    if alias.WhichOneof("alias") == "urn":
        return Alias(urn=alias.urn)
    spec = alias.spec
    return Alias(
        name=spec.name,
        type=spec.type,
        stack=spec.stack,
        project=spec.project,
        parent=spec.parentUrn,
        no_parent=spec.noParent,
    )


def _refuse_what_needs_the_cli(request: "resource_pb2.RegisterResourceRequest") -> None:
    refused = {
        "a remote component": request.remote,
        "an explicit provider of another package": bool(request.provider)
        and type_of(get_provider_urn(request.provider)) != PLUGIN_PROVIDER_TYPE,
    }
    for option, present in refused.items():
        if present:
            raise EngineError(
                f"resource '{request.name}' uses {option}, which the embedded engine cannot do",
                hint=USE_THE_CLI,
            )
    package = request.type.split(":", 1)[0]
    known = package in (DYNAMIC_PACKAGE, PLUGIN_PACKAGE) or is_provider(request.type)
    if request.custom and not known:
        raise EngineError(
            f"resource '{request.name}' is of package '{package}' ({request.type}); "
            "the embedded engine runs dynamic providers and gpuform's own",
            hint=USE_THE_CLI,
        )
    if is_provider(request.type) and request.type != PLUGIN_PROVIDER_TYPE:
        raise EngineError(
            f"provider resource '{request.name}' ({request.type}) cannot be run by the "
            "embedded engine",
            hint=USE_THE_CLI,
        )


def _timeouts(request: "resource_pb2.RegisterResourceRequest") -> dict[str, float]:
    given = request.customTimeouts
    return timeouts_of(request.name, {verb: getattr(given, verb) for verb in _VERBS})


def timeouts_of(name: str, given: Mapping[str, str | None]) -> dict[str, float]:
    """The seconds that a resource's verbs may take, from Go's durations. Raises EngineError."""
    try:
        parsed = {verb: property_paths.seconds(given.get(verb) or "") for verb in _VERBS}
    except ValueError as error:
        raise EngineError(f"resource '{name}': custom_timeouts: {error}") from None
    return {verb: value for verb, value in parsed.items() if value}


def position(file: Path, line: int, root: str) -> str:
    """A line of a file as registrations have it: below `root`, that of the project, without it."""
    return _place_of(file.as_uri(), line, root)


def _positions(trace: "source_pb2.StackTrace", root: str) -> list[str]:
    return [_position(frame.pc, root) for frame in trace.frames]


def _position(position: "source_pb2.SourcePosition", root: str) -> str:
    return _place_of(position.uri, position.line, root)


@cache
def _place_of(uri: str, line: int, root: str) -> str:
    """One text for all resources that are declared there: states hold a dozen for each."""
    if not uri:
        return ""
    prefix = f"file://{root.rstrip('/')}/"
    if uri.startswith(prefix):
        uri = "project:///" + uri.removeprefix(prefix)
    return f"{uri}#{line}"
