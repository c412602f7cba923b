"""Test the plugin's answers to Pulumi's engine over gRPC; most tests need no platform."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from google.protobuf.empty_pb2 import Empty
from google.protobuf.struct_pb2 import Struct
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc

from gpuform.providers.catalog import list_kinds, load_lifecycle_class
from gpuform.providers.emulator.server import Server, environment, serve
from gpuform.providers.engine_log import EngineLog
from gpuform.providers.plugin.servicer import Servicer
from gpuform.providers.plugin.settings import create_settings
from gpuform.providers.plugin.wire import from_struct, to_struct
from gpuform.providers.together.cluster import ClusterLifecycle
from gpuform.providers.values import Secret
from gpuform.schemas.values import UNKNOWN

URN = "urn:pulumi:dev::p::my:Parent$gpuform:together:Cluster::train"
GOOD = {
    "cluster_name": "train",
    "region": "us-central-8",
    "gpu_type": "H100_SXM",
    "num_gpus": 8.0,
    "cluster_type": "KUBERNETES",
    "billing_type": "ON_DEMAND",
    "cuda_version": "12.6",
    "nvidia_driver_version": "560",
}


@pytest.fixture
def servicer(monkeypatch: pytest.MonkeyPatch) -> Servicer:
    for variable in ("TOGETHER_API_KEY", "TOGETHER_BASE_URL", "PULUMI_CONFIG"):
        monkeypatch.delenv(variable, raising=False)
    return Servicer(EngineLog())


@pytest.fixture
def plugin(servicer: Servicer) -> Iterator[provider_pb2_grpc.ResourceProviderStub]:
    server = grpc.server(ThreadPoolExecutor(4))
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield provider_pb2_grpc.ResourceProviderStub(channel)
    server.stop(None).wait()


@pytest.fixture
def emulator() -> Iterator[Server]:
    with serve() as server:
        yield server


def get_refusal(call: Any, request: Any) -> tuple[grpc.StatusCode, str]:
    """Call the method, which must fail, and return the status code and the message."""
    with pytest.raises(grpc.RpcError) as raised:
        # One method answers with a stream, whose error only appears on reading.
        list(call(request))  # one answers in a stream
    return raised.value.code(), raised.value.details()


def test_the_plugin_reports_its_features_and_version(plugin: Any) -> None:
    answer = plugin.Configure(provider_pb2.ConfigureRequest())
    assert answer.acceptSecrets
    assert answer.acceptOutputs
    assert answer.supportsPreview
    assert plugin.GetPluginInfo(Empty()).version
    handshake = plugin.Handshake(provider_pb2.ProviderHandshakeRequest(engine_address=""))
    assert handshake.accept_secrets
    plugin.Attach(plugin_pb2.PluginAttach(address="127.0.0.1:1"))
    assert plugin.GetMapping(provider_pb2.GetMappingRequest(key="terraform")).provider == ""


def test_unsupported_calls_are_refused_with_a_reason(plugin: Any) -> None:
    requests = {
        "Call": (provider_pb2.CallRequest(tok="gpuform:x"), "no methods"),
        "Construct": (provider_pb2.ConstructRequest(type="gpuform:x:Y"), "gpuform:x:Y"),
        "Parameterize": (provider_pb2.ParameterizeRequest(), "no parameters"),
        "List": (provider_pb2.ListRequest(), "gpuform orphans"),
    }
    for name, (request, expected) in requests.items():
        code, message = get_refusal(getattr(plugin, name), request)
        assert code is grpc.StatusCode.UNIMPLEMENTED
        assert expected in message


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        ("gpuform:together:Clutser", "together has no Clutser"),
        ("gpuform:togehter:Cluster", "togehter is not a platform"),
        ("other:together:Cluster", "is not a resource of gpuform"),
        ("gpuform", "is not a resource of gpuform"),
    ],
)
def test_an_unknown_type_is_named(plugin: Any, type_: str, expected: str) -> None:
    request = provider_pb2.CheckRequest(urn=f"urn:pulumi:dev::p::{type_}::x")
    code, message = get_refusal(plugin.Check, request)
    assert code is grpc.StatusCode.UNKNOWN
    assert expected in message
    assert "Traceback" not in message


def test_every_kind_of_the_catalogue_is_served(plugin: Any) -> None:
    for platform, kind in list_kinds():
        urn = f"urn:pulumi:dev::p::gpuform:{platform}:{kind}::x"
        request = provider_pb2.CheckRequest(urn=urn, news=to_struct({"no_such_input": 1}))
        answer = plugin.Check(request)
        assert "no_such_input" in {failure.property for failure in answer.failures}


def test_check_marks_secrets_of_the_models_and_of_the_program(plugin: Any) -> None:
    lifecycle = load_lifecycle_class("scp", "GpuNode")
    (name, *_) = [
        secret_name
        for secret_name in lifecycle.list_secret_names()
        if secret_name in lifecycle.inputs.model_fields
    ]
    request = provider_pb2.CheckRequest(
        urn="urn:pulumi:dev::p::gpuform:scp:GpuNode::x",
        news=to_struct({name: "hush", "gpu_node_name": Secret("quiet"), "tags": UNKNOWN}),
    )
    checked_inputs = from_struct(plugin.Check(request).inputs)
    assert checked_inputs[name] == Secret("hush")
    assert checked_inputs["gpu_node_name"] == Secret("quiet")
    assert checked_inputs["tags"] is UNKNOWN


@pytest.mark.parametrize(
    ("former", "now", "value"),
    [
        ("scale_down", ["drain"], {"wait_minutes": 10.0}),
        ("driver_version", ["cuda_version", "nvidia_driver_version"], "CUDA_12_6_560"),
    ],
)
def test_a_secret_stays_secret_under_its_canonical_name(
    plugin: Any, former: str, now: list[str], value: Any
) -> None:
    declared = {name: value_ for name, value_ in GOOD.items() if name not in now}
    news = to_struct({**declared, former: Secret(value)})
    checked = plugin.Check(provider_pb2.CheckRequest(urn=URN, news=news))
    request = provider_pb2.CreateRequest(urn=URN, properties=checked.inputs, preview=True)
    created = plugin.Create(request)
    assert not checked.failures
    for answer in (from_struct(checked.inputs), from_struct(created.properties)):
        assert all(isinstance(answer[name], Secret) for name in now)
        assert not isinstance(answer["cluster_name"], Secret)


def test_a_replacement_stays_in_the_project_whatever_the_variable(
    plugin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pulumi checks a replacement twice, the second time without the old inputs."""
    monkeypatch.setenv("TOGETHER_PROJECT_ID", "proj-b")
    plugin.Configure(provider_pb2.ConfigureRequest())
    olds, news = to_struct({**GOOD, "project_id": "proj-a"}), to_struct(GOOD)

    def read_project(urn: str, olds: Struct | None = None) -> Any:
        answer = plugin.Check(provider_pb2.CheckRequest(urn=urn, olds=olds, news=news))
        return from_struct(answer.inputs).get("project_id")

    assert [read_project(URN, olds), read_project(URN)] == ["proj-a", "proj-a"]
    assert read_project(f"{URN}-2") == "proj-b"


