"""Test stacks that move between dynamic and plugin form, and work in either, in the engine."""

import json
from typing import Any

import pytest
from conformance.emulated import Platform
from conformance.kind_descriptions import KindDescription
from conformance.kinds import for_all
from conformance.stacks import PROGRAM, EmbeddedStack, declare_one

from gpuform.providers.emulator.together import ADMIN_KEY, MEMBER_KEY
from gpuform.providers.platform import Form
from gpuform.providers.values import Secret
from gpuform.stacks.engine.urn import PLUGIN_PROVIDER_TYPE

pytestmark = [pytest.mark.slow, pytest.mark.sampled(6)]

PLUGIN_PROGRAM = (
    PROGRAM.replace(
        "made = {}",
        """
def plugin(platform, kind):
    lifecycle = load_lifecycle_class(platform, kind)
    dynamic = pulumi.Alias(type_=f"pulumi-python:dynamic/gpuform.{platform}:{kind}")

    class InPluginForm(pulumi.CustomResource):
        def __init__(self, resource_name, /, opts, **inputs):
            secret = {key: pulumi.Output.secret(inputs[key])
                      for key in lifecycle.list_secret_names() if key in inputs}
            properties = {**dict.fromkeys(lifecycle.list_property_names()), **inputs, **secret}
            own = pulumi.ResourceOptions(aliases=[dynamic])
            options = pulumi.ResourceOptions.merge(own, opts)
            super().__init__(f"gpuform:{platform}:{kind}", resource_name, properties, options)

    return InPluginForm


made = {}""",
    )
    .replace("load_resource_class", "load_lifecycle_class", 1)
    .replace("load_resource_class(", "plugin(")
)


def write_program(stack: EmbeddedStack, form: Form) -> None:
    message = PROGRAM if form is Form.DYNAMIC else PLUGIN_PROGRAM
    (stack.directory / "__main__.py").write_text(message)


def read_raw_resource(stack: EmbeddedStack) -> dict[str, Any]:
    """Return the one resource in the state file."""
    (path,) = (stack.directory / ".pulumi" / "stacks").rglob("dev.json")
    resources = json.loads(path.read_text())["checkpoint"]["latest"]["resources"]
    (result,) = [resource for resource in resources if resource["urn"].endswith("::thing")]
    return dict(result)


@for_all
@pytest.mark.parametrize("begin", Form)
def test_a_stack_moves_to_the_other_form_and_back_with_an_empty_plan(
    description: KindDescription, embedded: EmbeddedStack, platform: Platform, begin: Form
) -> None:
    declared = declare_one(description)
    write_program(embedded, begin)
    assert embedded.apply(declared).ok
    assert embedded.refresh().operations == []  # only a refresh asks a cluster's own schedulers
    id_, before = embedded.id, embedded.outputs
    for form in (begin.other, begin):
        write_program(embedded, form)
        platform.forget_requests()
        assert embedded.plan(declared).operations == []
        result = embedded.apply(declared)
        assert (result.ok, result.operations) == (True, []), result.errors
        assert embedded.get_state().type == form.build_type(description.platform, description.kind)
        assert embedded.refresh().operations == []
        assert embedded.plan(declared).operations == []
        assert (embedded.id, embedded.outputs) == (id_, before)
        assert platform.list_writes() == []
    if description.create:
        assert embedded.destroy().ok
        assert platform.list_objects(description) == []


def test_both_forms_keep_the_same_state(
    description: KindDescription, embedded: EmbeddedStack, platform: Platform
) -> None:
    result = []
    for form in Form:
        write_program(embedded, form)
        assert embedded.apply(declare_one(description)).ok
        result.append(read_raw_resource(embedded))
        assert embedded.destroy().ok
    dynamic, plugin = result
    assert "__provider" not in {**plugin["inputs"], **plugin["outputs"]}
    for properties in ("inputs", "outputs"):
        assert {**dynamic[properties], "__provider": None}.keys() == {
            *plugin[properties],
            "__provider",
        }
        secret = [
            {key for key, value in item[properties].items() if is_secret(value)} for item in result
        ]
        assert secret[0] == secret[1]
    assert plugin["provider"].startswith(
        f"urn:pulumi:dev::conformance::{PLUGIN_PROVIDER_TYPE}::default::"
    )


def is_secret(value: Any) -> bool:
    return isinstance(value, dict) and "ciphertext" in value


