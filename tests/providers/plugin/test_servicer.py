"""The plugin's answers, over gRPC, where no platform is asked."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from google.protobuf.empty_pb2 import Empty
from google.protobuf.struct_pb2 import Struct
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc

from gpuform.providers.catalog import all_kinds, lifecycle_class
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


def refused(call: Any, request: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        list(call(request))  # one answers in a stream
    return caught.value.code(), caught.value.details()


def test_what_it_can_and_how_it_is_called(plugin: Any) -> None:
    answer = plugin.Configure(provider_pb2.ConfigureRequest())
    assert answer.acceptSecrets
    assert answer.acceptOutputs
    assert answer.supportsPreview
    assert plugin.GetPluginInfo(Empty()).version
    handshake = plugin.Handshake(provider_pb2.ProviderHandshakeRequest(engine_address=""))
    assert handshake.accept_secrets
    plugin.Attach(plugin_pb2.PluginAttach(address="127.0.0.1:1"))
    assert plugin.GetMapping(provider_pb2.GetMappingRequest(key="terraform")).provider == ""


def test_what_it_has_not_is_told(plugin: Any) -> None:
    requests = {
        "Call": (provider_pb2.CallRequest(tok="gpuform:x"), "no methods"),
        "Construct": (provider_pb2.ConstructRequest(type="gpuform:x:Y"), "gpuform:x:Y"),
        "Parameterize": (provider_pb2.ParameterizeRequest(), "no parameters"),
        "List": (provider_pb2.ListRequest(), "gpuform orphans"),
    }
    for name, (request, told) in requests.items():
        code, text = refused(getattr(plugin, name), request)
        assert code is grpc.StatusCode.UNIMPLEMENTED
        assert told in text


@pytest.mark.parametrize(
    ("type_", "told"),
    [
        ("gpuform:together:Clutser", "together has no Clutser"),
        ("gpuform:togehter:Cluster", "togehter is not a platform"),
        ("other:together:Cluster", "is not a resource of gpuform"),
        ("gpuform", "is not a resource of gpuform"),
    ],
)
def test_an_unknown_type_is_named(plugin: Any, type_: str, told: str) -> None:
    request = provider_pb2.CheckRequest(urn=f"urn:pulumi:dev::p::{type_}::x")
    code, text = refused(plugin.Check, request)
    assert code is grpc.StatusCode.UNKNOWN
    assert told in text
    assert "Traceback" not in text


def test_every_kind_of_the_catalogue_is_served(plugin: Any) -> None:
    for platform, kind in all_kinds():
        urn = f"urn:pulumi:dev::p::gpuform:{platform}:{kind}::x"
        asked = provider_pb2.CheckRequest(urn=urn, news=to_struct({"no_such_input": 1}))
        answer = plugin.Check(asked)
        assert "no_such_input" in {each.property for each in answer.failures}


def test_check_marks_what_is_secret_by_the_models_and_by_the_program(plugin: Any) -> None:
    lifecycle = lifecycle_class("scp", "GpuNode")
    (name, *_) = [
        each for each in lifecycle.list_secret_names() if each in lifecycle.inputs.model_fields
    ]
    request = provider_pb2.CheckRequest(
        urn="urn:pulumi:dev::p::gpuform:scp:GpuNode::x",
        news=to_struct({name: "hush", "gpu_node_name": Secret("quiet"), "tags": UNKNOWN}),
    )
    found = from_struct(plugin.Check(request).inputs)
    assert found[name] == Secret("hush")
    assert found["gpu_node_name"] == Secret("quiet")
    assert found["tags"] is UNKNOWN


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
    declared = {name: each for name, each in GOOD.items() if name not in now}
    news = to_struct({**declared, former: Secret(value)})
    checked = plugin.Check(provider_pb2.CheckRequest(urn=URN, news=news))
    request = provider_pb2.CreateRequest(urn=URN, properties=checked.inputs, preview=True)
    created = plugin.Create(request)
    assert not checked.failures
    for answer in (from_struct(checked.inputs), from_struct(created.properties)):
        assert all(isinstance(answer[name], Secret) for name in now)
        assert not isinstance(answer["cluster_name"], Secret)


def test_a_refusal_has_nothing_of_what_the_program_marks_as_secret(plugin: Any) -> None:
    request = provider_pb2.CheckRequest(
        urn="urn:pulumi:dev::p::gpuform:together:Cluster::x",
        news=to_struct({**GOOD, "cluster_type": Secret('quiet "4711" place')}),
    )
    (failure,) = plugin.Check(request).failures
    assert failure.property == "cluster_type"
    assert "4711" not in failure.reason


def test_a_detailed_diff_says_which_properties_and_how(plugin: Any) -> None:
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


def test_an_item_of_a_list_is_told_of_the_whole_list(plugin: Any) -> None:
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
def test_a_preview_knows_the_inputs_and_asks_nobody(plugin: Any, verb: str) -> None:
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
    found = from_struct(answer.properties)
    lifecycle = lifecycle_class("together", "Cluster")
    assert {name: found[name] for name in GOOD} == GOOD
    assert found["volume_id"] is UNKNOWN
    computed = found.keys() - GOOD.keys() - {"volume_id"}
    assert computed == lifecycle.outputs.model_fields.keys()
    for name in computed:
        assert found[name] == (
            Secret(UNKNOWN) if name in lifecycle.list_secret_names() else UNKNOWN
        )


def test_an_error_is_its_message_alone(plugin: Any) -> None:
    request = provider_pb2.CreateRequest(urn=URN, properties=to_struct(GOOD))
    code, text = refused(plugin.Create, request)
    assert code is grpc.StatusCode.UNKNOWN
    assert text.startswith("there is no API key for Together")
    assert "Traceback" not in text


@pytest.mark.parametrize("id_", ["", "..", "x" * 300])
def test_an_impossible_id_of_a_node_is_an_error_with_a_remedy(
    plugin: Any, emulator: Server, monkeypatch: pytest.MonkeyPatch, id_: str
) -> None:
    for name, value in environment(emulator.url).items():
        monkeypatch.setenv(name, value)
    urn = "urn:pulumi:dev::p::gpuform:scp:GpuNode::x"
    _, text = refused(plugin.Read, provider_pb2.ReadRequest(urn=urn, id=id_, inputs=Struct()))
    assert text.startswith("no request was sent: an id or a name must")


def test_a_state_with_a_version_of_another_type_differs_and_is_no_crash(plugin: Any) -> None:
    olds, news = to_struct({**GOOD, "cuda_version": True}), to_struct(GOOD)
    answer = plugin.Diff(provider_pb2.DiffRequest(id="c-1", urn=URN, olds=olds, news=news))
    assert list(answer.detailedDiff) == ["cuda_version"]


def test_an_error_that_nobody_foresaw_tells_no_value(
    plugin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("hush")

    monkeypatch.setattr(ClusterLifecycle, "delete", broken)
    _, text = refused(plugin.Delete, provider_pb2.DeleteRequest(urn=URN, id="c-1"))
    assert "unexpected KeyError" in text
    assert "hush" not in text


def test_the_configuration_is_checked_and_its_secrets_are_marked(plugin: Any) -> None:
    news = {"togetherApiKey": "hush", "lensUrl": "http://lens", "form": "plugin", "version": "1"}
    good = plugin.CheckConfig(provider_pb2.CheckRequest(news=to_struct(news)))
    assert not good.failures
    assert from_struct(good.inputs) == {**news, "togetherApiKey": Secret("hush")}
    bad = {"togetherApikey": "hush", "lensUrl": 3, "scpAccessKey": UNKNOWN}
    answer = plugin.CheckConfig(provider_pb2.CheckRequest(news=to_struct(bad)))
    failures = {each.property: each.reason for each in answer.failures}
    assert failures.keys() == {"togetherApikey", "lensUrl"}
    assert "did you mean togetherApiKey?" in failures["togetherApikey"]


def test_another_configuration_is_a_change_and_replaces_nothing(plugin: Any) -> None:
    olds, news = to_struct({"lensUrl": "a"}), to_struct({"lensUrl": "b"})
    answer = plugin.DiffConfig(provider_pb2.DiffRequest(olds=olds, news=news))
    assert answer.changes == provider_pb2.DiffResponse.DIFF_SOME
    assert (list(answer.diffs), list(answer.replaces)) == (["lensUrl"], [])
    same = plugin.DiffConfig(provider_pb2.DiffRequest(olds=olds, news=olds))
    assert same.changes == provider_pb2.DiffResponse.DIFF_NONE


def test_a_provider_s_own_settings_win_over_the_environment(
    plugin: Any, servicer: Servicer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOGETHER_API_KEY", "of the environment")
    assert servicer.settings.value("TOGETHER_API_KEY", "together:apiKey") == "of the environment"
    args = to_struct({"togetherApiKey": Secret("of the provider")})
    plugin.Configure(provider_pb2.ConfigureRequest(args=args))
    assert servicer.settings.value("TOGETHER_API_KEY", "together:apiKey") == "of the provider"
    plugin.Configure(provider_pb2.ConfigureRequest(variables={"gpuform:config:lensUrl": "there"}))
    assert servicer.settings.value("LENS_URL", "lens:url") == "there"


def test_the_stack_s_configuration_is_used_where_the_provider_says_nothing() -> None:
    settings = create_settings({}, {"aios:registryUrl": "there"})
    assert settings.value("NO_SUCH_VARIABLE", "aios:registryUrl") == "there"
    unknown = create_settings({"togetherApiKey": UNKNOWN}, {"together:apiKey": "another account"})
    assert unknown.value("TOGETHER_API_KEY", "together:apiKey") is None


def test_cancel_may_come_twice_and_ends_all_waiting(plugin: Any, servicer: Servicer) -> None:
    plugin.Cancel(Empty())
    plugin.Cancel(Empty())
    assert servicer.cancelled.is_set()


@pytest.mark.parametrize(
    ("token", "arguments", "told"),
    [
        ("gpuform:together:get_region", {}, "did you mean gpuform:together:get_regions?"),
        ("gpuform:together:Cluster", {}, "gpuform has no function"),
        ("gpuform:scp:images", {}, "missing a required argument: 'region_id'"),
        ("gpuform:scp:images", {"region": "x"}, "unexpected keyword argument 'region'"),
        ("gpuform:together:get_regions", {}, "no API key"),
    ],
)
def test_a_function_called_wrongly_says_so(
    plugin: Any, token: str, arguments: dict[str, Any], told: str
) -> None:
    request = provider_pb2.InvokeRequest(tok=token, args=to_struct(arguments))
    _, text = refused(plugin.Invoke, request)
    assert told in text


def test_a_preview_tells_which_node_is_repaired_for_pulumi_s_plan_has_no_words_for_it(
    plugin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(EngineLog, "warning", lambda _self, _urn, text: told.append(text))
    repair = {"approve": "automatic"}
    fault = {"node": "w-1", "cause": "platform", "because": "it is hot", "mode": "REBOOT_VM"}
    olds = {**GOOD, "ready": True, "repair": repair, "faults": [fault]}
    olds["gpu_worker_nodes"] = [{"host_name": "w-1", "instance_id": ""}]
    news = to_struct({**GOOD, "repair": repair})
    plugin.Update(
        provider_pb2.UpdateRequest(id="c-1", urn=URN, olds=to_struct(olds), news=news, preview=True)
    )
    assert told == ["repairs node w-1 by REBOOT_VM: it is hot"]
