"""Every way from a case to something real, tried by a project of its own: each is blocked.

The programs that could be started record their calls, and the servers that could be contacted
record their connections.
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
class RealEnvironment:
    """Programs on the PATH and servers on ports of this machine, which record every contact."""

    folder: Path
    connections: list[str] = field(default_factory=list)
    _ports: dict[str, int] = field(default_factory=dict)
    _listeners: list[socket.socket] = field(default_factory=list)

    def install_programs(self) -> None:
        (self.folder / "bin").mkdir(parents=True)
        for name in PROGRAMS:
            program = self.folder / "bin" / name
            program.write_text(f'#!/bin/sh\necho "{name} $*" >> {self.folder}/calls\necho 4711\n')
            program.chmod(0o755)

    def open_port(self, name: str) -> int:
        """Return the port of a server that records connections; the same for the same name."""
        if name not in self._ports:
            listener = socket.create_server(("127.0.0.1", 0))
            self._listeners.append(listener)
            self._ports[name] = listener.getsockname()[1]
            threading.Thread(target=self._accept, args=(name, listener), daemon=True).start()
        return self._ports[name]

    def open_socket(self, path: Path) -> None:
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
def environment(tmp_path: Path) -> Iterator[RealEnvironment]:
    real_environment = RealEnvironment(tmp_path / "outside")
    real_environment.install_programs()
    yield real_environment
    real_environment.close()


@dataclass(frozen=True)
class Escape:
    """A project that tries to contact something real.

    `error` is part of the finding of its case, or "" if the case passes.
    """

    topology: str
    error: str = ""
    case: str = ""
    program: str = ""
    files: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)


def render_kubeconfig(port: int) -> str:
    return json.dumps(
        {
            "current-context": "x",
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
            "clusters": [{"name": "x", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "users": [{"name": "x", "user": {"token": "planted"}}],
        }
    )


def declare_certification(scheduler: str, job: str = JOB) -> str:
    return POOL + CERTIFICATION.format(scheduler=scheduler, job=job)


ALLOWED = "allow: [real-schedulers]"
REFUSED = "cases cannot have real-schedulers"
SEALED = "a case may only contact its emulator"


def list_escapes(environment: RealEnvironment) -> dict[str, Escape]:
    """Return every way out by name."""
    port = environment.open_port
    kube = {"kube": render_kubeconfig(port("kubernetes"))}
    drained = "    drain: {{on_busy: fail, {}}}\n"
    address = f"http://127.0.0.1:{port('platform')}"
    unix = environment.folder / "socket"
    environment.open_socket(unix)
    escapes = {
        "nothing_real": Escape(CLUSTER),
        # Schedulers that a topology names, allowed by the case and not.
        "slurm_local_jobs": Escape(
            declare_certification("slurm: {via: local}"), "Slurm by local was not asked"
        ),
        "slurm_ssh_jobs": Escape(
            declare_certification("slurm: {via: ssh, host: login}"), "Slurm by ssh was not asked"
        ),
        "slurm_exec_jobs": Escape(
            declare_certification(
                "kubernetes: {kubeconfig: kube}\n    slurm: {via: exec}\n    folder: /shared"
            ),
            "kube was not asked",
            files=kube,
        ),
        "certification_engine": Escape(
            declare_certification("kubernetes: {kubeconfig: kube}", ""),
            "kube was not asked",
            files=kube,
        ),
        "slurm_local_drain": Escape(
            POOL + drained.format("slurm: {via: local}"),
            "Slurm by local was not asked",
            "run: destroy",
        ),
        "slurm_ssh_drain": Escape(
            POOL + drained.format("slurm: {via: ssh, host: login}"),
            "Slurm by ssh was not asked",
            "run: destroy",
        ),
        "kubernetes_drain": Escape(
            POOL + drained.format("kubernetes: {kubeconfig: kube}"),
            "kube was not asked",
            "run: destroy",
            files=kube,
        ),
        "included_file": Escape(
            "include: [more.yaml]\n" + POOL,
            "Slurm by local was not asked",
            files={"more.yaml": CERTIFICATION.format(scheduler="slurm: {via: local}", job=JOB)},
        ),
        "cluster_with_slurm_elsewhere": Escape(
            SLURM_CLUSTER + drained.format("slurm: {via: ssh, host: login}"),
            "Slurm by ssh was not asked",
            "run: destroy",
        ),
        # Other addresses of platforms.
        "address_in_config_of_case": Escape(
            CLUSTER,
            "nothing reads the configuration key together:baseUrl",
            f"config: {{'together:baseUrl': '{address}'}}",
        ),
        "address_of_plugin_in_config": Escape(
            CLUSTER,
            "nothing reads the configuration key gpuform:togetherBaseUrl",
            f"config: {{'gpuform:togetherBaseUrl': '{address}'}}",
        ),
        "address_of_lens_in_config": Escape(GATE, case=f"config: {{'lens:url': '{address}'}}"),
        "address_in_environment": Escape(CLUSTER, variables={"TOGETHER_BASE_URL": address}),
        "proxy_in_environment": Escape(
            CLUSTER, variables={"HTTP_PROXY": address, "http_proxy": address, "ALL_PROXY": address}
        ),
        "address_in_committed_stack": Escape(
            CLUSTER,
            case="stack: prod",
            files={
                "Pulumi.prod.yaml": f"config:\n  together:baseUrl: {address}\n"
                "secretsprovider: awskms://alias/x?region=eu-west-1\n"
            },
        ),
        "backend_of_project": Escape(
            CLUSTER,
            files={
                "Pulumi.yaml": "name: demo\nruntime: python\n"
                f"backend: {{url: 's3://x?endpoint=127.0.0.1:{port('bucket')}&disableSSL=true'}}\n"
            },
        ),
    }
    escapes["slurm_pods"] = Escape(
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
        escapes[f"program_{name}"] = Escape("", SEALED, program=f"{code}\n")
    escapes["explicit_provider"] = Escape(
        "",
        "which is left over from an emulator",
        "config: {'gpuform:form': plugin}",
        "import pulumi\nfrom gpuform.providers import lens\n"
        "from gpuform.providers.resource import Provider\n"
        f"elsewhere = Provider('elsewhere', lens_url='{address}')\n"
        "lens.HealthGate('ready', pulumi.ResourceOptions(provider=elsewhere), wait_minutes=1,\n"
        "    condition={'total_nodes': {'at_least': 0}})\n",
    )
    escapes["gate_in_python"] = Escape(
        CLUSTER,
        SEALED,
        files={
            "gates.yaml": "gates: {own: {python: 'rules:look'}}\n",
            "rules.py": "import subprocess\n\ndef look(plan):\n"
            "    subprocess.run(['sbatch', 'x'])\n    return []\n",
        },
    )
    return escapes


def write_project(folder: Path, escape: Escape, allow: str) -> None:
    (folder / "tests").mkdir(parents=True)
    (folder / "Pulumi.yaml").write_text("name: demo\nruntime: python\n")
    if escape.program:
        (folder / "__main__.py").write_text(escape.program)
    else:
        (folder / "topology.yaml").write_text(escape.topology)
    for name, content in escape.files.items():
        (folder / name).write_text(content)
    settings = indent("\n".join(filter(None, (escape.case, allow))), "    ")
    first = ""
    if "run: destroy" in escape.case:
        first = "  up: {}\n"
        settings += "\n    start: {case: up}"
    (folder / "tests" / f"{folder.name}.yaml").write_text(
        f"cases:\n{first}  out:\n    description: x\n{settings}\n"
    )


def run_projects(folders: list[Path], environment: RealEnvironment, **variables: str) -> Result:
    path = f"{environment.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
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
def test_a_case_contacts_nothing_real(
    tmp_path: Path, environment: RealEnvironment, allow: str
) -> None:
    escapes = list_escapes(environment)
    variables: dict[str, str] = {}
    for name, escape in escapes.items():
        write_project(tmp_path / "projects" / name, escape, allow)
        variables |= escape.variables

    done = run_projects(
        [tmp_path / "projects" / name for name in escapes], environment, **variables
    )

    cases = {case["name"].partition("/")[0]: case for case in json.loads(done.stdout)["cases"]}
    assert environment.calls == []
    assert environment.connections == []
    for name, escape in escapes.items():
        status, findings = cases[name]["status"], "\n".join(cases[name]["findings"])
        refusals = (REFUSED, escape.error) if allow else (escape.error,)
        expected = "failed" if allow or escape.error else "passed"
        assert (name, status) == (name, expected), findings
        assert any(case in findings for case in refusals), (name, findings)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_stack_under_pytest_contacts_nothing_real(
    tmp_path: Path, environment: RealEnvironment
) -> None:
    write_project(tmp_path / "project", Escape(declare_certification("slurm: {via: local}")), "")
    (tmp_path / "project" / "tests" / "test_out.py").write_text(
        "import pytest\n\n"
        "def test_allowed(gpuform_stack):\n"
        "    with pytest.raises(Exception, match='cases cannot have real-schedulers'):\n"
        "        gpuform_stack().up(allow=['real-schedulers'])\n\n"
        "def test_not_allowed(gpuform_stack):\n"
        "    run = gpuform_stack().up()\n"
        "    assert 'Slurm by local was not asked' in run.errors[0]\n"
    )
    path = f"{environment.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=tmp_path / "project",
        env={**os.environ, "PATH": path, "GPUFORM_ALLOW": "real-schedulers"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert "2 passed" in done.stdout, done.stdout
    assert environment.calls == []