def test_the_default_provider_has_the_packages_configuration(
    description: KindDescription, embedded: EmbeddedStack, platform: Platform
) -> None:
    platform_name, _, key = description.key_config.partition(":")
    name = platform_name + key[0].upper() + key[1:]
    embedded.config = {"conformance:other": "1", f"gpuform:{name}": description.key}
    write_program(embedded, Form.PLUGIN)
    assert embedded.apply(declare_one(description)).ok
    (provider,) = [r for r in embedded.snapshot.resources if r.type == PLUGIN_PROVIDER_TYPE]
    assert provider.inputs.keys() == {name}
    assert isinstance(provider.inputs[name], Secret) == description.key_is_secret
    assert provider.outputs == provider.inputs
    assert embedded.destroy().ok


def test_an_unknown_setting_is_refused_before_any_create(
    description: KindDescription, embedded: EmbeddedStack, platform: Platform
) -> None:
    embedded.config = {"gpuform:togetherApikey": "k"}
    write_program(embedded, Form.PLUGIN)
    result = embedded.apply(declare_one(description))
    assert not result.ok
    assert "gpuform:togetherApikey is not a setting of gpuform: did you mean togetherApiKey?" in (
        "".join(result.errors)
    )
    assert platform.list_writes() == []


TWO_ACCOUNTS = """\
import pulumi


class Volume(pulumi.CustomResource):
    def __init__(self, name, size, opts=None):
        inputs = {"volume_name": name, "size_tib": size, "region": "us-central-8", "ready": None}
        super().__init__("gpuform:together:SharedVolume", name, inputs, opts)


theirs = pulumi.ProviderResource("gpuform", "theirs", {"togetherApiKey": KEY})
Volume("ours", SIZE)
Volume("borrowed", SIZE, pulumi.ResourceOptions(provider=theirs))
"""


def write_accounts_program(stack: EmbeddedStack, key: str, size: int = 1) -> None:
    message = TWO_ACCOUNTS.replace("KEY", repr(key)).replace("SIZE", str(size))
    (stack.directory / "__main__.py").write_text(message)


def test_explicit_providers_use_accounts_of_their_own(
    embedded: EmbeddedStack, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_accounts_program(embedded, ADMIN_KEY)
    assert embedded.plan().operations == ["create", "create"]
    assert embedded.apply().ok
    assert embedded.plan().operations == []
    ours, borrowed = embedded.get_state("ours").provider, embedded.get_state("borrowed").provider
    assert "::default::" in ours
    assert "::theirs::" in borrowed
    monkeypatch.setenv("TOGETHER_API_KEY", MEMBER_KEY)  # ours may only look from now on
    write_accounts_program(embedded, ADMIN_KEY, size=2)
    result = embedded.apply()
    assert not result.ok
    assert "A Member may only view" in "".join(result.errors)
    assert {r.urn.rpartition("::")[2]: r.inputs["size_tib"] for r in embedded.resources} == {
        "ours": 1,
        "borrowed": 2,
    }
    monkeypatch.setenv("TOGETHER_API_KEY", ADMIN_KEY)
    write_accounts_program(
        embedded, MEMBER_KEY, size=2
    )  # another key of the same account: nothing is replaced
    assert embedded.apply().operations == ["update"]
    assert embedded.get_state("borrowed").provider == borrowed
    assert not embedded.destroy().ok  # by the key in the state
    assert ours not in [resource.provider for resource in embedded.resources]
    write_accounts_program(embedded, ADMIN_KEY, size=2)
    assert embedded.apply().ok
    assert embedded.destroy().ok
    assert ADMIN_KEY not in read_files(embedded)


def read_files(stack: EmbeddedStack) -> str:
    retained = stack.directory / ".pulumi"
    return "".join(path.read_text() for path in retained.rglob("*") if path.is_file())


FUNCTIONS = """\
import pulumi

found = pulumi.runtime.invoke("gpuform:together:get_regions", {}).value
pulumi.export("regions", [each["name"] for each in found["items"]])
"""


def test_functions_answer_in_the_engine(embedded: EmbeddedStack, platform: Platform) -> None:
    (embedded.directory / "__main__.py").write_text(FUNCTIONS)
    assert embedded.apply().ok
    assert embedded.outcome is not None
    assert "us-central-8" in str(embedded.outcome.outputs["regions"])
    misspelt = FUNCTIONS.replace("get_regions", "get_region")
    (embedded.directory / "__main__.py").write_text(misspelt)
    result = embedded.apply()
    assert not result.ok
    assert "did you mean gpuform:together:get_regions?" in "".join(result.errors)
