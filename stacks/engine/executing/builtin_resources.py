"""Serve the resources of the engine itself: default providers, and references to other stacks.

The default provider of dynamic resources holds the stack's whole configuration under full keys, all
strings; the default provider of another package holds the configuration of this package under bare
keys. The resource monitor asks for references; provider ids stay the same from run to run because
every resource refers to one.

The step executor and refreshes read the outputs for `pulumi.StackReference`; checkpoints come from
the backend, or planned outputs from a multi-stack run.
"""

import json
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gpuform.providers import values
from gpuform.providers.values import PropertyMap, PropertyValue, find_changed_keys
from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine import value_json
from gpuform.stacks.engine.planning import Op, Step
from gpuform.stacks.engine.secrets import SecretsError, create_stored_crypter
from gpuform.stacks.engine.state import Checkpoint, ResourceState
from gpuform.stacks.engine.urn import (
    DYNAMIC_PACKAGE,
    PROVIDER_TYPE_PREFIX,
    STACK_TYPE,
    is_plugin,
    make_urn,
)
from gpuform.stacks.engine.value_json import Crypter

if TYPE_CHECKING:
    from gpuform.stacks.engine.executing.step_executor import StepExecutor

# Pulumi's DIY backends have one organization, of this literal name.
_ORGANIZATION = "organization"

PlannedOutputs = Callable[[str, str], PropertyMap | None]
"""Return the outputs that a stack will have after its planned run, given project and stack.

Values may be unknown. None means that the checkpoint of the stack has the outputs.
"""


def qualify_stack_name(name: str, project: str) -> str:
    """Return `organization/PROJECT/STACK` for a stack name in a program of `project`.

    Raises:
        EngineError: `name` is not a valid stack name.
    """
    return "/".join((_ORGANIZATION, *_parse_stack_name(name, project)))


def find_referenced_stacks(inputs: Iterable[PropertyMap], project: str) -> tuple[str, ...]:
    """Return the sorted full names of the stacks named by inputs of stack references.

    Invalid names are left out.
    """
    full_names = set()
    for reference_inputs in inputs:
        name = reference_inputs.get("name")
        if isinstance(name, str):
            with suppress(EngineError):  # `StackReferences.read` reports an invalid name
                full_names.add(qualify_stack_name(name, project))
    return tuple(sorted(full_names))


def _parse_stack_name(name: str, own: str) -> tuple[str, str]:
    """Return project and stack of a reference's name; `own` is the project for a name without one.

    In a name of two parts the first is the organization, not the project.

    Raises:
        EngineError: the name has another form or organization.
    """
    organization, project, stack = _ORGANIZATION, own, name
    parts = name.split("/")
    if len(parts) == 2:
        organization, stack = parts
    elif len(parts) == 3:
        organization, project, stack = parts
    if organization != _ORGANIZATION or "/" in stack:
        raise EngineError(
            f"{name!r} is not the name of a stack in this backend",
            hint="write STACK, or organization/PROJECT/STACK (the word `organization` itself)",
        )
    return project, stack


@dataclass(frozen=True, slots=True)
class StackReferences:
    """Reads stacks of the backend by the names that programs use.

    `project` is the program's own project, for names without one. `load` returns the last
    checkpoint of a stack given project and stack, or None if the stack does not exist. `passphrase`
    is called when a secret has to be decrypted, `warn` with a message about outputs that cannot be.
    `planned_outputs` is asked before `load`.
    """

    project: str
    load: Callable[[str, str], Checkpoint | None]
    passphrase: Callable[[], str]
    warn: Callable[[str], None] = lambda _text: None
    planned_outputs: PlannedOutputs = lambda _project, _stack: None

    def read(self, inputs: PropertyMap) -> PropertyMap:
        """Return the outputs of a stack reference: `name`, `outputs` and `secretOutputNames`.

        `outputs` are the planned ones for a stack planned in the same multi-stack run, else the
        stored ones. Secret outputs that the passphrase does not decrypt are left out, with a
        warning.

        Raises:
            EngineError: the name is missing or invalid, or the stack does not exist.
        """
        name = inputs.get("name")
        if not isinstance(name, str):
            raise EngineError("a stack reference needs the name of a stack")
        project, stack = _parse_stack_name(name, self.project)
        outputs, undecryptable = self.planned_outputs(project, stack), list[str]()
        if outputs is None:
            outputs, undecryptable = self._decrypt_outputs(
                self._require_checkpoint(name, project, stack)
            )
        if undecryptable:
            self.warn(
                f"stack reference {name!r}: the passphrase does not decrypt its secret "
                f"outputs {', '.join(undecryptable)}; these outputs are omitted"
            )
        secret: list[PropertyValue] = [
            key for key in sorted(outputs) if values.contains_secret(outputs[key])
        ]
        return {"name": name, "outputs": outputs, "secretOutputNames": secret}

    def _require_checkpoint(self, name: str, project: str, stack: str) -> Checkpoint:
        """Return the stack's checkpoint. Raises EngineError if the stack does not exist."""
        checkpoint = self.load(project, stack)
        if checkpoint is None:
            raise EngineError(
                f"unknown stack {name!r}",
                hint="name it as in `gpuform stack ls`: STACK, or organization/PROJECT/STACK; it "
                "must be in the same backend",
            )
        return checkpoint

    def _decrypt_outputs(self, checkpoint: Checkpoint) -> tuple[PropertyMap, list[str]]:
        """Return the stack's outputs, and the names of undecryptable outputs."""
        resources = checkpoint.latest.get("resources") or []
        root: dict[str, Any] = next((e for e in resources if e.get("type") == STACK_TYPE), {})
        secrets_provider = checkpoint.secrets_provider
        outputs: PropertyMap = {}
        undecryptable: list[str] = []
        crypter: Crypter | None = None
        for key, item in (root.get("outputs") or {}).items():
            try:
                if (
                    # The derivation of the key takes about 0.3 s, so only outputs with a secret pay
                    # for it.
                    crypter is None
                    and secrets_provider is not None
                    and values.SIGNATURE_KEY in str(item)
                ):
                    crypter = create_stored_crypter(secrets_provider, self.passphrase)
                outputs[key] = value_json.decode(item, crypter)
            except SecretsError:
                undecryptable.append(key)
        return outputs, undecryptable


