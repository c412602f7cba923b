"""Test that programs run as under the Pulumi CLI, and that a run restores the process."""

import gc
import importlib.util
import json
import locale
import logging
import os
import random
import socket
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from processes.limits import LAST_RESORT

from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.deployment import Deployment, Options
from gpuform.stacks.engine.planning import EventBus
from gpuform.stacks.engine.project import (
    PROCESS_USE,
    import_project_modules,
)

# Writes down what the program sees, in the folder where it is started.
SEE = """
import json, os, sys
import pulumi
from lab import Machine
with open("data.json") as data, open("seen.json", "w") as seen:
    json.dump({"argv": sys.argv, "cwd": os.getcwd(), "file": __file__, "name": __name__,
               "main": sys.modules["__main__"].__dict__ is globals(), "data": data.read()}, seen)
import helper
from shared.names import NAME
Machine("a", label=NAME, size=helper.SIZE)
"""


def run_program_at(
    lab: Any, program: Path, operation: Any = "update", *, preview: bool = False
) -> Any:
    """Run the program of a folder or file as Pulumi.yaml's `main`."""
    lab.events.clear()
    subject = lab.subject()
    subject = replace(subject, program=replace(subject.program, directory=program))
    deployment = Deployment(subject, Options(operation, preview), EventBus([lab.events.append]))
    outcome = deployment.run()
    if not preview:
        lab.snapshot = outcome.snapshot
    return outcome


@pytest.mark.parametrize("main", [".", "infra", "infra/../infra/", "infra/app.py"])
def test_main_argv_and_relative_paths_are_as_under_the_cli(lab, main):
    folder = lab.directory if main == "." else lab.directory / "infra"
    (folder / "shared").mkdir(parents=True)
    if folder != lab.directory:
        (lab.directory / "lab.py").rename(folder / "lab.py")
    file = folder / ("app.py" if main.endswith(".py") else "__main__.py")
    file.write_text(SEE)
    (folder / "data.json").write_text("[1]")
    (folder / "helper.py").write_text("SIZE = 3\n")
    (folder / "shared" / "names.py").write_text("NAME = 'n'\n")
    outcome = run_program_at(lab, lab.directory / main)
    assert outcome.succeeded, lab.errors
    assert json.loads((folder / "seen.json").read_text()) == {
        "argv": [file.name if main.endswith(".py") else "."],
        "cwd": str(folder),
        "file": str(file),
        "name": "__main__",
        "main": True,
        "data": "[1]",
    }
    assert lab.state("a").inputs["size"] == 3
    assert run_program_at(lab, lab.directory / main, "destroy").succeeded
    assert lab.names == []
    assert not (folder / ".gpuform").exists() or folder == lab.directory


def test_a_missing_program_is_an_error_with_its_path(lab):
    with pytest.raises(EngineError, match="infra does not exist") as error:
        run_program_at(lab, lab.directory / "infra")
    assert "`main` in Pulumi.yaml" in (error.value.hint or "")


def test_globals_of_the_main_module_exist_until_the_run_ends(lab):
    lab.up(
        "m = Machine('a')\nsize = 4\n"
        "def later(_):\n    import __main__, late\n    return __main__.size + late.ONE\n"
        "Machine('b', size=m.address.apply(later))\n"
        if (lab.directory / "late.py").write_text("ONE = 1\n")
        else ""
    )
    assert lab.state("b").inputs["size"] == 5


