"""Define the names that expressions can use, and resolve references to values and resources.

`expanding` adds instances to the names. `scope` asks for the values to evaluate an expression with,
`planning` for the resources that an entry depends on. `planning` creates a `CheckingSource`; in
runs, `registering` and `declaring` have sources of their own.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from gpuform.providers.catalog import list_lookups
from gpuform.providers.platform import platforms
from gpuform.schemas.checking import find_nearest_name, suggest_name
from gpuform.schemas.topology import SECTIONS
from gpuform.schemas.values import UNKNOWN, contains_unknown
from gpuform.stacks.expressions.sandbox import METHODS
from gpuform.stacks.expressions.template import ExpressionReference
from gpuform.stacks.expressions.values import ExpressionError
from gpuform.stacks.topology.configuration import ConfigValue
from gpuform.stacks.topology.declarations import (
    ALONE,
    MODULES,
    ConfigVariable,
    Groups,
    Instance,
    InstanceGroup,
    ModuleInstance,
    Modules,
    Repetition,
    UnreadNames,
)

if TYPE_CHECKING:
    from gpuform.stacks.topology.scope import Scope


class ValueSource(Protocol):
    """The values that come from outside of a topology, known or standing for a later value."""

    def get_config(self, name: str) -> Any:
        """Return the value of a declared configuration variable."""

    def get_input(self, name: str) -> Any:
        """Return the value of an input of a module without an including file."""

    def make_secret(self, value: Any) -> Any:
        """Return the value of an expression marked as secret."""

    def get_property(self, instance: Instance, name: str) -> Any:
        """Return a property of a resource for an expression."""

    def get_stack_output(self, reference: str, name: str) -> Any:
        """Return an output of a referenced stack for an expression."""

    def lookup(self, platform: str, name: str) -> Any:
        """Return a platform's lookup as a `Function` for expressions."""

    def get_name(self, name: str) -> Any:
        """Return the name of the running `project` or `stack`."""

    def is_pending(self, value: Any) -> bool:
        """Return True if `value` contains an unknown value."""

    def join(
        self,
        values: Sequence[Any],
        make: Callable[[Sequence[Any]], Any],
        of_secret: Callable[[], None],
    ) -> Any:
        """Return the result of `make` once all `values` are known, or a stand-in until then.

        If one of the values is secret, `of_secret` is called first and may raise.
        """


def create_empty_groups() -> Groups:
    """Create the groups of a file before expansion: every section, without entries."""
    return {section: {} for section in SECTIONS}


@dataclass(frozen=True, slots=True)
class Names:
    """The names that expressions of a file can use.

    `each` is the `each` of the current instance, None outside of an instance. `module` is
    the module whose file is evaluated, `inputs` are None outside of modules. `passed`
    caches the inputs and outputs of modules for one source. `unread` holds the names of the file
    with problems that are already reported.
    """

    source: ValueSource
    config: Sequence[str] = ()
    inputs: Mapping[str, ConfigVariable] | None = None
    stack_references: Sequence[str] = ()
    groups: Groups = field(default_factory=create_empty_groups)
    modules: Modules = field(default_factory=dict)
    module: ModuleInstance | None = None
    each: Mapping[str, Any] | None = None
    passed: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    unread: UnreadNames = field(default_factory=UnreadNames)


@dataclass(frozen=True, slots=True)
class CheckingSource:
    """A source in which values of resources and secrets are UNKNOWN.

    `lookups` asks a platform. Without `lookups`, and for names missing in `program`, values are
    UNKNOWN.
    """

    values: Mapping[str, ConfigValue]
    program: Mapping[str, str]
    lookups: Callable[[str, str], Any] | None = None
    input_values: Mapping[str, ConfigValue] = field(default_factory=dict)
    """The inputs of a module that no file includes."""
    exports: Mapping[str, Collection[str]] = field(default_factory=dict)
    """The known outputs of other stacks, by the name of the reference."""

    def get_config(self, name: str) -> Any:
        config_value = self.values.get(name)
        return UNKNOWN if config_value is None or config_value.secret else config_value.value

    def get_input(self, name: str) -> Any:
        input_value = self.input_values.get(name)
        return UNKNOWN if input_value is None or input_value.secret else input_value.value

    def make_secret(self, _value: Any) -> Any:
        return UNKNOWN

    def get_property(self, _instance: Instance, _name: str) -> Any:
        return UNKNOWN

    def get_stack_output(self, reference: str, name: str) -> Any:
        """Return UNKNOWN for an output of another stack.

        Raises:
            ExpressionError: the other stack's outputs are known and do not include `name`.
        """
        output_names = self.exports.get(reference)
        # Without names from the other stack, the run itself finds a missing output.
        if output_names is not None and name not in output_names:
            listed_names = f"its outputs are {', '.join(sorted(output_names))}"
            hint = listed_names if output_names else "it has no outputs"
            raise ExpressionError(
                f"the stack of stack_references.{reference} has no output {name}",
                suggest_name(name, output_names, hint),
            )
        return UNKNOWN

    def lookup(self, platform: str, name: str) -> Any:
        return self.lookups(platform, name) if self.lookups else UNKNOWN

    def get_name(self, name: str) -> Any:
        return self.program.get(name, UNKNOWN)

    def is_pending(self, value: Any) -> bool:
        return contains_unknown(value)

    def join(
        self,
        _values: Sequence[Any],
        _make: Callable[[Sequence[Any]], Any],
        _of_secret: Callable[[], None],
    ) -> Any:
        return UNKNOWN


