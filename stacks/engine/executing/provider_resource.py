"""Register the default providers of packages: state entries made when a resource needs one.

The default provider of dynamic resources holds the stack's whole configuration under full keys, all
strings; the default provider of another package holds the configuration of this package under bare
keys. The resource monitor asks for references; provider ids stay the same from run to run because
every resource refers to one.
"""

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gpuform.providers.values import PropertyMap, find_changed_keys
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.executing.step_executor import StepExecutor
from gpuform.stacks.engine.planning import Op, Step
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import DYNAMIC_PACKAGE, PROVIDER_TYPE_PREFIX, is_plugin, make_urn

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
        """Name of the default provider in its URN, built as Pulumi builds it."""
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
        """URNs of the default providers that resources of this run needed."""
        return frozenset(self._urns)

    def register(self, package: ProviderRequest, executor: StepExecutor) -> str:
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

    def _configure_and_build_step(self, package: ProviderRequest, executor: StepExecutor) -> Step:
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


def _check_and_configure(executor: StepExecutor, urn: str, inputs: PropertyMap) -> PropertyMap:
    """Check the configuration of gpuform's provider, use it from now on, and return it.

    Raises:
        EngineError: the configuration is invalid.
    """
    plugins = executor.host.plugins
    checked, problems = plugins.check(inputs)
    if problems:
        raise EngineError("; ".join(f"gpuform:{p.path} {p.reason}" for p in problems))
    plugins.configure(urn, checked)
    return checked
