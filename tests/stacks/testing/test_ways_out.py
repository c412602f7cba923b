"""Every way from a case to something real, each tried by a project of its own: none leads out.

The programs that would be started record their calls, and the servers that would be asked record
their connections.
"""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import indent

import pytest
from processes.commands import Result, run_gpuform
from support.topologies.declarations import SCP_POOL

PROGRAMS = (
    *("sbatch", "scontrol", "squeue", "sinfo", "sacct", "scancel", "srun"),
    *("ssh", "sudo", "kubectl", "helm", "pulumi", "curl", "docker", "poetry", "true"),
)
POOL = f"""\
node_pools:
  workers:
{SCP_POOL}    image_id: IMAGE-7XFMaJpLsapKvskFMjCtmm
    cluster_fabric_name: train-a
    gpu_node_name_prefix: train
    count: 2
"""
CERTIFICATION = """\
certifications:
  fabric:
    platform: scp
    region_id: kr-west1
    name: fabric
    node_ids: "{{{{ node_pools.workers.node_ids }}}}"
    {scheduler}
    categories:
      - domain: communication
        variant: nccl-all-reduce
        floor: 300
        {job}
"""
JOB = """job:
          script: "#!/bin/bash\\nsrun all_reduce_perf\\n"
          result: 'bandwidth: ([0-9.]+)'
"""
CLUSTER = """\
clusters:
  train:
    platform: together
    cluster_name: training
    region: us-central-8
    gpu_type: H100_SXM
    num_gpus: 8
    driver_version: CUDA_12_6_560
    billing_type: ON_DEMAND
"""
SLURM_CLUSTER = f"{CLUSTER}    cluster_type: SLURM\n    slurm_shm_size_gib: 8\n"
GATE = """\
health_gates:
  ready: {platform: lens, wait_minutes: 1, condition: {total_nodes: {at_least: 0}}}
"""


@dataclass
class Outside:
    """What is real: programs on the PATH, and servers on ports of this machine."""

    folder: Path
    connections: list[str] = field(default_factory=list)
    _ports: dict[str, int] = field(default_factory=dict)
    _listeners: list[socket.socket] = field(default_factory=list)

    def put_programs(self) -> None:
        (self.folder / "bin").mkdir(parents=True)
        for name in PROGRAMS:
            program = self.folder / "bin" / name
            program.write_text(f'#!/bin/sh\necho "{name} $*" >> {self.folder}/calls\necho 4711\n')
            program.chmod(0o755)

    def listen(self, name: str) -> int:
        """Return the port of a server that records who connects."""
        if name not in self._ports:
            listener = socket.create_server(("127.0.0.1", 0))
            self._listeners.append(listener)
            self._ports[name] = listener.getsockname()[1]
            threading.Thread(target=self._accept, args=(name, listener), daemon=True).start()
        return self._ports[name]

    def listen_at(self, path: Path) -> None:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen()
        self._listeners.append(listener)
        threading.Thread(target=self._accept, args=("unix", listener), daemon=True).start()

    def _accept(self, name: str, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self.connections.append(name)
            connection.close()

    @property
    def calls(self) -> list[str]:
        file = self.folder / "calls"
        return file.read_text().splitlines() if file.exists() else []

    def close(self) -> None:
        for listener in self._listeners:
            listener.close()


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Outside]:
    made = Outside(tmp_path / "outside")
    made.put_programs()
    yield made
    made.close()


@dataclass(frozen=True)
class Way:
    """A project that tries to get out, and what its case is refused with."""

    topology: str
    refused: str = ""
    case: str = ""
    program: str = ""
    files: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)