Leaf = tuple[tuple[str, ...], Any]
"""A path among the variables, and the value at the path."""


class UnreadEntry(ExpressionError):
    """A reference to an entry whose own problem is already reported, and which is missing for it.

    The reference may be right, so that nobody shows this error.
    """


_Made = TypeVar("_Made", bound=Repetition[Any])
_FUNCTIONS = ("range",)
_OUTSIDE = ("config", "stack_references")
"""Roots that modules cannot use: they belong to the stack's topology."""
_OF_MAPS = frozenset(METHODS[next(kind for kind in METHODS if kind is not str)])


def list_roots() -> tuple[str, ...]:
    """Return the names with which a reference can begin."""
    return (
        *("config", "inputs", "each", "stack_references", "pulumi", MODULES),
        *(*SECTIONS, *platforms(), *_FUNCTIONS),
    )


@dataclass(frozen=True, slots=True)
class References:
    """Resolves references. Every method raises ExpressionError if the target does not exist."""

    names: Names
    values: "Scope"

    def find_values(self, reference: ExpressionReference, *, alone: bool) -> Iterator[Leaf]:
        """Yield the values of a reference, each with the path among the variables.

        `alone` is True if the reference is the complete expression: then a resource means its id.
        A function has no values. Raises ExpressionError for an unknown name.
        """
        if reference.root in _OUTSIDE and self.names.inputs is not None:
            hint = "declare an input, and pass the value in the `with` of the module's `include`"
            raise ExpressionError(f"{reference.root} is not available in a module", hint)
        if reference.root in SECTIONS:
            yield from self._find_resource_values(reference, alone=alone)
        elif reference.root == MODULES:
            yield from self._find_module_values(reference)
        elif reference.root == "each":
            yield from self._find_each_values(reference)
        elif reference.root == "stack_references":
            yield self._find_stack_output(reference)
        elif reference.root not in _FUNCTIONS:
            existing_names, get_value, hint = self._describe_root(reference.root)
            for name in self._choose_names(reference, existing_names, hint):
                yield (reference.root, name), get_value(name)

    def _describe_root(self, root: str) -> tuple[Sequence[str], Callable[[str], Any], str]:
        """Return the names after a root such as `config`, and a function for the value of a name.

        Returns the existing names, the function that returns the value of a name, and the hint of
        the error for an unknown name. Raises ExpressionError for an unknown root.
        """
        source = self.names.source
        if root == "config":
            return self.names.config, source.get_config, "declare it in the config section"
        if root == "inputs":
            if self.names.inputs is None:
                raise ExpressionError("inputs are available only in modules", "use config")
            hint = "declare it in the inputs section"
            return tuple(self.names.inputs), self.values.get_input, hint
        if root == "pulumi":
            return ("project", "stack"), source.get_name, ""
        if root in platforms():
            return list_lookups(root), lambda name: source.lookup(root, name), ""
        raise _create_unknown_error(root, list_roots())

    def find_resources(self, reference: ExpressionReference) -> list[Instance]:
        """Return the resources of a reference; empty for other values.

        For an input or an output of a module, these are the resources in its expressions.
        """
        if reference.root == "inputs":
            names = self._choose_names(reference, tuple(self.names.inputs or ()))
            return [it for name in names for it in self.values.list_input_resources(name)]
        if reference.root == MODULES:
            outputs = self._list_outputs(reference)
            return [it for output in outputs for it in self.values.list_output_resources(*output)]
        if reference.root not in SECTIONS:
            return []
        group = self._get_group(reference)
        instance, _ = self._find_instance(reference, group)
        return list(group.instances.values()) if instance is None else [instance]

    def find_named_resources(self, reference: ExpressionReference) -> list[Instance] | None:
        """Return the resources behind a reference, or None if the reference has another value.

        A reference to an entry with `for_each`, or to a module, stands for all of its resources; an
        input or output of a module stands for the resources that its own value names. A reference
        to a property of a resource has another value.
        """
        if reference.root == "inputs" and len(reference.steps) == 1:
            (name,) = self._choose_names(reference, tuple(self.names.inputs or ()))
            return self.values.find_resources_named_by_input(name)
        if reference.root not in (*SECTIONS, MODULES):
            return None
        group = self._get_group(reference)
        instance, used = self._find_instance(reference, group)
        if reference.root in SECTIONS:
            return self.find_resources(reference) if used == len(reference.steps) else None
        if used == len(reference.steps):
            modules = group.instances.values() if instance is None else [instance]
            return [resource for module in modules for resource in module.list_resources()]
        if instance is None or used + 1 != len(reference.steps):
            return None
        ((module, name),) = self._list_outputs(reference)
        return self.values.find_resources_named_by_output(module, name)

    def _choose_names(
        self, reference: ExpressionReference, existing_names: Sequence[str], hint: str = ""
    ) -> Sequence[str]:
        """Return the name in the first step, or all existing names if the step is unknown.

        Raises ExpressionError, with `hint`, for a name that does not exist.
        """
        step = self.values.get_step(reference, 0)
        if step is None:
            return existing_names
        if step not in existing_names:
            if self.names.unread.may_contain(reference.root, step):
                raise UnreadEntry(f"{reference.root}.{step} could not be read")
            raise _create_unknown_error(step, existing_names, f"{reference.root}.", hint)
        return [step]

    def _find_each_values(self, reference: ExpressionReference) -> Iterator[Leaf]:
        """Yield the named values of `each`. Raises ExpressionError outside of `for_each`."""
        if self.names.each is None:
            raise ExpressionError("`each` is available only in entries with for_each")
        for name in self._choose_names(reference, ("key", "value")):
            yield (reference.root, name), self.names.each[name]

    def _find_stack_output(self, reference: ExpressionReference) -> Leaf:
        """Return the path and value of an output of another stack. Raises ExpressionError."""
        output = self.values.get_step(reference, 1)
        if output is None:
            raise ExpressionError(
                f"{reference} does not name an output of a stack",
                "write {{ stack_references.NAME.OUTPUT }}",
            )
        (name,) = self._choose_names(reference, self.names.stack_references)
        return (reference.root, name, output), self.names.source.get_stack_output(name, output)

    def _find_module_values(self, reference: ExpressionReference) -> Iterator[Leaf]:
        """Yield the values of a module's outputs, of all instances if none is named.

        Unknown instances are UNKNOWN; a module without instances or outputs is an empty object.
        """
        group = self._get_group(reference)
        instance, _ = self._find_instance(reference, group)
        if instance is None and (group.open or not group.instances):
            yield (reference.root, group.declaration.name), UNKNOWN if group.open else {}
            return
        for module in [instance] if instance else group.instances.values():
            # A module without outputs is an empty object.
            if not module.declaration.topology.outputs:
                yield module.path, {}
        for module, name in self._list_outputs(reference):
            yield (*module.path, name), self.values.get_output(module, name)

    def _list_outputs(self, reference: ExpressionReference) -> Iterator[tuple[ModuleInstance, str]]:
        """Yield module and name of each output possibly meant by a reference.

        These are all outputs of the module if the reference names no output, or the name is not
        known yet. Raises ExpressionError if the module or the output does not exist.
        """
        group = self._get_group(reference)
        instance, used = self._find_instance(reference, group)
        for module in [instance] if instance else group.instances.values():
            existing_names = tuple(module.declaration.topology.outputs)
            name = self.values.get_step(reference, used) if instance else None
            if name is None:
                yield from ((module, output) for output in existing_names)
                continue
            if name not in existing_names:
                if module.declaration.topology.unread.has_unread_files:
                    raise UnreadEntry(f"the outputs of {module.address} could not be read")
                before, hint = f"{'.'.join(module.path)}.", "declare it in the module's outputs"
                raise _create_unknown_error(name, existing_names, before, hint)
            yield module, name

    def _find_resource_values(
        self, reference: ExpressionReference, *, alone: bool
    ) -> Iterator[Leaf]:
        """Yield the values of a resource's properties, of all instances if none is named.

        Unknown instances are UNKNOWN; an entry without instances is an empty object.
        """
        group = self._get_group(reference)
        instance, used = self._find_instance(reference, group)
        if instance is None and (group.open or not group.instances):
            yield (reference.root, group.declaration.name), UNKNOWN if group.open else {}
            return
        for resource in [instance] if instance else group.instances.values():
            at = used if instance else None
            for name in self._choose_properties(reference, resource, at, alone=alone):
                yield (*resource.path, name), self.names.source.get_property(resource, name)

    def _choose_properties(
        self, reference: ExpressionReference, instance: Instance, at: int | None, *, alone: bool
    ) -> Sequence[str]:
        """Return the names of the properties possibly meant by a reference to a resource.

        These are all properties if the reference names no property, or the name is not known yet.
        With `alone`, a reference without a property means the id. `at` is the index of the step
        that names the property, or None. Raises ExpressionError for a property that does not exist.
        """
        existing_names = instance.list_property_names()
        name = None if at is None else self.values.get_step(reference, at)
        if name is None:
            is_whole = len(reference.steps) == (1 if at is None else at)
            # A resource alone means its id; in a function it may be read as an object.
            return ("id",) if alone and is_whole else existing_names
        if name not in existing_names:
            raise _create_unknown_error(name, existing_names, f"{'.'.join(instance.path)}.")
        return (name,)

    def _get_group(self, reference: ExpressionReference) -> InstanceGroup[Any]:
        """Return the instances of the entry named by a reference.

        Raises ExpressionError for a name that is missing, not known yet, or not declared.
        """
        groups: Mapping[str, InstanceGroup[Any]] = self.names.modules
        if reference.root != MODULES:
            groups = self.names.groups[reference.root]
        name = self.values.get_step(reference, 0)
        if name is None:
            raise ExpressionError(
                f"{reference} does not name an entry", f"write {{{{ {reference.root}.NAME }}}}"
            )
        if name in groups:
            return groups[name]
        if self.names.unread.may_contain(reference.root, name):
            raise UnreadEntry(f"{reference.root}.{name} could not be read")
        # Jinja2 reads `a-b` as a subtraction, and finds only `a` here.
        longer_name = next((other for other in groups if other.startswith(f"{name}-")), None)
        if longer_name is not None:
            raise ExpressionError(
                f"{reference.root}.{name} does not exist",
                f"write a name with a hyphen in brackets: {reference.root}['{longer_name}']",
            )
        raise _create_unknown_error(name, tuple(groups), f"{reference.root}.")

    def _find_instance(
        self, reference: ExpressionReference, group: InstanceGroup[_Made]
    ) -> tuple[_Made | None, int]:
        """Return the instance named by a reference, and the number of steps in the instance's name.

        Returns None as the instance if the reference means all instances, or if the instance is not
        known yet. Raises ExpressionError for an instance that does not exist.
        """
        is_single, address = group.declaration.is_single, group.declaration.address
        key = ALONE if is_single else self.values.get_step(reference, 1)
        if key in group.absent:
            instance_address = address if is_single else f"{address}.{key}"
            raise ExpressionError(f"{instance_address} is not declared: its `when` is false")
        if key is None or group.open:
            return None, 1
        if key in group.instances:
            return group.instances[key], 1 if is_single else 2
        # A method such as `.values()` applies to the mapping of all instances.
        if key in _OF_MAPS:
            return None, 1
        hint = f"{address} has for_each: select an instance with {address}.KEY"
        raise _create_unknown_error(key, tuple(group.instances), f"{address}.", hint)


def _create_unknown_error(
    name: str, existing_names: Sequence[str], prefix: str = "", hint: str = ""
) -> ExpressionError:
    """Build the error for an unknown name, with the nearest name as the hint, else `hint`."""
    nearest_name = find_nearest_name(name, existing_names)
    if nearest_name:
        hint = f"did you mean {prefix}{nearest_name}?"
    elif not hint and existing_names:
        hint = f"use one of {', '.join(existing_names[:30])}"
    return ExpressionError(f"{prefix}{name} does not exist", hint)
