"""Test the resource class as programs use it, with Pulumi's mocks for the engine."""

from collections.abc import Callable, Iterator
from typing import Any

import pulumi
import pytest
from pulumi.runtime import mocks, rpc, settings

from gpuform.providers import Provider
from gpuform.providers.platform import list_settings
from gpuform.providers.resource import NoExplicitProvider, ProviderArguments, UnknownForm
from gpuform.providers.scp import GpuNode
from gpuform.providers.together import Cluster, SharedVolume

Arguments = mocks.MockResourceArgs


class Engine(mocks.Mocks):
    """Record registrations; every resource gets an id and its inputs back."""

    def __init__(self) -> None:
        self.registered: dict[str, Arguments] = {}

    def new_resource(self, args: Arguments) -> tuple[str | None, dict[Any, Any]]:
        self.registered[args.name] = args
        return args.resource_id or f"{args.name}-id", dict(args.inputs)

    def call(self, args: mocks.MockCallArgs) -> dict[Any, Any]:
        raise AssertionError("no program here calls a function")


Run = Callable[[Callable[[], object]], dict[str, Arguments]]


@pytest.fixture
def run() -> Iterator[Run]:
    def run(program: Callable[[], object]) -> dict[str, Arguments]:
        engine = Engine()
        mocks.set_mocks(engine, preview=False)
        pulumi.runtime.test(program)()
        return engine.registered

    yield run
    settings.reset_options()
    pulumi.runtime.set_all_config({})


def create_volume(**changes: Any) -> SharedVolume:
    arguments = {"volume_name": "data", "size_tib": 2, "region": "us-central-8", **changes}
    return SharedVolume("data", **arguments)


def test_registered_inputs(run: Run) -> None:
    registered = run(lambda: [create_volume()])["data"]
    assert registered.typ == "pulumi-python:dynamic/gpuform.together:SharedVolume"
    inputs = {k: v for k, v in registered.inputs.items() if k != "__provider"}
    assert inputs == {"volume_name": "data", "size_tib": 2, "region": "us-central-8"}
    assert isinstance(registered.inputs["__provider"], str)
    assert len(registered.inputs["__provider"]) < 200


