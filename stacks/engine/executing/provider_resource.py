"""The default providers of packages: entries of the state, made when a resource needs one.

That of dynamic resources holds the stack's whole configuration under full keys, strings all of
them; those of others hold their package's, under bare keys. Their ids are kept from run to run
because every resource refers to one.
"""

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.executing.step_executor import StepExecutor
from gpuform.stacks.engine.planning import Op, Step
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import DYNAMIC_PACKAGE, PROVIDER_TYPE_PREFIX, is_plugin, make_urn
from gpuform.stacks.engine.values import PropertyMap, find_changed_keys

DISABLED: Final = "pulumi:disable-default-providers"
"""Pulumi's configuration key of the packages that have no default provider."""


@dataclass(frozen=True, slots=True)
class Package:
    """What a program asks for with a resource: a package, where it says so of a version."""

    name: str
    version: str = ""
    plugin_download_url: str = ""

    @property
    def provider_name(self) -> str:
        """The name of its default provider, as Pulumi makes it."""
        said = [part for part in (self.version, self.plugin_download_url) if part]
        return "_".join(["default", *(re.sub(r"\W", "_", part) for part in said)])

    def inputs(self, config: PropertyMap) -> PropertyMap:
        """The inputs of its default provider by the stack's configuration."""
        if self.name == DYNAMIC_PACKAGE:
            return dict(config)
        prefix = f"{self.name}:"
        own = {k.removeprefix(prefix): v for k, v in config.items() if k.startswith(prefix)}
        said = {"version": self.version, "pluginDownloadURL": self.plugin_download_url}
        return {**own, **{key: value for key, value in said.items() if value}}


@dataclass(slots=True)
class DefaultProviders:
    """The default providers of one run; `olds` are the entries of the last state by URN."""

    stack: str
    project: str
    config: PropertyMap
    olds: Mapping[str, ResourceState]
    _references: dict[Package, str] = field(default_factory=dict)
    _urns: set[str] = field(default_factory=set)

    @property
    def registered(self) -> frozenset[str]:
        """The URNs of those that a resource of this run needed."""
        return frozenset(self._urns)

    def reference(self, package: Package, executor: StepExecutor) -> str:
        """`<urn>::<id>`, what resources carry; the entry is in the state afterwards.

        Raises EngineError when the configuration of one of gpuform's own is refused.
        """
        if package not in self._references:
            if self._is_disabled(package.name):
                raise EngineError(
                    f"the default provider of {package.name} is disabled by {DISABLED}",
                    hint="give the resource a provider in its options, or take the package out of "
                    "that list",
                )
            step = self._step(package, executor)
            executor.run([step])
            self._urns.add(step.urn)
            self._references[package] = f"{step.urn}::{step.state.id}"
        return self._references[package]

    def _is_disabled(self, package: str) -> bool:
        """Return whether the configuration wants explicit providers for a package, or for all."""
        text = self.config.get(DISABLED)
        try:
            names = json.loads(text) if isinstance(text, str) and text else []
            barred = {str(name).strip() for name in names}
        except (TypeError, ValueError):
            raise EngineError(
                f"{DISABLED} is no list of packages", hint='write it as ["*"] or ["gpuform"]'
            ) from None
        return bool(barred & {"*", package})

    def _step(self, package: Package, executor: StepExecutor) -> Step:
        type_ = PROVIDER_TYPE_PREFIX + package.name
        urn = make_urn(self.stack, self.project, "", type_, package.provider_name)
        old, inputs = self.olds.get(urn), package.inputs(self.config)
        if is_plugin(f"{package.name}:"):
            inputs = _configured(executor, urn, inputs)
        new = ResourceState(urn, True, type_, inputs=inputs)
        new.outputs = dict(inputs)
        if old is None:
            new.id = str(uuid.uuid4())
            return Step(Op.CREATE, urn, None, new)
        new.id = old.id
        diffs = find_changed_keys(old.inputs, new.inputs)
        return Step(Op.UPDATE if diffs else Op.SAME, urn, old, new, diffs=diffs)


def _configured(executor: StepExecutor, urn: str, inputs: PropertyMap) -> PropertyMap:
    plugins = executor.host.plugins
    checked, problems = plugins.check(inputs)
    if problems:
        raise EngineError("; ".join(f"gpuform:{p.path} {p.reason}" for p in problems))
    plugins.configure(urn, checked)
    return checked
