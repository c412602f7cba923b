"""Kill a run after each request and each write, one by one, and let the next run recover it.

This is a program: `python -m conformance.crash_points SCENARIO FOLDER` prints a line of JSON. One
warm process without threads forks a child for every run, so that a kill costs a fraction of a
second. With CRASH_BACKEND, the URL of a bucket, the state is there. With CRASH_EXPLAINED_OF=3 one
of three kills is explained. The emulator runs in the
children, its objects in a SQLite file, which a killed process leaves complete.
"""

import gc
import itertools
import json
import os
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import httpx
import obstore
from conformance.emulated import Platform
from conformance.explained_crashes import KnownObjects, RecordedStack, list_statuses
from conformance.kind_descriptions import KindDescription
from conformance.kinds import CREATED_KINDS, FAST_KIND, KINDS, TOPOLOGY
from conformance.node_removals import (
    NODE_REMOVALS,
    NodeRemoval,
    RunningJob,
    build_local_runner,
    map_ids_by_name,
    run_slurm_command,
)
from conformance.recovery_checks import (
    assert_destroy_leaves_nothing,
    assert_next_run_recovers,
    assert_no_object_is_lost,
)
from conformance.stacks import DeclaredResource, declare_one
from conformance.together_kinds import CLUSTER
from support.servers.bucket_server import KEYS
from tenacity import Retrying  # noqa: F401 - imported once, for all children

from gpuform.providers.catalog import load_resource_class
from gpuform.providers.context.run_context import create_wsgi_transport, mount_transport
from gpuform.providers.emulator.app import create_app
from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.server import environment
from gpuform.providers.emulator.store import Store
from gpuform.providers.kubernetes.client import get_kubernetes_client
from gpuform.providers.kubernetes.kubeconfig import load_access
from gpuform.providers.kubernetes.scheduler import KubernetesScheduler
from gpuform.providers.slurm.processes import CommandOutput, LocalCommandRunner, PodCommandRunner
from gpuform.stacks.engine.secrets.passphrase import PassphraseCrypter
from gpuform.stacks.engine.state import edits
from gpuform.stacks.engine.store.addresses import open_storage

URL = "http://emulator.test"
START = 1_800_000_000.0

CRYPTER = PassphraseCrypter.create_new("test only")


@dataclass(frozen=True)
class Scenario:
    """A change of a stack: the declarations before and after it (no declaration after: a destroy).

    `outside_change`: a change by somebody else in between. `refreshes`: the run only reads.
    `reverts`: the run after a kill declares the former resources again. `abandons`: the run after a
    kill destroys all. `has_job`: a job runs on a removed node.
    """

    before: Sequence[DeclaredResource]
    after: Sequence[DeclaredResource]
    outside_change: Callable[["CrashedProject"], object] | None = None
    refreshes: bool = False
    reverts: bool = False
    abandons: bool = False
    has_job: bool = False

    @property
    def final_declarations(self) -> Sequence[DeclaredResource]:
        if self.abandons:
            return []
        return self.before if self.reverts else self.after

    @property
    def kinds(self) -> set[KindDescription]:
        return {item.description for item in (*self.before, *self.after)}


PrepareKind = Callable[[KindDescription], KindDescription]
"""Creates the requirements of a kind on the platform, and returns the kind with their ids."""


def _build_scenario(
    kind: KindDescription,
    before: Callable[[KindDescription], Mapping[str, Any]] | None,
    after: Callable[[KindDescription], Mapping[str, Any]] | None,
) -> Callable[[PrepareKind], Scenario]:
    def create_scenario(prepare_kind: PrepareKind) -> Scenario:
        description = prepare_kind(kind)
        steps = (
            [declare_one(description, item(description))] if item else []
            for item in (before, after)
        )
        return Scenario(*steps)

    return create_scenario


