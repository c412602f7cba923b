"""Kill a run after each request and each write, one by one, and let the next run recover it.

A program of its own, `python -m conformance.crash_points SCENARIO FOLDER`: one warm process without
threads that forks a child for every run, so that a death costs a fraction of a second. It prints a
line of JSON. With CRASH_BACKEND, the URL of a bucket, the state is there. The emulator is in the
children, its objects in a SQLite file, which a killed process leaves whole.
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
from conformance.described import Described
from conformance.emulated import Platform
from conformance.kinds import FAST, KINDS, MADE, TOPOLOGY
from conformance.settling import assert_destroyed, assert_nothing_is_lost, assert_settles
from conformance.stacks import Declared, EmbeddedStack, thing
from conformance.takings import TAKINGS, Jobs, Taking, ids_of, run_in, run_locally
from conformance.together_kinds import CLUSTER
from support.servers.bucket_server import KEYS
from tenacity import Retrying  # noqa: F401 - imported once, for all children

from gpuform.providers.catalog import load_resource_class
from gpuform.providers.context.transport import create_wsgi_transport, mount_transport
from gpuform.providers.emulator.app import create_app
from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.server import environment
from gpuform.providers.emulator.store import Store
from gpuform.providers.kubernetes.client import get_kubernetes_client
from gpuform.providers.kubernetes.kubeconfig import load_access
from gpuform.providers.kubernetes.scheduler import KubernetesScheduler
from gpuform.providers.slurm.pods import PodCommandRunner
from gpuform.providers.slurm.processes import CommandOutput, LocalCommandRunner
from gpuform.stacks.engine.secrets.passphrase import PassphraseCrypter
from gpuform.stacks.engine.state import edits
from gpuform.stacks.engine.store.storage.addresses import open_storage

URL = "http://emulator.test"
START = 1_800_000_000.0

CRYPTER = PassphraseCrypter.create_new("test only")


@dataclass(frozen=True)
class Scenario:
    """A change of a stack: what is declared before it, and after it (nothing: a destroy).

    `outside` is what somebody else does in between; `refreshes`: the run only reads; `reverts`: the
    run after a death declares again what was before. With `abandons` it destroys what there is.
    `takes`: a job runs on a node that goes.
    """

    before: Sequence[Declared]
    after: Sequence[Declared]
    outside: Callable[["World"], object] | None = None
    refreshes: bool = False
    reverts: bool = False
    abandons: bool = False
    takes: bool = False

    @property
    def in_the_end(self) -> Sequence[Declared]:
        if self.abandons:
            return []
        return self.before if self.reverts else self.after

    @property
    def kinds(self) -> set[Described]:
        return {item.described for item in (*self.before, *self.after)}


Place = Callable[[Described], Described]
"""Gives a kind the ids of what it needs on the platform."""


def _build_scenario(
    kind: Described,
    before: Callable[[Described], Mapping[str, Any]] | None,
    after: Callable[[Described], Mapping[str, Any]] | None,
) -> Callable[[Place], Scenario]:
    def made(location: Place) -> Scenario:
        placed = location(kind)
        steps = ([thing(placed, item(placed))] if item else [] for item in (before, after))
        return Scenario(*steps)

    return made


def _build_scenarios() -> dict[str, Callable[[Place], Scenario]]:
    scenarios: dict[str, Callable[[Place], Scenario]] = {
        "create-topology": lambda _: Scenario([], TOPOLOGY),
        "destroy-topology": lambda _: Scenario(TOPOLOGY, []),
    }
    scenarios["abandon-topology"] = lambda _: Scenario([], TOPOLOGY, abandons=True)
    for kind in MADE:
        good = lambda item: item.good  # noqa: E731 - one of three
        created = _build_scenario(kind, None, good)
        scenarios[f"create-{kind}"] = created
        scenarios[f"abandon-{kind}"] = partial(_abandon, created)
        scenarios[f"update-{kind}"] = _build_scenario(kind, good, lambda item: item.in_place.inputs)
        scenarios[f"replace-{kind}"] = _build_scenario(
            kind, good, lambda item: item.replacing.inputs
        )
        scenarios[f"destroy-{kind}"] = _build_scenario(kind, good, None)
    return scenarios | {
        f"replace-create-first-{FAST}": _replace_create_first,
        f"refresh-{CLUSTER}": _refresh,
        f"import-{FAST}": _import,
        f"shrink-{CLUSTER}": _shrink,
        f"shrink-and-revert-{CLUSTER}": lambda location: replace(_shrink(location), reverts=True),
    }


def _build_eviction_scenario(taking: Taking, location: Place) -> Scenario:
    placed = location(taking.kind)

    def start(world: "World") -> object:
        (entry,) = world.stack.resources
        Jobs.start(world.platform, Path.cwd(), taking, ids_of(entry))
        if taking.broken:
            world.stack.refresh()

    before, after = taking.inputs(placed)
    ends = [] if after is None else [thing(placed, after)]
    return Scenario([thing(placed, before)], ends, outside=start, takes=True)


def _abandon(created: Callable[[Place], Scenario], location: Place) -> Scenario:
    return replace(created(location), abandons=True)


def _replace_create_first(_place: Place) -> Scenario:
    options = {"delete_before_replace": False}
    other = {**FAST.replacing.inputs, FAST.name_field: "another"}
    return Scenario(
        [replace(thing(FAST), options=options)], [replace(thing(FAST, other), options=options)]
    )


def _refresh(_place: Place) -> Scenario:
    def drift(world: "World") -> object:
        return world.platform.send(CLUSTER, CLUSTER.behind.of(world.stack.id))

    return Scenario([thing(CLUSTER)], [thing(CLUSTER)], outside=drift, refreshes=True)


def _shrink(_place: Place) -> Scenario:
    """Run a job on the newest node, which the platform would remove by itself."""
    larger, smaller = ({**CLUSTER.good, "num_gpus": count} for count in (24, 16))

    def start(world: "World") -> object:
        (cluster_id,) = world.stack.ids
        pod = {"name": "train-0", "node": "train-worker-2"}
        path = f"/_emulator/kubernetes/{cluster_id}/pods"
        return world.platform.http.post(path, json=pod).raise_for_status()

    return Scenario([thing(CLUSTER, larger)], [thing(CLUSTER, smaller)], outside=start)


def _import(_place: Place) -> Scenario:
    def make(world: "World") -> object:
        assert FAST.create is not None
        return world.platform.send(FAST, FAST.create)

    return Scenario([], [replace(thing(FAST), options={"import_": THE_ID})], outside=make)


THE_ID = "the id of the object that is there"


SCENARIOS = _build_scenarios()
TAKEN = {
    f"take-{path}-{scheduler}": partial(_build_eviction_scenario, taking)
    for scheduler, paths in TAKINGS.items()
    for path, taking in paths.items()
}


LOOKS = 3
HASTE = 13.0
"""No multiple of a waiting's rhythm, which would have it look after each small part of a beat."""
OBJECTS_CHANGED = ("put", "copy", "delete")