def kubeconfig(port: int) -> str:
    return json.dumps(
        {
            "current-context": "x",
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
            "clusters": [{"name": "x", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "users": [{"name": "x", "user": {"token": "planted"}}],
        }
    )


def certified(scheduler: str, job: str = JOB) -> str:
    return POOL + CERTIFICATION.format(scheduler=scheduler, job=job)


ALLOWED = "allow: [real-schedulers]"
REFUSED = "cases cannot have real-schedulers"
SEALED = "a case may only contact its emulator"


def ways(outside: Outside) -> dict[str, Way]:
    """Every way, by its name."""
    port = outside.listen
    kube = {"kube": kubeconfig(port("kubernetes"))}
    drained = "    drain: {{on_busy: fail, {}}}\n"
    address = f"http://127.0.0.1:{port('platform')}"
    unix = outside.folder / "socket"
    outside.listen_at(unix)
    found = {
        "nothing_real": Way(CLUSTER),
        # Schedulers that a topology names, allowed by the case and not.
        "slurm_local_jobs": Way(certified("slurm: {via: local}"), "Slurm by local is not asked"),
        "slurm_ssh_jobs": Way(
            certified("slurm: {via: ssh, host: login}"), "Slurm by ssh is not asked"
        ),
        "slurm_exec_jobs": Way(
            certified(
                "kubernetes: {kubeconfig: kube}\n    slurm: {via: exec}\n    folder: /shared"
            ),
            "kube is not asked",
            files=kube,
        ),
        "certification_engine": Way(
            certified("kubernetes: {kubeconfig: kube}", ""), "kube is not asked", files=kube
        ),
        "slurm_local_drain": Way(
            POOL + drained.format("slurm: {via: local}"),
            "Slurm by local is not asked",
            "run: destroy",
        ),
        "slurm_ssh_drain": Way(
            POOL + drained.format("slurm: {via: ssh, host: login}"),
            "Slurm by ssh is not asked",
            "run: destroy",
        ),
        "kubernetes_drain": Way(
            POOL + drained.format("kubernetes: {kubeconfig: kube}"),
            "kube is not asked",
            "run: destroy",
            files=kube,
        ),
        "included_file": Way(
            "include: [more.yaml]\n" + POOL,
            "Slurm by local is not asked",
            files={"more.yaml": CERTIFICATION.format(scheduler="slurm: {via: local}", job=JOB)},
        ),
        "cluster_with_slurm_elsewhere": Way(
            SLURM_CLUSTER + drained.format("slurm: {via: ssh, host: login}"),
            "Slurm by ssh is not asked",
            "run: destroy",
        ),
        # Other addresses of platforms.
        "address_in_config_of_case": Way(
            CLUSTER,
            "nothing reads the configuration key together:baseUrl",
            f"config: {{'together:baseUrl': '{address}'}}",
        ),
        "address_of_plugin_in_config": Way(
            CLUSTER,
            "nothing reads the configuration key gpuform:togetherBaseUrl",
            f"config: {{'gpuform:togetherBaseUrl': '{address}'}}",
        ),
        "address_of_lens_in_config": Way(GATE, case=f"config: {{'lens:url': '{address}'}}"),
        "address_in_environment": Way(CLUSTER, variables={"TOGETHER_BASE_URL": address}),
        "proxy_in_environment": Way(
            CLUSTER, variables={"HTTP_PROXY": address, "http_proxy": address, "ALL_PROXY": address}
        ),
        "address_in_committed_stack": Way(
            CLUSTER,
            case="stack: prod",
            files={
                "Pulumi.prod.yaml": f"config:\n  together:baseUrl: {address}\n"
                "secretsprovider: awskms://alias/x?region=eu-west-1\n"
            },
        ),
        "backend_of_project": Way(
            CLUSTER,
            files={
                "Pulumi.yaml": "name: demo\nruntime: python\n"
                f"backend: {{url: 's3://x?endpoint=127.0.0.1:{port('bucket')}&disableSSL=true'}}\n"
            },
        ),
    }
    found["slurm_pods"] = Way(
        SLURM_CLUSTER + drained.format("slurm: {via: exec}"),
        case="run: destroy",
    )
    # What a program, or a gate that is one, does by itself.
    programs = {
        "connection": f"import socket; socket.create_connection(('127.0.0.1', {port('program')}))",
        "http": f"import httpx; httpx.get('http://127.0.0.1:{port('program')}')",
        "urllib": f"import urllib.request as r; r.urlopen('http://localhost:{port('program')}')",
        "datagram": "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM)"
        f".sendto(b'x', ('127.0.0.1', {port('program')}))",
        "unix_socket": f"import socket; socket.socket(socket.AF_UNIX).connect({str(unix)!r})",
        "name": "import socket; socket.getaddrinfo('planted-secret.example.net', 443)",
        "process": "import subprocess; subprocess.run(['sbatch', 'x'])",
        "shell": "import os; os.system('sbatch x')",
        "spawn": "import os; os.posix_spawnp('sbatch', ['sbatch', 'x'], os.environ)",
        "exec": "import os; os.execvp('sbatch', ['sbatch', 'x'])",
        "shell_of_a_thread": "import subprocess, sys, threading\nfound = []\n"
        "def work():\n    try:\n        subprocess.Popen('sbatch x', shell=True)\n"
        "    except Exception as error:\n        found.append(error)\n"
        "thread = threading.Thread(target=work)\nthread.start()\nthread.join()\n"
        "sys.exit(str(found))",
        "disguise": "import shutil, subprocess\n"
        "from gpuform.providers.slurm.results import SEARCH_COMMAND\n"
        "subprocess.run(list(SEARCH_COMMAND), executable=shutil.which('sbatch'), input=b'[]')",
        "forked_exec": "import os, sys\n"
        "if not os.fork():\n    try:\n        os.execvp('sbatch', ['sbatch', 'x'])\n"
        "    except Exception: os._exit(9)\n"
        f"_, code = os.wait()\nsys.exit('{SEALED}' if code == 9 << 8 else None)",
    }
    for name, code in programs.items():
        found[f"program_{name}"] = Way("", SEALED, program=f"{code}\n")
    found["explicit_provider"] = Way(
        "",
        "which is left over from an emulator",
        "config: {'gpuform:form': plugin}",
        "import pulumi\nfrom gpuform.providers import lens\n"
        "from gpuform.providers.provider import Provider\n"
        f"elsewhere = Provider('elsewhere', lens_url='{address}')\n"
        "lens.HealthGate('ready', pulumi.ResourceOptions(provider=elsewhere), wait_minutes=1,\n"
        "    condition={'total_nodes': {'at_least': 0}})\n",
    )
    found["gate_in_python"] = Way(
        CLUSTER,
        SEALED,
        files={
            "gates.yaml": "gates: {own: {python: 'rules:look'}}\n",
            "rules.py": "import subprocess\n\ndef look(plan):\n"
            "    subprocess.run(['sbatch', 'x'])\n    return []\n",
        },
    )
    return found


def write(folder: Path, way: Way, allow: str) -> None:
    (folder / "tests").mkdir(parents=True)
    (folder / "Pulumi.yaml").write_text("name: demo\nruntime: python\n")
    if way.program:
        (folder / "__main__.py").write_text(way.program)
    else:
        (folder / "topology.yaml").write_text(way.topology)
    for name, text in way.files.items():
        (folder / name).write_text(text)
    settings = indent("\n".join(filter(None, (way.case, allow))), "    ")
    first = ""
    if "run: destroy" in way.case:
        first = "  up: {}\n"
        settings += "\n    start: {case: up}"
    (folder / "tests" / f"{folder.name}.yaml").write_text(
        f"cases:\n{first}  out:\n    description: x\n{settings}\n"
    )


def played(folders: list[Path], outside: Outside, **variables: str) -> Result:
    path = f"{outside.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return run_gpuform(
        folders[0].parent,
        "test",
        *(folder.name for folder in folders),
        "--json",
        PATH=path,
        GPUFORM_ALLOW="real-schedulers",
        **variables,
    )


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("allow", ["", ALLOWED])
def test_no_way_leads_out_of_a_case(tmp_path: Path, outside: Outside, allow: str) -> None:
    tried = ways(outside)
    variables: dict[str, str] = {}
    for name, way in tried.items():
        write(tmp_path / "projects" / name, way, allow)
        variables |= way.variables

    done = played([tmp_path / "projects" / name for name in tried], outside, **variables)

    cases = {each["name"].partition("/")[0]: each for each in json.loads(done.stdout)["cases"]}
    assert outside.calls == []
    assert outside.connections == []
    for name, way in tried.items():
        status, findings = cases[name]["status"], "\n".join(cases[name]["findings"])
        refusals = (REFUSED, way.refused) if allow else (way.refused,)
        expected = "failed" if allow or way.refused else "passed"
        assert (name, status) == (name, expected), findings
        assert any(each in findings for each in refusals), (name, findings)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_no_way_leads_out_of_a_stack_under_pytest(tmp_path: Path, outside: Outside) -> None:
    write(tmp_path / "project", Way(certified("slurm: {via: local}")), "")
    (tmp_path / "project" / "tests" / "test_out.py").write_text(
        "import pytest\n\n"
        "def test_allowed(gpuform_stack):\n"
        "    with pytest.raises(Exception, match='cases cannot have real-schedulers'):\n"
        "        gpuform_stack().up(allow=['real-schedulers'])\n\n"
        "def test_not_allowed(gpuform_stack):\n"
        "    run = gpuform_stack().up()\n"
        "    assert 'Slurm by local is not asked' in run.errors[0]\n"
    )
    path = f"{outside.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=tmp_path / "project",
        env={**os.environ, "PATH": path, "GPUFORM_ALLOW": "real-schedulers"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert "2 passed" in done.stdout, done.stdout
    assert outside.calls == []