CHANGES = """
import gc, locale, logging, os, random, socket, sys, threading, warnings
os.environ["GPUFORM_TEST_NEW"] = "1"
os.environ["GPUFORM_TEST_OLD"] = "changed"
os.environ.pop("GPUFORM_TEST_GONE")
os.environ["TZ"] = "Asia/Seoul"
__import__("time").tzset()
os.umask(0)
os.mkdir("gone")
os.chdir("gone")
os.rmdir("../gone")
sys.path.insert(0, "/nowhere")
sys.path = list(sys.path)
sys.argv.append("x")
sys.meta_path.append(object)
sys.excepthook = threading.excepthook = print
sys.setrecursionlimit(4321)
sys.modules["json"] = random
sys.modules["made_up"] = type(sys)("made_up")
random.seed(1)
socket.setdefaulttimeout(5)
gc.disable()
locale.setlocale(locale.LC_ALL, "C.UTF-8")
warnings.simplefilter("ignore")
warnings.showwarning = print
logging.basicConfig(level=1)
logging.disable(logging.CRITICAL)
logging.getLogger("gpuform").setLevel(1)
logging.getLogger("gpuform.test.new").addHandler(logging.StreamHandler())
logging.getLogger("gpuform.test.new").propagate = False
logging.setLoggerClass(type("Mine", (logging.Logger,), {}))
"""


def capture_process_state() -> dict[str, Any]:
    mask = os.umask(0o022)
    os.umask(mask)
    return {
        "environ": dict(os.environ),
        "zone": time.tzname,
        "mask": mask,
        "cwd": Path.cwd(),
        "paths": (sys.path, list(sys.path), sys.argv, list(sys.argv), list(sys.meta_path)),
        "hooks": (sys.excepthook, threading.excepthook),
        "limit": sys.getrecursionlimit(),
        "modules": dict(sys.modules),
        "random": random.getstate(),
        "timeout": socket.getdefaulttimeout(),
        "gc": gc.isenabled(),
        "locale": locale.setlocale(locale.LC_ALL),
        "warnings": (list(warnings.filters), warnings.showwarning),
        "root": (logging.root.level, list(logging.root.handlers), logging.root.manager.disable),
        "gpuform": (logging.getLogger("gpuform").level, logging.getLoggerClass()),
    }


@pytest.mark.parametrize("end", ["Machine('a')", "raise ValueError", "raise SystemExit", "1 +"])
def test_changes_of_a_program_to_the_process_are_undone(lab, monkeypatch, end):
    monkeypatch.setenv("GPUFORM_TEST_OLD", "old")
    monkeypatch.setenv("GPUFORM_TEST_GONE", "still here")
    lab.up("Machine('a')")
    before = capture_process_state()
    lab.up(CHANGES + end)
    after = capture_process_state()
    assert after["paths"][0] is before["paths"][0]
    for aspect, value in before.items():
        assert after[aspect] == value, aspect
    new = logging.getLogger("gpuform.test.new")
    assert (new.handlers, new.propagate) == ([], True)


def test_a_program_sees_the_variables_of_its_run_and_the_process_keeps_its_own(tmp_path):
    own = dict(os.environ)

    with import_project_modules(tmp_path, {"GPUFORM_TEST_NEW": "of the run"}):
        seen_by_program = dict(os.environ)
        os.environ["GPUFORM_TEST_NEW"] = "of the program"
        seen_by_others = PROCESS_USE.read_environ()

    assert seen_by_program == {"GPUFORM_TEST_NEW": "of the run"}
    assert seen_by_others == own
    assert os.environ == own


def share(folder):
    return PROCESS_USE.share(folder, is_cancelled=lambda: False)


def test_the_process_is_free_after_a_run_whose_folder_or_variables_are_wrong(tmp_path):
    with pytest.raises(FileNotFoundError), share(tmp_path / "missing"):
        pass
    with (
        pytest.raises(ValueError, match="null"),
        import_project_modules(tmp_path, {"GPUFORM_TEST_NEW": "\0"}),
    ):
        pass

    with share(tmp_path) as is_first:
        assert is_first
    with import_project_modules(tmp_path, os.environ):
        pass


def test_code_of_a_run_cannot_wait_for_the_end_of_that_run(tmp_path):
    with (
        import_project_modules(tmp_path, os.environ),
        pytest.raises(EngineError, match="another operation is running in this process"),
        share(tmp_path),
    ):
        pass