class Hook:
    """Counts what leaves a trace outside of the process, and kills it after number `last`.

    Of the looks of somebody who waits only the first few count: one more of them leaves the same
    objects and the same files as the one before.
    """

    def __init__(self, last: int | None, points_file: Path) -> None:
        self._last = last
        self._told = points_file
        self._count = 0
        self._looks = 0
        self._lock = threading.Lock()

    def tick(self, event: str) -> None:
        with self._lock:
            self._looks = self._looks + 1 if event.startswith("GET ") else 0
            if self._looks > LOOKS:
                return
            self._count += 1
            if self._count == self._last:
                self._told.write_text(event)
                os.kill(os.getpid(), signal.SIGKILL)

    @property
    def is_bored(self) -> bool:
        """Return True if the next poll would not count."""
        return self._looks >= LOOKS

    def watch_writes(self) -> None:
        """Count each file or object that is written, renamed or removed from now on."""
        for module, names in ((os, ("fsync", "replace", "unlink")), (obstore, OBJECTS_CHANGED)):
            for name in names:
                setattr(module, name, self._watched(name, getattr(module, name)))

    def _watched(self, name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            result = inner(*arguments, **options)
            self.tick(f"{name} {arguments}")
            return result

        return call


class HastyClock(Clock):
    """Let a sleep last `HASTE` times as long when the polls around it do not count."""

    def __init__(self, store: Store, hook: Hook | None) -> None:
        super().__init__(store, start=START)
        self._hook = hook

    def advance_to(self, moment: float) -> float:
        is_in_haste = self._hook is None or self._hook.is_bored
        now = self.now()
        return super().advance_to(now + (HASTE if is_in_haste else 1.0) * max(0.0, moment - now))


class Counting(httpx.BaseTransport):
    """Forward requests; the process is killed after a request's effect and before its answer."""

    def __init__(self, inner: httpx.BaseTransport, hook: Hook) -> None:
        self._inner = inner
        self._hook = hook

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = self._inner.handle_request(request)
        if not request.url.path.startswith("/_emulator/"):
            self._hook.tick(f"{request.method} {request.url.path}")
        return response


def run_commands(http: httpx.Client, hook: Hook | None) -> None:
    """Run Slurm's commands without WebSockets and processes, which need a real port."""

    def told(text: str) -> None:
        if hook is not None:
            hook.tick(text)

    def run(
        self: PodCommandRunner, command: Sequence[str], *, is_change: bool = False
    ) -> CommandOutput:
        cluster = load_access(self.kubeconfig, self.cluster).server.rpartition("/")[2]
        return run_in(http, cluster, command, told, is_change=is_change)

    for location, run_there in (
        (PodCommandRunner, run),
        (LocalCommandRunner, run_locally(http, told)),
    ):
        setattr(location, "run", run_there)  # noqa: B010 - a method of another shape to mypy


@dataclass(frozen=True)
class World:
    """A project and the platforms that it uses, in one folder."""

    stack: EmbeddedStack
    platform: Platform

    @classmethod
    def open(cls, folder: Path, held: ExitStack, hook: Hook | None = None) -> "World":
        store = held.enter_context(Store(folder / "emulator.db", seed="crashes"))
        app = create_app(store, HastyClock(store, hook))
        transport = create_wsgi_transport(app)
        served = transport if hook is None else Counting(transport, hook)
        held.enter_context(mount_transport(URL, served))
        # Slurm's commands of this machine are those of the emulator: see `run_commands`.
        os.environ.update({**environment(URL), "GPUFORM_ALLOW": "real-schedulers"})
        os.chdir(folder)
        http = httpx.Client(base_url=URL, transport=transport)
        run_commands(http, hook)
        platform = Platform(cast("Any", None), http)
        return cls(EmbeddedStack(folder, CRYPTER, url=backend_of(folder)), platform)

    def scenario(self, name: str) -> Scenario:
        scenario = {**SCENARIOS, **TAKEN}[name](self.platform.prepare)
        return replace(scenario, after=[self._with_id(item) for item in scenario.after])

    def _with_id(self, declared: Declared) -> Declared:
        ids = self.platform.ids(declared.described)
        if THE_ID not in declared.options.values() or not ids:
            return declared
        return replace(declared, options={"import_": next(iter(ids))})

    def apply(self, declared: Sequence[Declared]) -> bool:
        result = self.stack.up(*declared) if declared else self.stack.destroy()
        return result.ok

    def assert_nobody_was_hurt(self) -> None:
        """Check that no job was killed and that every node is schedulable."""
        for found_object in self.platform.objects(CLUSTER):
            path = f"/_emulator/kubernetes/{found_object['id']}/ended"
            pods = self.platform.http.get(path).json()
            assert not [pod for pod in pods if pod["pod"].startswith("default/")]
        for entry in self.stack.resources:
            if kubeconfig := entry.outputs.get("kube_config"):
                kubernetes = KubernetesScheduler(get_kubernetes_client(kubeconfig.value, "train"))
                assert [node.name for node in kubernetes.list_nodes() if node.is_cordoned] == []

    def assert_no_create_is_unnamed(self, *kinds: Described) -> None:
        """Check in the folder, too, for readers of the checkpoint alone, such as the Pulumi CLI."""
        checkpoint = self.stack.checkpoint if not self.stack.url else self.stack.snapshot
        assert edits.verify(checkpoint) == []
        stored_ids = {entry.id for entry in checkpoint.resources}
        named = {o.resource.type for o in checkpoint.pending_operations if o.type == "creating"}
        for kind in kinds:
            token = f"pulumi-python:dynamic/gpuform.{kind.platform}:{kind.kind}"
            for found_object in self.platform.objects(kind):
                leaving = found_object["status"].lower() in kind.leaving
                assert leaving or found_object["id"] in stored_ids or token in named, (
                    f"unnamed: {found_object}"
                )


def in_child(work: Callable[[], None], log: Path) -> int:
    """Run `work` in a forked child, and return its wait status; its errors are in `log`."""
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


def backend_of(folder: Path) -> str:
    """Return the URL of the state of a project, if the state is not in its folder."""
    bucket = os.environ.get("CRASH_BACKEND")
    return f"{bucket}&prefix={folder.name}" if bucket else ""


def copy_objects(source: Path, target: Path) -> None:
    here, there = (open_storage(backend_of(item), KEYS) for item in (source, target))
    for entry in here.list_entries(".pulumi"):
        data = here.read(entry.name)
        assert data is not None
        there.write(entry.name, data.data)


def prepare(folder: Path, name: str) -> None:
    folder.mkdir(parents=True)
    with ExitStack() as held:
        world = World.open(folder, held)
        scenario = world.scenario(name)
        if scenario.before:
            assert world.apply(scenario.before)
        if scenario.outside:
            scenario.outside(world)
        world.platform.forget_requests()


def run(folder: Path, name: str, last: int | None, points_file: Path) -> None:
    with ExitStack() as held:
        hook = Hook(last, points_file)
        world = World.open(folder, held, hook)
        scenario = world.scenario(name)
        hook.watch_writes()
        assert world.stack.refresh().ok if scenario.refreshes else world.apply(scenario.after)


def mend(folder: Path, name: str) -> None:
    """Check what must hold after a kill, and after the next run."""
    with ExitStack() as held:
        world = World.open(folder, held)
        scenario = world.scenario(name)
        stack, platform = world.stack, world.platform
        if scenario.before or not scenario.outside:
            world.assert_no_create_is_unnamed(*scenario.kinds)
            assert_nothing_is_lost(stack, platform, *scenario.before, *scenario.after)
        if scenario.in_the_end:
            assert_settles(stack, platform, *scenario.in_the_end)
        else:
            assert_destroyed(stack, platform, *scenario.before, *scenario.after)
        if scenario.takes:
            Jobs.of(folder).assert_unharmed(platform)
            assert platform.parts(*scenario.kinds) == stack.parts
            return
        if CLUSTER in scenario.kinds:
            world.assert_nobody_was_hurt()
        for kind in scenario.kinds if not scenario.abandons else ():
            expected_count = sum(item.described is kind for item in scenario.in_the_end)
            assert platform.created(kind) <= expected_count, f"{kind} was created more than once"


def crash_everywhere(name: str, folder: Path) -> dict[str, Any]:
    """Kill at the first, the second, ... point until a run ends by itself."""
    base, log, points_file = folder / "base", folder / "log", folder / "told"
    status = in_child(lambda: prepare(base, name), log)
    if status:
        return {"points": 0, "failures": [{"at": "before", "why": log.read_text()}]}
    failures = []
    for last in itertools.count(1):
        log.unlink(missing_ok=True)
        work = folder / f"work-{last}"
        shutil.copytree(base, work)
        if backend_of(base):
            assert not in_child(lambda work=work: copy_objects(base, work), log)
        status = in_child(lambda work=work, last=last: run(work, name, last, points_file), log)
        was_killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        at = f"{last}: {points_file.read_text()}" if was_killed else "the end"
        if not was_killed and status:
            failures.append({"at": at, "why": log.read_text()})
        if in_child(lambda work=work: mend(work, name), log):
            failures.append({"at": at, "why": log.read_text()})
        shutil.rmtree(work)
        if not was_killed or len(failures) > 5:
            return {"points": last - 1, "failures": failures}
    raise AssertionError("unreachable")


def warm_up(folder: Path) -> None:
    """Do once what every child would do again: derive the key, import the emulator.

    Nothing is forced to the disk: a killed process leaves what it wrote, only a machine does not.
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
    print(json.dumps(crash_everywhere(name, Path(folder))))  # noqa: T201 - the result


if __name__ == "__main__":
    main()
