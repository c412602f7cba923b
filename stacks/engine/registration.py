"""Parse `RegisterResource` and `ReadResource` requests, with Pulumi's aliases.

The resource monitor calls this module; the step generator and the digests use its data classes.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from gpuform.providers import values
from gpuform.providers.values import PropertyMap, PropertyValue
from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine import property_paths, value_json
from gpuform.stacks.engine.machine import USE_THE_CLI
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

if TYPE_CHECKING:
    from pulumi.runtime.proto import alias_pb2, resource_pb2, source_pb2


@dataclass(frozen=True, slots=True)
class Alias:
    """One alias of a registration: a complete URN, or the parts in which the old URN differed.

    Empty parts are as they are now; `no_parent` means that the parent was the stack.
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
    """The parts of a URN."""

    stack: str
    project: str
    parent: str
    type: str
    name: str


def list_alias_urns(
    resource: UrnParts, aliases: Sequence[Alias], used: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the old URNs under which a resource may be in the state, the best match first.

    `used` maps each URN of this run that an alias matched to the old URN: children of such a
    resource may be in the state under it too.
    """
    own_urns = [_resolve_alias(resource, alias, used) for alias in aliases]
    # Pulumi's generateAliases: the URNs under the old parent, for the resource and each alias.
    inherited: list[str] = []
    if resource.parent in used:
        old_parent = used[resource.parent]
        inherited.append(_build_inherited_urn(resource, resource.type, resource.name, old_parent))
        inherited += [
            _build_inherited_urn(resource, type_of(urn), name_of(urn), old_parent)
            for urn in own_urns
        ]
    return tuple(dict.fromkeys([*own_urns, *inherited]))


def _resolve_alias(resource: UrnParts, alias: Alias, used: Mapping[str, str]) -> str:
    """Return the old URN named by the alias, with the resource's values for missing parts."""
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


def _build_inherited_urn(resource: UrnParts, type_: str, name: str, old_parent: str) -> str:
    """Return the old URN of a child of an aliased parent.

    Children are often named after their parent: the old parent's name then begins the old name.
    """
    parent_name = name_of(resource.parent)
    if name.startswith(parent_name):
        name = name_of(old_parent) + name.removeprefix(parent_name)
    return make_urn(resource.stack, resource.project, old_parent, type_, name)


@dataclass(frozen=True, slots=True)
class DeclarationSource:
    """A line of a file where something is declared.

    `included` holds the lines that include a module's file, the nearest first.
    """

    file: str
    line: int
    included: tuple["DeclarationSource", ...] = ()


@dataclass(frozen=True, slots=True)
class _Declaration:
    """What registrations and reads have in common."""

    urn: str
    type: str
    name: str
    _: KW_ONLY
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
        """Where the program declares the resource: `file.py:line` of the outermost known line."""
        frames = _select_own_frames(self.stack_trace)
        frame = (frames or [self.source_position or "an unknown position"])[-1]
        file, _, line = frame.removeprefix(_PROJECT).rpartition("#")
        return f"{file}:{line}" if file else frame


@dataclass(frozen=True, slots=True)
class Registration(_Declaration):
    """One `RegisterResource` request, with the URN of its resource.

    `delete_before_replace` is None when the program leaves the order to the provider.
    """

    custom: bool
    inputs: PropertyMap
    _: KW_ONLY
    property_dependencies: Mapping[str, Sequence[str]] | None = None
    protect: bool | None = None
    retain_on_delete: bool | None = None
    delete_before_replace: bool | None = None
    ignore_changes: Sequence[str] = ()
    replace_on_changes: Sequence[str] = ()
    custom_timeouts: Mapping[str, float] | None = None
    aliases: Sequence[Alias] = ()
    hide_diff: Sequence[str] = ()
    import_id: str = ""
    deleted_with: str = ""
    replace_with: Sequence[str] = ()
    replacement_trigger: PropertyValue = None


@dataclass(frozen=True, slots=True)
class Read(_Declaration):
    """One `ReadResource` request (`.get` or a stack reference), with the URN of its resource.

    `id` is `values.UNKNOWN_TEXT` in a preview while another resource is still to provide the id.
    """

    id: str
    inputs: PropertyMap


_PROJECT = "project:///"
_DECLARED = re.compile(r"\.ya?ml#\d+$")
_INSTALLED = ("/site-packages/", "/dist-packages/")
_VERBS = ("create", "update", "delete", "read")


def find_source(declaration: "Registration | Read", root: str) -> DeclarationSource | None:
    """Return the program's own line with the registration of a resource, or None if unknown.

    For a topology this is the line of its entry. `root` is the project's root folder.
    """
    frames = _select_own_frames(declaration.stack_trace) or [declaration.source_position]
    sources = [source for frame in frames if (source := _parse_frame(frame, root)) is not None]
    if not sources:
        return None
    return replace(sources[0], included=tuple(sources[1:]) if _DECLARED.search(frames[0]) else ())


@cache
def _parse_frame(frame: str, root: str) -> DeclarationSource | None:
    """Return file and line of a frame, or None outside of the project."""
    file, _, line = frame.removeprefix(_PROJECT).rpartition("#")
    if not file or not frame.startswith(_PROJECT) or not line.isdecimal():
        return None
    return DeclarationSource(f"{root.rstrip('/')}/{unquote(file)}", int(line))


def _select_own_frames(stack_trace: Sequence[str]) -> list[str]:
    """Return the program's own lines, innermost first; installed packages are left out.

    If the program is a topology, only the lines of its files are returned.
    """
    frames = [
        frame
        for frame in stack_trace
        if frame.startswith(_PROJECT) and not any(part in frame for part in _INSTALLED)
    ]
    topology_frames = [frame for frame in frames if _DECLARED.search(frame)]
    return topology_frames or frames


def parse_registration(
    request: "resource_pb2.RegisterResourceRequest", *, stack: str, project: str, root: str
) -> Registration:
    """Return the registration in a request.

    Raises:
        EngineError: the request needs the Pulumi CLI, or has an invalid alias or timeout; nothing
            has been changed yet.
    """
    _refuse_cli_features(request)
    return Registration(
        urn=make_urn(stack, project, request.parent, request.type, request.name),
        type=request.type,
        name=request.name,
        custom=request.custom,
        inputs=value_json.from_struct(request.object),
        parent=request.parent,
        dependencies=sorted(request.dependencies),
        property_dependencies={
            key: sorted(deps.urns) for key, deps in request.propertyDependencies.items()
        },
        # Unset optional flags are inherited from the parent, False is not.
        protect=request.protect if request.HasField("protect") else None,
        retain_on_delete=request.retainOnDelete if request.HasField("retainOnDelete") else None,
        delete_before_replace=(
            request.deleteBeforeReplace if request.deleteBeforeReplaceDefined else None
        ),
        ignore_changes=list(request.ignoreChanges),
        replace_on_changes=list(request.replaceOnChanges),
        additional_secret_outputs=list(request.additionalSecretOutputs),
        custom_timeouts=parse_timeouts(
            request.name, {verb: getattr(request.customTimeouts, verb) for verb in _VERBS}
        ),
        aliases=_parse_aliases(request),
        source_position=_format_request_position(request.sourcePosition, root),
        stack_trace=_format_trace(request.stackTrace, root),
        hide_diff=list(request.hideDiffs),
        import_id=request.importId,
        deleted_with=request.deletedWith,
        replace_with=sorted(request.replace_with),
        replacement_trigger=values.from_value(request.replacement_trigger),
        provider=get_provider_urn(request.provider),
        version=request.version,
        plugin_download_url=request.pluginDownloadURL,
    )


def parse_read(
    request: "resource_pb2.ReadResourceRequest", *, stack: str, project: str, root: str
) -> Read:
    """Return the read in a request.

    Raises:
        EngineError: the request needs the Pulumi CLI.
    """
    package = request.type.split(":", 1)[0]
    if package not in (DYNAMIC_PACKAGE, BUILTIN_PACKAGE, PLUGIN_PACKAGE):
        raise EngineError(
            f"the program reads '{request.name}' of package '{package}' ({request.type}); "
            "the embedded engine runs only dynamic providers and gpuform's own provider",
            hint=USE_THE_CLI,
        )
    return Read(
        urn=make_urn(stack, project, request.parent, request.type, request.name),
        type=request.type,
        name=request.name,
        id=request.id,
        inputs=value_json.from_struct(request.properties),
        parent=request.parent,
        dependencies=sorted(request.dependencies),
        additional_secret_outputs=list(request.additionalSecretOutputs),
        source_position=_format_request_position(request.sourcePosition, root),
        stack_trace=_format_trace(request.stackTrace, root),
        provider=get_provider_urn(request.provider),
        version=request.version,
        plugin_download_url=request.pluginDownloadURL,
    )


def _parse_aliases(request: "resource_pb2.RegisterResourceRequest") -> list[Alias]:
    """Return the aliases of a registration.

    Raises:
        EngineError: an alias, or the parent of one, is no URN. It would match nothing, and the old
            resource would be deleted: the program most likely means a name, `Alias(name=...)`.
    """
    aliases = [
        *map(_parse_alias, request.aliases),
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


def _parse_alias(alias: "alias_pb2.Alias") -> Alias:
    """Convert an alias of the protocol, given as a URN or as the different parts."""
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


def _refuse_cli_features(request: "resource_pb2.RegisterResourceRequest") -> None:
    """Raise EngineError for a resource only the Pulumi CLI can run.

    These are remote components, and resources and providers of other packages.
    """
    refused = {
        "a remote component": request.remote,
        "an explicit provider of another package": bool(request.provider)
        and type_of(get_provider_urn(request.provider)) != PLUGIN_PROVIDER_TYPE,
    }
    for option, is_used in refused.items():
        if is_used:
            raise EngineError(
                f"resource '{request.name}' uses {option}, which the embedded engine does not "
                "support",
                hint=USE_THE_CLI,
            )
    package = request.type.split(":", 1)[0]
    is_known = package in (DYNAMIC_PACKAGE, PLUGIN_PACKAGE) or is_provider(request.type)
    if request.custom and not is_known:
        raise EngineError(
            f"resource '{request.name}' is of package '{package}' ({request.type}); the "
            "embedded engine runs only dynamic providers and gpuform's own provider",
            hint=USE_THE_CLI,
        )
    if is_provider(request.type) and request.type != PLUGIN_PROVIDER_TYPE:
        raise EngineError(
            f"the embedded engine cannot run the provider resource '{request.name}' "
            f"({request.type})",
            hint=USE_THE_CLI,
        )


def parse_timeouts(name: str, durations: Mapping[str, str | None]) -> dict[str, float]:
    """Parse Go durations of operations to seconds; operations without a timeout are left out.

    A duration of 0 is no timeout. Keys other than `create`, `update`, `delete` and `read` are
    ignored.

    Raises:
        EngineError: a duration is invalid.
    """
    try:
        parsed = {verb: property_paths.parse_duration(durations.get(verb) or "") for verb in _VERBS}
    except ValueError as error:
        raise EngineError(f"resource '{name}': custom_timeouts: {error}") from None
    return {verb: value for verb, value in parsed.items() if value}


def format_position(file: Path, line: int, root: str) -> str:
    """Format a line of a file in the form of registrations, with `project:///` for the root."""
    return _format_interned_position(file.as_uri(), line, root)


def _format_trace(trace: "source_pb2.StackTrace", root: str) -> list[str]:
    """Return the source position of each frame in a request's stack trace."""
    return [_format_request_position(frame.pc, root) for frame in trace.frames]


def _format_request_position(position: "source_pb2.SourcePosition", root: str) -> str:
    """Format a request's source position; an empty text without a URI."""
    return _format_interned_position(position.uri, position.line, root)


@cache
def _format_interned_position(uri: str, line: int, root: str) -> str:
    """Format a position as `project:///FILE#LINE`, or return an empty string without a URI.

    A file outside of `root` keeps its URI. All resources declared there share one text, because
    states hold a dozen positions for each.
    """
    if not uri:
        return ""
    prefix = f"file://{root.rstrip('/')}/"
    if uri.startswith(prefix):
        uri = "project:///" + uri.removeprefix(prefix)
    return f"{uri}#{line}"