def test_code_of_a_run_that_shares_the_process_cannot_own_it(tmp_path):
    with (
        share(tmp_path),
        pytest.raises(EngineError, match="another operation is running in this process"),
        import_project_modules(tmp_path, os.environ),
    ):
        pass


def test_runs_of_one_folder_share_the_process_and_others_wait(tmp_path):
    began, other = Path.cwd(), tmp_path / "other"
    other.mkdir()
    waited = threading.Event()

    def run_elsewhere():
        with share(other):
            waited.set()
            return Path.cwd()

    with ThreadPoolExecutor() as pool:
        with share(tmp_path) as is_first, share(tmp_path) as is_second_first:
            elsewhere = pool.submit(run_elsewhere)
            assert not waited.wait(0.05)
            assert Path.cwd() == tmp_path
        assert elsewhere.result() == other

    assert (is_first, is_second_first) == (True, False)
    assert Path.cwd() == began


def test_a_run_that_waits_for_another_one_can_be_cancelled(lab):
    deployment = Deployment(lab.subject(), Options("update", False), EventBus())

    with import_project_modules(lab.directory, os.environ), ThreadPoolExecutor() as pool:
        waiting = pool.submit(deployment.run)
        deployment.cancel()
        outcome = waiting.result(timeout=LAST_RESORT)

    assert (outcome.cancelled, outcome.succeeded) == (True, False)
    assert lab.calls == []


def test_deletes_run_after_the_process_is_restored(lab):
    (lab.directory / "aside").mkdir()
    provider = (lab.directory / "lab.py").read_text()
    (lab.directory / "lab.py").write_text(
        "import os\n"
        + provider.replace(
            'note("delete", id=id)',
            'note("delete", id=id, cwd=os.getcwd(), seen=os.environ.get("GPUFORM_TEST_NEW"))',
        )
    )
    lab.up("Machine('a')")
    lab.up("import os\nos.chdir('aside')\nos.environ['GPUFORM_TEST_NEW'] = '1'\nMachine('b')")
    (call,) = [call for call in lab.calls if call["verb"] == "delete"]
    assert call == {"verb": "delete", "id": "m-1", "cwd": str(lab.directory), "seen": None}


def test_modules_are_imported_again_for_each_program(lab):
    (lab.directory / "counted.py").write_text("import parts.one\nCOUNT = 0\n")
    (lab.directory / "parts").mkdir()
    (lab.directory / "parts" / "one.py").write_text("LIST = []\n")
    (lab.directory / "elsewhere").mkdir()
    (lab.directory / "elsewhere" / "far.py").write_text("LIST = []\n")
    program = """
        import sys
        sys.path.append("elsewhere")
        import counted, far, parts.one
        counted.COUNT += 1
        far.LIST.append(1)
        parts.one.LIST.append(1)
        Machine("a", counts=[counted.COUNT, len(far.LIST), len(parts.one.LIST)])
    """
    modules_before = set(sys.modules)
    for run in (lab.preview, lab.up, lab.preview, lab.up):
        assert run(program).succeeded, lab.errors
        assert not {"counted", "far", "parts", "parts.one", "lab"} & (
            set(sys.modules) - modules_before
        )
    assert lab.state("a").inputs["counts"] == [1, 1, 1]