def test_a_refusal_does_not_contain_secrets(plugin: Any) -> None:
    request = provider_pb2.CheckRequest(
        urn="urn:pulumi:dev::p::gpuform:together:Cluster::x",
        news=to_struct({**GOOD, "cluster_type": Secret('quiet "4711" place')}),
    )
    (failure,) = plugin.Check(request).failures
    assert failure.property == "cluster_type"
    assert "4711" not in failure.reason


def test_a_diff_lists_changed_and_replacing_properties(plugin: Any) -> None:
    olds = {**GOOD, "ready": True, "cluster_id": "c-1", "__provider": "of the dynamic form"}
    news = {**GOOD, "num_gpus": 16, "region": "us-east-1"}
    answer = plugin.Diff(
        provider_pb2.DiffRequest(id="c-1", urn=URN, olds=to_struct(olds), news=to_struct(news))
    )
    kinds = {path: diff.kind for path, diff in answer.detailedDiff.items()}
    assert kinds == {
        "num_gpus": provider_pb2.PropertyDiff.UPDATE,
        "region": provider_pb2.PropertyDiff.UPDATE_REPLACE,
    }
    assert answer.changes == provider_pb2.DiffResponse.DIFF_SOME
    assert (list(answer.replaces), answer.deleteBeforeReplace) == (["region"], True)
    assert set(answer.diffs) == {"num_gpus", "region"}
    same = plugin.Diff(
        provider_pb2.DiffRequest(id="c-1", urn=URN, olds=to_struct(olds), news=to_struct(GOOD))
    )
    assert same.changes == provider_pb2.DiffResponse.DIFF_NONE
    assert not same.detailedDiff


def test_a_changed_list_item_is_reported_as_a_change_of_the_list(plugin: Any) -> None:
    kind = {"add_on_type": "dashboard", "name": "ui"}
    add_ons = [{**kind, "config": {"dashboard": {"enabled": True}}}]
    more = [{**kind, "config": {"dashboard": {"enabled": False}}}]
    olds = {**GOOD, "add_ons": add_ons, "ready": True}
    answer = plugin.Diff(
        provider_pb2.DiffRequest(
            id="c-1",
            urn=URN,
            olds=to_struct(olds),
            news=to_struct({**GOOD, "add_ons": more}),
        )
    )
    assert list(answer.detailedDiff) == ["add_ons"]


