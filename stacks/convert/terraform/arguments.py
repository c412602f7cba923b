"""Convert the arguments of the block of one Terraform resource to properties and options.

`topology` creates one `ArgumentConverter` for each instance of a resource.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpuform.schemas.rules import FieldRules
from gpuform.stacks.convert.terraform.expressions import (
    ExpressionResolver,
    ReportOmission,
    UnresolvedExpression,
    strip_interpolation,
)
from gpuform.stacks.convert.terraform.files import ResourceInstance, TerraformBlock
from gpuform.stacks.convert.terraform.references import IncompleteEntry
from gpuform.stacks.convert.terraform.resource_types import (
    TERRAFORM_TYPES,
    TerraformType,
    is_plain,
    to_hcl_literal,
)
from gpuform.stacks.convert.terraform.variables import TerraformVariables
from gpuform.stacks.declaration_writer.declarations import (
    ConfigEntry,
    ConfigReference,
    DeclaredReference,
    Value,
)

META_ARGUMENTS: Final = (
    *("count", "for_each", "provider", "depends_on", "lifecycle", "timeouts"),
    *("provisioner", "connection"),
)
"""Arguments of all types. `count` and `for_each` become one entry for each instance."""
_UNSUPPORTED_ARGUMENTS: Final = ("provisioner", "connection", "provider")


@dataclass(frozen=True, slots=True)
class ArgumentConverter:
    """Converts the arguments of a block for one instance.

    `attributes` are the state's values under the names of properties.
    """

    block: TerraformBlock
    instance: ResourceInstance
    resolver: ExpressionResolver
    attributes: Mapping[str, Any]
    variables: TerraformVariables
    report_omission: ReportOmission

    @property
    def type(self) -> TerraformType:
        """Return gpuform's type of the Terraform resource."""
        return TERRAFORM_TYPES[self.instance.type]

    def convert_properties(self, rules: Mapping[str, FieldRules]) -> dict[str, Value]:
        """Return gpuform's properties for a Terraform block's arguments, by the model's `rules`.

        Null arguments are left out; an argument without a property becomes an omission.

        Raises:
            IncompleteEntry: neither an argument nor the state has a value for a property.
        """
        properties: dict[str, Value] = {}
        for argument, raw in self._iterate_arguments():
            name = self.type.get_property_name(argument)
            if name not in rules:
                message = f"{self.instance.address}: gpuform has no property for {argument}"
                self._report(argument, message)
                continue
            value = self.convert_argument(argument, raw, rules[name])
            if value is not None:
                properties[name] = self.type.convert_value(name, value)
        return properties

    def convert_argument(self, name: str, raw: Any, rules: FieldRules) -> Value:
        """Return the value of an argument, whose expression is `raw`.

        If the expression has no equivalent, returns the value in Terraform's state and reports an
        omission. Without a value in the state, a secret becomes configuration for the user to set,
        and one of the required alternatives becomes None. `rules` are those of the property.

        Raises:
            IncompleteEntry: the state has no value either, and the property is not a secret.
        """
        property_name = self.type.get_property_name(name)
        try:
            value = self._resolve(raw, property_name)
        except UnresolvedExpression as code:
            if self.attributes.get(property_name) is not None:
                # The expression may contain the secret as a literal, and omissions are printed.
                is_secret = self._is_secret(name, rules)
                expression_label = "the written expression" if is_secret else code
                message = f"{name} has the state's value instead of {expression_label}"
                self._report(name, f"{self.instance.address}: {message}")
            # Without the argument the user is asked for a value.
            elif name in self.type.required_alternatives:
                return None
            reason = f"{name} is {code}, and the state does not contain its value"
            return self._get_state_value(name, property_name, rules, reason)
        return self._hide_secret(name, rules, value)

    def find_required_value(self, name: str, rules: FieldRules) -> Value:
        """Return the state's value of a required property without a value in the files.

        A secret without a value becomes configuration that the user sets.

        Raises:
            IncompleteEntry: the state has no value either.
        """
        reason = f"neither the files nor the state contain its {name}"
        return self._get_state_value(name, name, rules, reason)

    def require_from_user(self, name: str) -> ConfigReference:
        """Return a reference to configuration for the user to set, and report an omission."""
        self.variables.used.setdefault(name, ConfigEntry(name, {"type": "string"}))
        self.report_omission(
            self.block.position,
            f"{self.instance.address}: neither the files nor the state contain its {name}: set it "
            f"with `gpuform config set {name} VALUE`",
        )
        return ConfigReference(name)

    def _resolve(self, raw: Any, property_name: str) -> Value:
        """Return the value of an argument, which must be plain for a reworded property.

        Raises UnresolvedExpression for an expression without an equivalent, and for a reference in
        a reworded property.
        """
        value = self.resolver.resolve(raw)
        if property_name in self.type.reworded_properties and not is_plain(value):
            code = str(raw)
            is_expression = code.startswith("${") and code.endswith("}")
            raise UnresolvedExpression(code[2:-1] if is_expression else code)
        return value

    def _get_state_value(
        self, name: str, property_name: str, rules: FieldRules, reason: str
    ) -> Value:
        """Return the state's value of an argument; for a missing secret, configuration to set.

        Raises IncompleteEntry, with `reason`, if the state has no value and the argument is no
        secret.
        """
        value = self.attributes.get(property_name)
        if value is not None:
            return self._hide_secret(name, rules, value)
        if rules.secret:
            return self.variables.declare_secret(name)
        raise IncompleteEntry(reason)

    def _is_secret(self, name: str, rules: FieldRules) -> bool:
        # A user may give a sensitive value to a public argument: the state lists the attribute as
        # sensitive.
        return rules.holds_secret or name in self.instance.sensitive

    def _hide_secret(self, name: str, rules: FieldRules, value: Value) -> Value:
        if not self._is_secret(name, rules):
            return value
        return self.variables.hide_literals((self.instance.name, name), value)

    def _iterate_arguments(self) -> Iterator[tuple[str, Any]]:
        """Yield names and raw values of the arguments of the block, without meta-arguments.

        The members of a nested argument are yielded as arguments of their own. If the nested
        argument is an expression without an equivalent, the members have the state's values, and an
        omission is reported.
        """
        for name, raw in self.block.body.items():
            if name in META_ARGUMENTS or name in self.type.ignored_arguments:
                continue
            if name not in self.type.nested_arguments:
                yield name, raw
            elif isinstance(raw, Mapping):
                yield from raw.items()
            else:
                code = strip_interpolation(str(raw))
                nested_object = self.attributes.get(name) or {}
                resolvable = {
                    member: path
                    for member in nested_object
                    if self.resolver.can_resolve(path := f"${{{code}.{member}}}")
                }
                # The state also has members that the provider computes.
                if resolvable:
                    yield from resolvable.items()
                    continue
                label = ".".join(self.block.labels)
                self._report(name, f"{label}: {name} has the state's value instead of {code}")
                for member, value in nested_object.items():
                    yield member, to_hcl_literal(value)

    def _report(self, argument: str, message: str) -> None:
        self.report_omission(self.block.find_argument_position(argument), message)

    def convert_meta_arguments(self) -> dict[str, Value]:
        """Return an entry's options; arguments without an equivalent are reported as omissions.

        Dependencies on data sources are dropped. The caller converts `count` and `for_each`.
        """
        body, label = self.block.body, ".".join(self.block.labels)
        options: dict[str, Value] = {}
        for argument in _UNSUPPORTED_ARGUMENTS:
            if argument in body:
                self._report(argument, f"{label}: {argument} was not converted")
        if dependencies := list(self._list_dependencies(label)):
            options["depends_on"] = dependencies
        # python-hcl2 has each block as a list, even a block that may occur only once.
        for lifecycle in body.get("lifecycle") or ():
            options |= self._convert_lifecycle(lifecycle, label)
        for timeouts in body.get("timeouts") or ():
            if durations := dict(self._resolve_timeouts(timeouts, label)):
                options["timeouts"] = durations
        return options

    def _list_dependencies(self, label: str) -> Iterator[DeclaredReference]:
        for raw in self.block.body.get("depends_on") or ():
            # Nothing here waits for a data source: its values are known.
            if strip_interpolation(str(raw)).startswith("data."):
                continue
            try:
                dependency = self.resolver.resolve(raw)
            except UnresolvedExpression as code:
                self._report("depends_on", f"{label}: depends_on {code} was not converted")
            else:
                if isinstance(dependency, DeclaredReference):
                    yield dependency

    def _resolve_timeouts(
        self, timeouts: Mapping[str, Any], label: str
    ) -> Iterator[tuple[str, Value]]:
        """Yield each timeout with its duration; one without an equivalent becomes an omission.

        The timeout of reads is dropped: Pulumi has none.
        """
        for operation, raw in timeouts.items():
            if operation == "read":
                continue
            try:
                yield operation, self.resolver.resolve(raw)
            except UnresolvedExpression as code:
                message = f"{label}: the {operation} timeout {code} was not converted"
                self._report(operation, message)

    def _convert_lifecycle(self, arguments: Mapping[str, Any], label: str) -> dict[str, Value]:
        """Return the options for a `lifecycle` block, and report the others as omissions."""
        options: dict[str, Value] = {}
        for key, value in arguments.items():
            # False is Terraform's default and needs no option.
            if key == "prevent_destroy":
                options |= {"protect": True} if value is True else {}
            elif key == "create_before_destroy":
                # False is written because several kinds delete the old object first by default.
                options |= {"delete_before_replace": False} if value is True else {}
            elif key == "ignore_changes" and isinstance(value, list):
                names: list[Value] = []
                for argument in (strip_interpolation(str(item)) for item in value):
                    properties = self._find_ignored_properties(argument)
                    names += properties
                    if not properties:
                        self._report(key, f"{label}: changes of {argument} are not ignored")
                options["ignore_changes"] = names
            else:
                self._report(key, f"{label}: {key} was not converted")
        return options

    def _find_ignored_properties(self, argument: str) -> list[str]:
        """Return the properties for an argument of `ignore_changes`; empty without any."""
        if argument in self.type.unignorable_arguments:
            return []
        root, _, member = argument.partition(".")
        if root not in self.type.nested_arguments:
            return [self.type.get_property_name(argument)]
        # The members of a nested argument are properties of their own.
        members = self.block.body.get(root)
        return [member] if member else list(members if isinstance(members, Mapping) else ())
