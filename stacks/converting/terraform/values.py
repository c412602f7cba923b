"""Values of Terraform's states and files, as entries have them."""

from collections.abc import Mapping
from typing import Any

from gpuform.schemas.checking import check
from gpuform.schemas.models import InputModel
from gpuform.schemas.values import UNKNOWN
from gpuform.stacks.authoring.declared import ConfigValue, Mixed, Reference, Value
from gpuform.stacks.converting.terraform.kinds import TerraformKind


def flat(attributes: Mapping[str, Any], kind: TerraformKind) -> dict[str, Any]:
    """The attributes with those of inner objects beside them."""
    inner = (attributes.get(name) for name in kind.inner)
    parts = {k: v for each in inner if isinstance(each, Mapping) for k, v in each.items()}
    return {**parts, **attributes}


def as_raw(value: Any) -> Any:
    """A plain value as python-hcl2 has literals."""
    if not isinstance(value, str):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return '"' + escaped.replace("${", "$${").replace("%{", "%%{") + '"'


def spelt(properties: dict[str, Value], model: type[InputModel]) -> dict[str, Value]:
    """Their provider takes choices in any case: in capitals what is refused only as it is."""
    refused = {problem.path for problem in check(model, _known(properties))[1]}
    louder = {
        name: value.upper()
        for name, value in properties.items()
        if name in refused and isinstance(value, str)
    }
    still = {problem.path for problem in check(model, _known({**properties, **louder}))[1]}
    return {**properties, **{name: text for name, text in louder.items() if name not in still}}


def _known(properties: Mapping[str, Value]) -> dict[str, Any]:
    return {
        name: UNKNOWN if isinstance(value, Reference | ConfigValue | Mixed) else value
        for name, value in properties.items()
    }