DISABLED: Final = "pulumi:disable-default-providers"
"""Pulumi's configuration key of the packages that have no default provider."""


@dataclass(frozen=True, slots=True)
class ProviderRequest:
    """A request for the default provider of a package, optionally of one version and download URL.

    Pulumi's engine calls this `ProviderRequest`.
    """

    name: str
    version: str = ""
    plugin_download_url: str = ""

    @property
    def default_name(self) -> str:
        """Name of the default provider in the provider's URN, built by Pulumi's rule."""
        qualifiers = [part for part in (self.version, self.plugin_download_url) if part]
        # Pulumi's form: `default_5_1_0` for version 5.1.0.
        return "_".join(["default", *(re.sub(r"\W", "_", part) for part in qualifiers)])

    def build_inputs(self, config: PropertyMap) -> PropertyMap:
        """Return the default provider's inputs: the package's keys of `config`, version and URL.

        The provider of dynamic resources gets the keys of all packages.
        """
        if self.name == DYNAMIC_PACKAGE:
            # Pulumi's GetPackageConfig gives dynamic providers the keys of all namespaces.
            return dict(config)
        prefix = f"{self.name}:"
        package_config = {
            k.removeprefix(prefix): v for k, v in config.items() if k.startswith(prefix)
        }
        source_inputs = {"version": self.version, "pluginDownloadURL": self.plugin_download_url}
        return {**package_config, **{key: value for key, value in source_inputs.items() if value}}


@dataclass(slots=True)
class DefaultProviders:
    """The default providers of one run; `olds` maps URNs to the entries of the last state."""

    stack: str
    project: str
    config: PropertyMap
    olds: Mapping[str, ResourceState]
    _references: dict[ProviderRequest, str] = field(default_factory=dict)
    _urns: set[str] = field(default_factory=set)

    @property
    def registered_urns(self) -> frozenset[str]:
        """URNs of the default providers needed by resources of this run."""
        return frozenset(self._urns)

    def register(self, package: ProviderRequest, executor: "StepExecutor") -> str:
        """Return the provider reference `<urn>::<id>`; add the provider to the state once.

        Raises:
            EngineError: default providers are disabled for the package, or the configuration of one
                of gpuform's own providers is invalid.
            StepError: the provider's step failed, which is reported.
        """
        if package not in self._references:
            if self._is_disabled(package.name):
                raise EngineError(
                    f"the default provider of {package.name} is disabled by {DISABLED}",
                    hint="set a provider in the options of the resource, or remove the package "
                    "from that list",
                )
            step = self._configure_and_build_step(package, executor)
            executor.run_steps([step])
            self._urns.add(step.urn)
            self._references[package] = f"{step.urn}::{step.state.id}"
        return self._references[package]

    def _is_disabled(self, package: str) -> bool:
        """Return True if the configuration disables default providers for `package` or for all.

        Raises EngineError if the configuration is not a list.
        """
        raw_list = self.config.get(DISABLED)
        try:
            names = json.loads(raw_list) if isinstance(raw_list, str) and raw_list else []
            disabled_packages = {str(name).strip() for name in names}
        except (TypeError, ValueError):
            raise EngineError(
                f"{DISABLED} is not a list of packages", hint='write it as ["*"] or ["gpuform"]'
            ) from None
        return bool(disabled_packages & {"*", package})

    def _configure_and_build_step(self, package: ProviderRequest, executor: "StepExecutor") -> Step:
        """Return the create, update or same step of the package's default provider.

        An existing provider keeps its id. The configuration of gpuform's own plugin is checked, and
        the plugin uses it from now on. Raises EngineError if this configuration is invalid.
        """
        type_ = PROVIDER_TYPE_PREFIX + package.name
        urn = make_urn(self.stack, self.project, "", type_, package.default_name)
        old, inputs = self.olds.get(urn), package.build_inputs(self.config)
        if is_plugin(f"{package.name}:"):
            inputs = _check_and_configure(executor, urn, inputs)
        new = ResourceState(urn, True, type_, inputs=inputs)
        new.outputs = dict(inputs)
        if old is None:
            new.id = str(uuid.uuid4())
            return Step(Op.CREATE, urn, None, new)
        # Every resource refers to its provider by URN and id: a new id would break the references.
        new.id = old.id
        diffs = find_changed_keys(old.inputs, new.inputs)
        return Step(Op.UPDATE if diffs else Op.SAME, urn, old, new, diffs=diffs)


def _check_and_configure(executor: "StepExecutor", urn: str, inputs: PropertyMap) -> PropertyMap:
    """Check the configuration of gpuform's provider, put it into effect, and return the result.

    Raises:
        EngineError: the configuration is invalid.
    """
    plugins = executor.host.plugins
    checked, problems = plugins.check(inputs)
    if problems:
        raise EngineError("; ".join(f"gpuform:{p.path} {p.reason}" for p in problems))
    plugins.configure(urn, checked)
    return checked
