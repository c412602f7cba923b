"""Refuses what only the Pulumi CLI can run, while nothing of the program has been sent yet.

The SDK sends registrations only once the program's body has returned or awaits something. So a
stack transformation, which runs inside every resource's constructor, and stand-ins for the SDK's
functions hear of what a body asks for before the first request. What they refuse is collected, to
be told at once; from then on nothing more is registered.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NoReturn

import grpc
import pulumi
from pulumi import runtime
from pulumi.runtime.proto import resource_pb2

from gpuform.stacks.engine.errors import USE_THE_CLI
from gpuform.stacks.engine.language_host.program_errors import ProgramError, ProgramFiles
from gpuform.stacks.engine.language_host.services import ResourceMonitor, RpcError
from gpuform.stacks.engine.urn import (
    DYNAMIC_PACKAGE,
    PLUGIN_PACKAGE,
    PLUGIN_PROVIDER_TYPE,
    STACK_REFERENCE_TYPE,
    is_provider,
)

_OPTIONS = ("transforms", "state_migrations")
_TRANSFORMS = (
    "register_stack_transform",
    "register_resource_transform",
    "register_invoke_transform",
)
_CALLS = (
    "invoke",
    "invoke_single",
    "invoke_async",
    "invoke_output",
    "invoke_output_single",
    "call",
    "call_single",
)
_SHOWN = 10


@dataclass(slots=True)
class Refusals:
    """What one run of one program asked for in vain."""

    files: ProgramFiles
    found: list[str] = field(default_factory=list)

    def error(self) -> ProgramError | None:
        """All that was refused, each with its place in the program; None when nothing was."""
        if not self.found:
            return None
        if len(self.found) == 1:
            return ProgramError(self.found[0], USE_THE_CLI)
        more = len(self.found) - _SHOWN
        lines = [*self.found[:_SHOWN], *([f"and {more} more"] if more > 0 else [])]
        return ProgramError(
            "the program needs what the embedded engine does not have:\n  " + "\n  ".join(lines),
            USE_THE_CLI,
        )

    def transformation(self, args: pulumi.ResourceTransformationArgs) -> None:
        """For `register_stack_transformation`: looks at each resource as it is made."""
        what = _foreign(args) or _options(args)
        if what:
            self._refuse(f"resource '{args.name}' {what}", args.resource)

    @contextmanager
    def refuse_functions(self) -> Iterator[None]:
        """The SDK's functions that need a plugin or a call back raise, until the program ends."""
        names = (name for name in (*_TRANSFORMS, *_CALLS) if hasattr(runtime, name))
        before = {name: getattr(runtime, name) for name in names}
        try:
            for name, real in before.items():
                stand_in = self._calls(real) if name in _CALLS else self._transforms(name)
                setattr(runtime, name, stand_in)
            yield
        finally:
            for name, real in before.items():
                setattr(runtime, name, real)

    def _transforms(self, name: str) -> Callable[..., NoReturn]:
        def refused(*_args: object, **_options: object) -> NoReturn:
            raise pulumi.RunError(self._refuse(f"the program calls pulumi.runtime.{name}"))

        return refused

    def _calls(self, real: Callable[..., object]) -> Callable[..., object]:
        """A function or a method of a package; Pulumi's own and gpuform's go through."""

        def refused(tok: str, *args: object, **options: object) -> object:
            if tok.startswith(("pulumi:", f"{PLUGIN_PACKAGE}:")):
                return real(tok, *args, **options)
            raise pulumi.RunError(self._refuse(f"the program calls {tok}"))

        return refused

    def _refuse(self, what: str, resource: pulumi.Resource | None = None) -> str:
        place = self._place(resource)
        text = f"{place}: {what}" if place else what
        text += ", which the embedded engine cannot run"
        self.found.append(text)
        return text

    def _place(self, resource: pulumi.Resource | None) -> str:
        """The innermost own line of the stack of calls, outside of the resource's own methods."""
        frame = inspect.currentframe()
        while frame is not None:
            code = frame.f_code
            receiver = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
            if self.files.holds(code.co_filename) and (
                resource is None or receiver is not resource
            ):
                return self.files.line(code.co_filename, frame.f_lineno)
            frame = frame.f_back
        return ""


def _foreign(args: pulumi.ResourceTransformationArgs) -> str:
    """Why no provider of the engine serves the resource; empty when one does."""
    if args.type_ == PLUGIN_PROVIDER_TYPE:
        return ""
    if is_provider(args.type_):
        return f"is an explicit provider ({args.type_})"
    package = args.type_.split(":", 1)[0]
    if isinstance(args.resource, pulumi.CustomResource):
        own = package in (DYNAMIC_PACKAGE, PLUGIN_PACKAGE)
        known = own or args.type_ == STACK_REFERENCE_TYPE
        return "" if known else f"is of package '{package}' ({args.type_})"
    return f"is a remote component of package '{package}' ({args.type_})" if _is_remote() else ""


def _is_remote() -> bool:
    """Whether the constructor that is running makes a component of another package.

    The SDK tells a transformation nothing of it, and a type does not show it.
    """
    frame = inspect.currentframe()
    while frame is not None and frame.f_code is not pulumi.Resource.__init__.__code__:
        frame = frame.f_back
    return frame is not None and bool(frame.f_locals.get("remote"))


def _options(args: pulumi.ResourceTransformationArgs) -> str:
    used = [name for name in _OPTIONS if getattr(args.opts, name, None)]
    if args.opts.hooks is not None and any(vars(args.opts.hooks).values()):
        used.append("hooks")
    return f"uses {', '.join(used)}" if used else ""


@dataclass(slots=True)
class Gate:
    """The monitor, as long as nothing was refused."""

    monitor: ResourceMonitor
    refusals: Refusals

    def RegisterResource(  # noqa: N802 - the protocol's name
        self, request: resource_pb2.RegisterResourceRequest
    ) -> resource_pb2.RegisterResourceResponse:
        if self.refusals.found:
            raise RpcError(grpc.StatusCode.UNAVAILABLE, "the program was refused")
        return self.monitor.RegisterResource(request)

    def __getattr__(self, name: str) -> object:
        return getattr(self.monitor, name)