def _build_scenarios() -> dict[str, Callable[[PrepareKind], Scenario]]:
    scenarios: dict[str, Callable[[PrepareKind], Scenario]] = {
        "create-topology": lambda _: Scenario([], TOPOLOGY),
        "destroy-topology": lambda _: Scenario(TOPOLOGY, []),
    }
    scenarios["abandon-topology"] = lambda _: Scenario([], TOPOLOGY, abandons=True)
    for kind in CREATED_KINDS:
        get_valid_inputs = lambda item: item.valid_inputs  # noqa: E731 - one of three
        created = _build_scenario(kind, None, get_valid_inputs)
        scenarios[f"create-{kind}"] = created
        scenarios[f"abandon-{kind}"] = partial(_abandon_create, created)
        scenarios[f"update-{kind}"] = _build_scenario(
            kind, get_valid_inputs, lambda item: item.in_place.inputs
        )
        scenarios[f"replace-{kind}"] = _build_scenario(
            kind, get_valid_inputs, lambda item: item.replacing.inputs
        )
        scenarios[f"destroy-{kind}"] = _build_scenario(kind, get_valid_inputs, None)
    return scenarios | {
        f"replace-create-first-{FAST_KIND}": _build_create_first_replacement,
        f"refresh-{CLUSTER}": _build_refresh,
        f"import-{FAST_KIND}": _build_import,
        f"shrink-{CLUSTER}": _build_shrink,
        f"shrink-and-revert-{CLUSTER}": lambda prepare_kind: replace(
            _build_shrink(prepare_kind), reverts=True
        ),
    }


def _build_eviction_scenario(removal: NodeRemoval, prepare_kind: PrepareKind) -> Scenario:
    description = prepare_kind(removal.kind)

    def start(project: "CrashedProject") -> object:
        (entry,) = project.stack.resources
        RunningJob.start(project.platform, Path.cwd(), removal, map_ids_by_name(entry))
        if removal.fault:
            project.stack.refresh()

    before, after = removal.build_inputs(description)
    ends = [] if after is None else [declare_one(description, after)]
    return Scenario([declare_one(description, before)], ends, outside_change=start, has_job=True)


def _abandon_create(
    created: Callable[[PrepareKind], Scenario], prepare_kind: PrepareKind
) -> Scenario:
    return replace(created(prepare_kind), abandons=True)


def _build_create_first_replacement(_prepare_kind: PrepareKind) -> Scenario:
    options = {"delete_before_replace": False}
    other = {**FAST_KIND.replacing.inputs, FAST_KIND.name_field: "another"}
    return Scenario(
        [replace(declare_one(FAST_KIND), options=options)],
        [replace(declare_one(FAST_KIND, other), options=options)],
    )


def _build_refresh(_prepare_kind: PrepareKind) -> Scenario:
    def delete_outside(project: "CrashedProject") -> object:
        return project.platform.send(CLUSTER, CLUSTER.outside_update.fill_ids(project.stack.id))

    return Scenario(
        [declare_one(CLUSTER)],
        [declare_one(CLUSTER)],
        outside_change=delete_outside,
        refreshes=True,
    )


def _build_shrink(_prepare_kind: PrepareKind) -> Scenario:
    """Run a job on the newest node, which the platform would remove without a drain."""
    larger, smaller = ({**CLUSTER.valid_inputs, "num_gpus": count} for count in (24, 16))

    def start(project: "CrashedProject") -> object:
        (cluster_id,) = project.stack.ids
        pod = {"name": "train-0", "node": "train-worker-2"}
        path = f"/_emulator/kubernetes/{cluster_id}/pods"
        return project.platform.http.post(path, json=pod).raise_for_status()

    return Scenario(
        [declare_one(CLUSTER, larger)], [declare_one(CLUSTER, smaller)], outside_change=start
    )


def _build_import(_prepare_kind: PrepareKind) -> Scenario:
    def make(project: "CrashedProject") -> object:
        assert FAST_KIND.create is not None
        return project.platform.send(FAST_KIND, FAST_KIND.create)

    return Scenario(
        [],
        [replace(declare_one(FAST_KIND), options={"import_": EXISTING_OBJECT_ID})],
        outside_change=make,
    )


EXISTING_OBJECT_ID = "the id of the object that is there"


SCENARIOS = _build_scenarios()
NODE_REMOVAL_SCENARIOS = {
    f"take-{path}-{scheduler}": partial(_build_eviction_scenario, node_removal)
    for scheduler, paths in NODE_REMOVALS.items()
    for path, node_removal in paths.items()
}