@pytest.mark.parametrize("verb", ["create", "update"])
def test_a_preview_returns_the_inputs_without_a_request(plugin: Any, verb: str) -> None:
    news = to_struct({**GOOD, "volume_id": UNKNOWN})
    if verb == "create":
        request = provider_pb2.CreateRequest(urn=URN, properties=news, preview=True)
        answer = plugin.Create(request)
        assert answer.id == ""
    else:
        olds = to_struct({**GOOD, "ready": True, "kube_config": Secret("k")})
        answer = plugin.Update(
            provider_pb2.UpdateRequest(id="c-1", urn=URN, olds=olds, news=news, preview=True)
        )
    properties = from_struct(answer.properties)
    lifecycle = load_lifecycle_class("together", "Cluster")
    assert {name: properties[name] for name in GOOD} == GOOD
    assert properties["volume_id"] is UNKNOWN
    computed = properties.keys() - GOOD.keys() - {"volume_id"}
    assert computed == lifecycle.outputs.model_fields.keys()
    for name in computed:
        assert properties[name] == (
            Secret(UNKNOWN) if name in lifecycle.list_secret_names() else UNKNOWN
        )


def test_an_error_has_no_traceback(plugin: Any) -> None:
    request = provider_pb2.CreateRequest(urn=URN, properties=to_struct(GOOD))
    code, message = get_refusal(plugin.Create, request)
    assert code is grpc.StatusCode.UNKNOWN
    assert message.startswith("the API key for Together is missing")
    assert "Traceback" not in message


@pytest.mark.parametrize("id_", ["", "..", "x" * 300])
def test_an_invalid_node_id_is_refused_before_any_request(
    plugin: Any, emulator: Server, monkeypatch: pytest.MonkeyPatch, id_: str
) -> None:
    for name, value in environment(emulator.url).items():
        monkeypatch.setenv(name, value)
    urn = "urn:pulumi:dev::p::gpuform:scp:GpuNode::x"
    _, message = get_refusal(
        plugin.Read, provider_pb2.ReadRequest(urn=urn, id=id_, inputs=Struct())
    )
    assert message.startswith("no request was sent: an id or a name must")


def test_a_stored_version_of_another_type_is_a_difference(plugin: Any) -> None:
    olds, news = to_struct({**GOOD, "cuda_version": True}), to_struct(GOOD)
    answer = plugin.Diff(provider_pb2.DiffRequest(id="c-1", urn=URN, olds=olds, news=news))
    assert list(answer.detailedDiff) == ["cuda_version"]