def test_secret_inputs_are_registered_as_secret(run: Run) -> None:
    node = {"gpu_node_name": "a", "os_user_password": "Abcdef12!", "init_script": None}
    registered = run(lambda: [GpuNode("a", **node)])["a"]
    secret = {rpc._special_sig_key: rpc._special_secret_sig, "value": "Abcdef12!"}
    assert registered.inputs["os_user_password"] == secret
    assert registered.inputs["gpu_node_name"] == "a"
    assert "init_script" not in registered.inputs


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the registration requests to the monitor."""
    queries: list[Any] = []
    register = mocks.MockMonitor.RegisterResource

    def remember(self: mocks.MockMonitor, request: Any) -> Any:
        queries.append(request)
        return register(self, request)

    monkeypatch.setattr(mocks.MockMonitor, "RegisterResource", remember)
    return queries


def test_resource_options_are_registered(run: Run, requests: list[Any]) -> None:
    def program() -> None:
        own = pulumi.Alias(name="before")
        Cluster("train", opts=pulumi.ResourceOptions(aliases=[own], protect=True), **CLUSTER)

    run(program)
    (registered,) = (request for request in requests if request.name == "train")
    assert list(registered.additionalSecretOutputs) == ["kube_config"]
    assert registered.protect is True
    assert "gpuform:together:Cluster" in str(registered.aliases)
    assert "before" in str(registered.aliases)


CLUSTER: Any = {
    "cluster_name": "train",
    "region": "us-central-8",
    "gpu_type": "H100_SXM",
    "num_gpus": 16,
    "driver_version": "CUDA_12_6_560",
    "billing_type": "ON_DEMAND",
}


def test_a_resource_as_an_argument_becomes_its_id(run: Run) -> None:
    def program() -> None:
        Cluster("train", volume_id=create_volume(), **CLUSTER)

    assert run(program)["train"].inputs["volume_id"] == "data-id"


def test_every_property_is_an_attribute(run: Run) -> None:
    def program() -> None:
        cluster = Cluster("train", **CLUSTER)
        for name in ("num_gpus", "kube_config", "status", "ready", "project_id"):
            assert isinstance(getattr(cluster, name), pulumi.Output)

    run(program)


def test_an_unknown_argument_reaches_check(run: Run) -> None:
    assert run(lambda: [create_volume(sise_tib=3)])["data"].inputs["sise_tib"] == 3


def test_get_reads_an_existing_object(run: Run) -> None:
    def program() -> None:
        cluster = Cluster.get("theirs", "c-1")
        assert isinstance(cluster, Cluster)

    assert run(program)["theirs"].resource_id == "c-1"


def test_the_fixture_runs_programs(run: Run) -> None:
    def program() -> None:
        raise RuntimeError("a program that fails fails the test")

    with pytest.raises(RuntimeError, match="fails the test"):
        run(program)


def set_provider_form(form: str) -> None:
    pulumi.runtime.set_all_config({"gpuform:form": form})


def test_the_two_forms_differ_in_type_alias_and_pickle_alone(run: Run, requests: list[Any]) -> None:
    def program() -> None:
        Cluster("train", volume_id=create_volume(), **CLUSTER)
        GpuNode("a", gpu_node_name="a", os_user_password="Abcdef12!")

    dynamic = run(program)
    messages = [*requests]
    requests.clear()
    set_provider_form("plugin")
    plugin = run(program)
    for name, (platform, kind) in {
        "train": ("together", "Cluster"),
        "data": ("together", "SharedVolume"),
        "a": ("scp", "GpuNode"),
    }.items():
        types = (f"pulumi-python:dynamic/gpuform.{platform}:{kind}", f"gpuform:{platform}:{kind}")
        assert (dynamic[name].typ, plugin[name].typ) == types
        without = {key: v for key, v in dynamic[name].inputs.items() if key != "__provider"}
        assert plugin[name].inputs == without
        (before,) = (message for message in messages if message.name == name)
        (after,) = (message for message in requests if message.name == name)
        assert [message.spec.type for message in before.aliases] == [types[1]]
        assert [message.spec.type for message in after.aliases] == [types[0]]
        assert list(after.additionalSecretOutputs) == list(before.additionalSecretOutputs)
        assert not after.provider
        assert not after.version


def test_get_reads_an_existing_object_in_plugin_form(run: Run) -> None:
    set_provider_form("plugin")
    registered = run(lambda: [Cluster.get("theirs", "c-1")])["theirs"]
    assert (registered.typ, registered.resource_id) == ("gpuform:together:Cluster", "c-1")


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ("plugn", "did you mean plugin?"),
        ("Dynamic", "did you mean dynamic?"),
        ("terraform", "use dynamic or plugin"),
        ("", "use dynamic or plugin"),
    ],
)
def test_an_unknown_provider_form_is_refused(run: Run, form: str, message: str) -> None:
    set_provider_form(form)
    with pytest.raises(UnknownForm) as failed:
        run(lambda: [create_volume()])
    assert f"gpuform:form is {form!r} in the configuration of stack " in failed.value.message
    assert message in failed.value.message
    assert "gpuform config set gpuform:form" in str(failed.value.hint)
    assert f"Pulumi.{pulumi.get_stack()}.yaml" in str(failed.value.hint)


def test_an_explicit_provider_is_registered(run: Run, requests: list[Any]) -> None:
    def program() -> None:
        account = Provider("other", together_api_key="a-key", aios_registry_url="http://registry")
        Cluster("train", pulumi.ResourceOptions(provider=account), **CLUSTER)
        create_volume()

    set_provider_form("plugin")
    provider = run(program)["other"]
    assert provider.typ == "pulumi:providers:gpuform"
    secret = {rpc._special_sig_key: rpc._special_secret_sig, "value": "a-key"}
    assert provider.inputs == {"togetherApiKey": secret, "aiosRegistryUrl": "http://registry"}
    used = {request.name: request.provider for request in requests}
    assert used["train"].endswith("providers:gpuform::other::other-id")
    assert not used["data"]


def test_a_providers_arguments_are_the_plugins_settings() -> None:
    names = [setting.argument for setting in list_settings()]
    assert list(ProviderArguments.__annotations__) == names


def test_an_unknown_provider_setting_is_refused(run: Run) -> None:
    set_provider_form("plugin")
    with pytest.raises(TypeError, match="no together_key: it has together_api_key, "):
        run(lambda: [Provider("other", together_key="a-key")])


def test_the_dynamic_form_has_no_explicit_providers(run: Run) -> None:
    with pytest.raises(NoExplicitProvider) as refused:
        run(lambda: [Provider("other", together_api_key="a-key")])
    assert "provider 'other'" in refused.value.message
    assert "gpuform config set gpuform:form plugin" in str(refused.value.hint)
    assert "a-key" not in str(refused.value)