COUNTED_POLLS = 3
CLOCK_SPEEDUP = 13.0
"""A sleep lasts this many times longer than requested, so that long waits need few polls.

The factor is no multiple of a poll interval: otherwise every poll would fall on the same moment.
"""
OBJECTS_CHANGED = ("put", "copy", "delete")


class CrashHook:
    """Counts events with an effect outside of the process, and kills the process at number `last`.

    Of consecutive polls only the first few count: another one leaves the same objects and files.
    """

    def __init__(self, last: int | None, points_file: Path) -> None:
        self._last = last
        self._points_file = points_file
        self._count = 0
        self._looks = 0
        self._lock = threading.Lock()

    def count_event(self, event: str) -> None:
        with self._lock:
            self._looks = self._looks + 1 if event.startswith("GET ") else 0
            if self._looks > COUNTED_POLLS:
                return
            self._count += 1
            if self._count == self._last:
                self._points_file.write_text(event)
                os.kill(os.getpid(), signal.SIGKILL)

    @property
    def ignores_polls(self) -> bool:
        """Return whether the next poll would not count."""
        return self._looks >= COUNTED_POLLS

    def watch_writes(self) -> None:
        """Count each written, renamed or removed file or object from now on."""
        for module, names in ((os, ("fsync", "replace", "unlink")), (obstore, OBJECTS_CHANGED)):
            for name in names:
                setattr(module, name, self._wrap_with_count(name, getattr(module, name)))

    def _wrap_with_count(self, name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            result = inner(*arguments, **options)
            self.count_event(f"{name} {arguments}")
            return result

        return call


class HastyClock(Clock):
    """A clock whose sleeps last `CLOCK_SPEEDUP` times longer while polls are not counted."""

    def __init__(self, store: Store, hook: CrashHook | None) -> None:
        super().__init__(store, start=START)
        self._hook = hook

    def advance_to(self, moment: float) -> float:
        is_in_haste = self._hook is None or self._hook.ignores_polls
        now = self.now()
        return super().advance_to(
            now + (CLOCK_SPEEDUP if is_in_haste else 1.0) * max(0.0, moment - now)
        )


class CountingTransport(httpx.BaseTransport):
    """A transport that counts each request after its effect and before its answer."""

    def __init__(self, inner: httpx.BaseTransport, hook: CrashHook) -> None:
        self._inner = inner
        self._hook = hook

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = self._inner.handle_request(request)
        if not request.url.path.startswith("/_emulator/"):
            self._hook.count_event(f"{request.method} {request.url.path}")
        return response


def patch_slurm_runners(http: httpx.Client, hook: CrashHook | None) -> None:
    """Replace the runners of Slurm's commands by requests to the emulator.

    The real ones need WebSockets and processes, and so a real port.
    """

    def count_command(text: str) -> None:
        if hook is not None:
            hook.count_event(text)

    def run(
        self: PodCommandRunner, command: Sequence[str], *, is_change: bool = False
    ) -> CommandOutput:
        cluster = load_access(self.kubeconfig, self.cluster).server.rpartition("/")[2]
        return run_slurm_command(http, cluster, command, count_command, is_change=is_change)

    for runner_class, run_there in (
        (PodCommandRunner, run),
        (LocalCommandRunner, build_local_runner(http, count_command)),
    ):
        setattr(runner_class, "run", run_there)  # noqa: B010 - a method of another shape to mypy


@dataclass(frozen=True)
class CrashedProject:
    """The project of a scenario and its emulated platforms, in one folder."""

    stack: RecordedStack
    platform: Platform

    @classmethod
    def open(
        cls, folder: Path, exit_stack: ExitStack, hook: CrashHook | None = None
    ) -> "CrashedProject":
        store = exit_stack.enter_context(Store(folder / "emulator.db", seed="crashes"))
        app = create_app(store, HastyClock(store, hook))
        transport = create_wsgi_transport(app)
        served = transport if hook is None else CountingTransport(transport, hook)
        exit_stack.enter_context(mount_transport(URL, served))
        # Slurm's commands of this machine are those of the emulator: see `run_commands`.
        os.environ.update({**environment(URL), "GPUFORM_ALLOW": "real-schedulers"})
        os.chdir(folder)
        http = httpx.Client(base_url=URL, transport=transport)
        patch_slurm_runners(http, hook)
        platform = Platform(cast("Any", None), http)
        return cls(RecordedStack(folder, CRYPTER, url=find_backend_url(folder)), platform)

    def build_scenario(self, name: str) -> Scenario:
        scenario = {**SCENARIOS, **NODE_REMOVAL_SCENARIOS}[name](self.platform.prepare)
        return replace(scenario, after=[self._with_existing_id(item) for item in scenario.after])

    def _with_existing_id(self, declared: DeclaredResource) -> DeclaredResource:
        ids = self.platform.list_ids(declared.description)
        if EXISTING_OBJECT_ID not in declared.options.values() or not ids:
            return declared
        return replace(declared, options={"import_": next(iter(ids))})

    def apply(self, declared: Sequence[DeclaredResource]) -> bool:
        result = self.stack.apply(*declared) if declared else self.stack.destroy()
        return result.ok

    def assert_no_job_was_killed(self) -> None:
        """Assert that no job was killed and every node is schedulable."""
        for found_object in self.platform.list_objects(CLUSTER):
            path = f"/_emulator/kubernetes/{found_object['id']}/ended"
            pods = self.platform.http.get(path).json()
            assert not [pod for pod in pods if pod["pod"].startswith("default/")]
        for entry in self.stack.resources:
            if kubeconfig := entry.outputs.get("kube_config"):
                kubernetes = KubernetesScheduler(get_kubernetes_client(kubeconfig.value, "train"))
                assert [node.name for node in kubernetes.list_nodes() if node.is_cordoned] == []

    def assert_no_create_is_unnamed(self, *kinds: KindDescription) -> None:
        """Assert that the checkpoint names each object, also without gpuform's own records."""
        checkpoint = self.stack.checkpoint if not self.stack.url else self.stack.snapshot
        assert edits.verify(checkpoint) == []
        stored_ids = {entry.id for entry in checkpoint.resources}
        named = {o.resource.type for o in checkpoint.pending_operations if o.type == "creating"}
        for kind in kinds:
            token = f"pulumi-python:dynamic/gpuform.{kind.platform}:{kind.kind}"
            for found_object in self.platform.list_objects(kind):
                leaving = found_object["status"].lower() in kind.deleting_statuses
                assert leaving or found_object["id"] in stored_ids or token in named, (
                    f"unnamed: {found_object}"
                )


def run_in_child(work: Callable[[], None], log: Path) -> int:
    """Run `work` in a forked child, log errors to `log`, and return the wait status."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:  # noqa: BLE001 - told in the log
            log.write_text(traceback.format_exc())
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1]


def find_backend_url(folder: Path) -> str:
    """Return the URL of a project's state, or "" for a state in the project's folder."""
    bucket = os.environ.get("CRASH_BACKEND")
    return f"{bucket}&prefix={folder.name}" if bucket else ""


def copy_objects(source: Path, target: Path) -> None:
    source_storage, target_storage = (
        open_storage(find_backend_url(item), KEYS) for item in (source, target)
    )
    for entry in source_storage.list_entries(".pulumi"):
        data = source_storage.read(entry.name)
        assert data is not None
        target_storage.write(entry.name, data.data)


def prepare(folder: Path, name: str) -> None:
    folder.mkdir(parents=True)
    with ExitStack() as exit_stack:
        project = CrashedProject.open(folder, exit_stack)
        scenario = project.build_scenario(name)
        if scenario.before:
            assert project.apply(scenario.before)
        if scenario.outside_change:
            scenario.outside_change(project)
        project.stack.begin_killed_run()
        objects = list_statuses(project.platform, scenario.kinds)
        KnownObjects.save(folder, project.stack, objects)
        project.platform.forget_requests()


def run(folder: Path, name: str, last: int | None, points_file: Path) -> None:
    with ExitStack() as exit_stack:
        hook = CrashHook(last, points_file)
        project = CrashedProject.open(folder, exit_stack, hook)
        scenario = project.build_scenario(name)
        hook.watch_writes()
        project.stack.is_recorded = False
        assert project.stack.refresh().ok if scenario.refreshes else project.apply(scenario.after)


def check_recovery(folder: Path, name: str, *, is_explained: bool) -> None:
    """Check the state after a kill, and let the next run recover.

    With `is_explained`, check as well what `gpuform explain` says of each object.
    """
    with ExitStack() as exit_stack:
        project = CrashedProject.open(folder, exit_stack)
        scenario = project.build_scenario(name)
        stack, platform = project.stack, project.platform
        stack.is_recorded = is_explained
        at_kill = list_statuses(platform, scenario.kinds) if is_explained else {}
        if scenario.before or not scenario.outside_change:
            project.assert_no_create_is_unnamed(*scenario.kinds)
            assert_no_object_is_lost(stack, platform, *scenario.before, *scenario.after)
        if scenario.final_declarations:
            assert_next_run_recovers(stack, platform, *scenario.final_declarations)
        else:
            assert_destroy_leaves_nothing(stack, platform, *scenario.before, *scenario.after)
        if is_explained:
            now = list_statuses(platform, scenario.kinds)
            known = KnownObjects.load(folder, at_kill, now, scenario.kinds)
            stack.assert_lives_are_explained(known)
        if scenario.has_job:
            RunningJob.load(folder).assert_unharmed(platform)
            assert platform.list_parts(*scenario.kinds) == stack.parts
            return
        if CLUSTER in scenario.kinds:
            project.assert_no_job_was_killed()
        for kind in scenario.kinds if not scenario.abandons else ():
            expected_count = sum(item.description is kind for item in scenario.final_declarations)
            assert platform.count_creates(kind) <= expected_count, (
                f"{kind} was created more than once"
            )


def crash_at_every_point(name: str, folder: Path) -> dict[str, Any]:
    """Kill the run at the first, the second, ... point until a run ends by itself."""
    base, log, points_file = folder / "base", folder / "log", folder / "point"
    status = run_in_child(lambda: prepare(base, name), log)
    if status:
        return {"points": 0, "failures": [{"at": "before", "why": log.read_text()}]}
    failures = []
    explained_of = int(os.environ.get("CRASH_EXPLAINED_OF", "1"))
    for last in itertools.count(1):
        log.unlink(missing_ok=True)
        work = folder / f"work-{last}"
        shutil.copytree(base, work)
        if find_backend_url(base):
            assert not run_in_child(lambda work=work: copy_objects(base, work), log)
        status = run_in_child(lambda work=work, last=last: run(work, name, last, points_file), log)
        was_killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        at = f"{last}: {points_file.read_text()}" if was_killed else "the end"
        if not was_killed and status:
            failures.append({"at": at, "why": log.read_text()})
        is_explained = last % explained_of == 0 or not was_killed
        check = partial(check_recovery, work, name, is_explained=is_explained)
        if run_in_child(check, log):
            failures.append({"at": at, "why": log.read_text()})
        shutil.rmtree(work)
        if not was_killed or len(failures) > 5:
            return {"points": last - 1, "failures": failures}
    raise AssertionError("unreachable")


def warm_up(folder: Path) -> None:
    """Derive the key and import the emulator once, for all children.

    Writes are not forced to the disk: a killed process leaves what it wrote; only a crashed machine
    does not.
    """
    CRYPTER.check()
    folder.mkdir(parents=True, exist_ok=True)
    with Store(folder / "warm.db", seed="crashes") as store:
        create_app(store, Clock(store, start=START))
    os.fsync = lambda _file: None


def main() -> None:
    name, folder = sys.argv[1:]
    warm_up(Path(folder))
    for kind in KINDS:
        load_resource_class(kind.platform, kind.kind)  # imports all of it, once
    if name.startswith("take-") or name.endswith((str(CLUSTER), "VolumeClaim")):
        import_module("kubernetes.config")
    gc.freeze()  # the less of its memory a child touches, the less is copied
    print(json.dumps(crash_at_every_point(name, Path(folder))))  # noqa: T201 - the result


if __name__ == "__main__":
    main()