def test_an_unexpected_error_does_not_show_values(
    plugin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_key_error(*_: object) -> None:
        raise KeyError("hush")

    monkeypatch.setattr(ClusterLifecycle, "delete", raise_key_error)
    _, message = get_refusal(plugin.Delete, provider_pb2.DeleteRequest(urn=URN, id="c-1"))
    assert "unexpected KeyError" in message
    assert "hush" not in message


def test_the_configuration_is_checked_and_its_secrets_are_marked(plugin: Any) -> None:
    news = {"togetherApiKey": "hush", "lensUrl": "http://lens", "form": "plugin", "version": "1"}
    good = plugin.CheckConfig(provider_pb2.CheckRequest(news=to_struct(news)))
    assert not good.failures
    assert from_struct(good.inputs) == {**news, "togetherApiKey": Secret("hush")}
    bad = {"togetherApikey": "hush", "lensUrl": 3, "scpAccessKey": UNKNOWN}
    answer = plugin.CheckConfig(provider_pb2.CheckRequest(news=to_struct(bad)))
    failures = {failure.property: failure.reason for failure in answer.failures}
    assert failures.keys() == {"togetherApikey", "lensUrl"}
    assert "did you mean togetherApiKey?" in failures["togetherApikey"]


def test_a_changed_configuration_replaces_nothing(plugin: Any) -> None:
    olds, news = to_struct({"lensUrl": "a"}), to_struct({"lensUrl": "b"})
    answer = plugin.DiffConfig(provider_pb2.DiffRequest(olds=olds, news=news))
    assert answer.changes == provider_pb2.DiffResponse.DIFF_SOME
    assert (list(answer.diffs), list(answer.replaces)) == (["lensUrl"], [])
    same = plugin.DiffConfig(provider_pb2.DiffRequest(olds=olds, news=olds))
    assert same.changes == provider_pb2.DiffResponse.DIFF_NONE


def test_provider_settings_override_the_environment(
    plugin: Any, servicer: Servicer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOGETHER_API_KEY", "of the environment")
    plugin.Configure(provider_pb2.ConfigureRequest())
    assert (
        servicer.settings.get_value("TOGETHER_API_KEY", "together:apiKey") == "of the environment"
    )
    args = to_struct({"togetherApiKey": Secret("of the provider")})
    plugin.Configure(provider_pb2.ConfigureRequest(args=args))
    assert servicer.settings.get_value("TOGETHER_API_KEY", "together:apiKey") == "of the provider"
    plugin.Configure(provider_pb2.ConfigureRequest(variables={"gpuform:config:lensUrl": "there"}))
    assert servicer.settings.get_value("LENS_URL", "lens:url") == "there"


def test_the_stacks_configuration_completes_provider_settings() -> None:
    settings = create_settings({}, {"aios:registryUrl": "there"})
    assert settings.get_value("NO_SUCH_VARIABLE", "aios:registryUrl") == "there"
    unknown = create_settings({"togetherApiKey": UNKNOWN}, {"together:apiKey": "another account"})
    assert unknown.get_value("TOGETHER_API_KEY", "together:apiKey") is None


def test_cancel_may_be_repeated(plugin: Any, servicer: Servicer) -> None:
    plugin.Cancel(Empty())
    plugin.Cancel(Empty())
    assert servicer.cancelled.is_set()


@pytest.mark.parametrize(
    ("token", "arguments", "expected"),
    [
        ("gpuform:together:get_region", {}, "did you mean gpuform:together:get_regions?"),
        ("gpuform:together:Cluster", {}, "gpuform has no function"),
        ("gpuform:scp:images", {}, "missing a required argument: 'region_id'"),
        ("gpuform:scp:images", {"region": "x"}, "unexpected keyword argument 'region'"),
        ("gpuform:together:get_regions", {}, "API key for Together is missing"),
    ],
)
def test_an_invalid_function_call_is_refused_with_a_reason(
    plugin: Any, token: str, arguments: dict[str, Any], expected: str
) -> None:
    request = provider_pb2.InvokeRequest(tok=token, args=to_struct(arguments))
    _, message = get_refusal(plugin.Invoke, request)
    assert expected in message


def test_a_preview_warns_about_node_repairs(plugin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(EngineLog, "show_warning", lambda _self, _urn, text: warnings.append(text))
    repair = {"approve": "automatic"}
    fault = {"node": "w-1", "cause": "platform", "because": "it is hot", "mode": "REBOOT_VM"}
    olds = {**GOOD, "ready": True, "repair": repair, "faults": [fault]}
    olds["gpu_worker_nodes"] = [{"host_name": "w-1", "instance_id": ""}]
    news = to_struct({**GOOD, "repair": repair})
    plugin.Update(
        provider_pb2.UpdateRequest(id="c-1", urn=URN, olds=to_struct(olds), news=news, preview=True)
    )
    assert warnings == ["repairs node w-1 by REBOOT_VM: it is hot"]


def test_a_diff_certifies_the_nodes_that_an_earlier_diff_repairs(plugin: Any) -> None:
    repair = {"approve": "automatic"}
    fault = {"node": "w-1", "cause": "platform", "because": "it is hot", "mode": "REBOOT_VM"}
    cluster = {**GOOD, "ready": True, "repair": repair, "faults": [fault]}
    cluster["gpu_worker_nodes"] = [{"host_name": "w-1", "instance_id": "i-1"}]
    fabric = {
        "cluster_id": "c-1",
        "num_gpus": 8.0,
        "name": "fabric",
        "categories": [{"domain": "diagnostics", "variant": "dcgm-level4"}],
    }
    proven = {"node": "w-1", "machine": "i-1", "categories": ["diagnostics/dcgm-level4"]}
    fabric_request = provider_pb2.DiffRequest(
        id="c-1/default/fabric",
        urn="urn:pulumi:dev::p::gpuform:together:Certification::fabric",
        olds=to_struct({**fabric, "ready": True, "evidence": [proven]}),
        news=to_struct(fabric),
    )
    assert plugin.Diff(fabric_request).changes == provider_pb2.DiffResponse.DIFF_NONE
    cluster_request = provider_pb2.DiffRequest(
        id="c-1", urn=URN, olds=to_struct(cluster), news=to_struct({**GOOD, "repair": repair})
    )
    assert plugin.Diff(cluster_request).changes == provider_pb2.DiffResponse.DIFF_SOME
    answer = plugin.Diff(fabric_request)
    assert (answer.changes, [*answer.diffs]) == (provider_pb2.DiffResponse.DIFF_SOME, ["evidence"])