def test_two_projects_can_have_modules_of_the_same_name(lab, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (lab.directory / "names.py").write_text("NAME = 'first'\n")
    (other / "names.py").write_text("NAME = 'second'\n")
    (other / "lab.py").write_text((lab.directory / "lab.py").read_text())
    program = "from lab import Machine\nimport names\nMachine('a', label=names.NAME)\n"
    for folder, name in ((lab.directory, "first"), (other, "second"), (lab.directory, "first")):
        (folder / "__main__.py").write_text(program)
        assert run_program_at(lab, folder).succeeded, lab.errors
        assert lab.state("a").inputs["label"] == name


def test_a_loaded_module_of_the_same_name_is_hidden_and_restored(lab, monkeypatch):
    (lab.directory / "clash.py").write_text("NAME = 'own'\n")
    monkeypatch.syspath_prepend(lab.directory)
    import clash  # type: ignore[import-not-found]  # written above

    clash.NAME = "old"
    assert lab.up("import clash\nMachine('a', label=clash.NAME)\n").succeeded
    assert lab.state("a").inputs["label"] == "own"
    assert sys.modules["clash"] is clash
    monkeypatch.delitem(sys.modules, "clash")


def test_a_module_loaded_by_its_path_is_hidden_and_restored(lab, monkeypatch):
    # Python remembers no searched folder for a module that is loaded by its path.
    path = lab.directory / "clash.py"
    path.write_text("NAME = 'own'\n")
    spec = importlib.util.spec_from_file_location("clash", path)
    clash = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "clash", clash)
    spec.loader.exec_module(clash)
    clash.NAME = "old"
    assert lab.up("import clash\nMachine('a', label=clash.NAME)\n").succeeded
    assert lab.state("a").inputs["label"] == "own"
    assert sys.modules["clash"] is clash


def test_dynamic_providers_of_the_main_module_work_in_later_runs(lab):
    program = """
        from pulumi.dynamic import CreateResult, Resource, ResourceProvider
        import lab

        class Mine(ResourceProvider):
            def create(self, props):
                lab.note("create", props=lab.own(props))
                return CreateResult("mine", props)
            def delete(self, id, props):
                lab.note("delete", id=id)

        class Thing(Resource, module="lab", name="Machine"):
            def __init__(self, name):
                super().__init__(Mine(), name, {"size": SIZE})
        SIZE = 2
        Thing("t")
    """
    assert lab.up(program).succeeded, lab.errors
    assert lab.preview(program).changes == {"same": 2}
    assert lab.up("pulumi.export('x', 1)").succeeded
    assert [call["verb"] for call in lab.calls] == ["delete"]


def test_concurrent_runs_are_isolated(lab, tmp_path):
    folders = []
    for n in range(4):
        folder = tmp_path / f"p{n}"
        folder.mkdir()
        (folder / "lab.py").write_text((lab.directory / "lab.py").read_text())
        (folder / "names.py").write_text(f"NAME = 'p{n}'\n")
        (folder / "__main__.py").write_text(
            "import os, sys\nfrom lab import Machine\nimport names, pulumi\n"
            "assert 'GPUFORM_TEST_NEW' not in os.environ\n"
            "os.environ['GPUFORM_TEST_NEW'] = names.NAME\n"
            "a = Machine('a', label=names.NAME)\n"
            "Machine('b', label=a.address.apply(lambda _: os.path.basename(os.getcwd())),\n"
            "        seen=a.address.apply(lambda _: os.environ['GPUFORM_TEST_NEW']))\n"
            "print('hello from', names.NAME)\n"
        )
        folders.append(folder)
    results: dict[str, Any] = {}
    # Before the runs: it reads the process's variables, which belong to a run while that goes on.
    subject = replace(lab.subject(), write=lambda _: None)

    def run(folder: Path) -> None:
        events: list[Any] = []
        program = replace(subject.program, directory=folder, root=folder)
        deployment = Deployment(
            replace(subject, program=program), Options("update", False), EventBus([events.append])
        )
        results[folder.name] = (deployment.run(), events)

    threads = [threading.Thread(target=run, args=[folder]) for folder in folders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for folder in folders:
        outcome, events = results[folder.name]
        assert outcome.succeeded, events
        a, b = [r for r in outcome.snapshot.resources if "Machine" in r.urn]
        assert a.inputs["label"] == b.inputs["label"] == b.inputs["seen"] == folder.name
        messages = [e.message for e in events if getattr(e, "severity", "") == "info"]
        assert [message for message in messages if message] == [f"hello from {folder.name}"]
        assert len(json.loads((folder / "platform.json").read_text())) == 3
