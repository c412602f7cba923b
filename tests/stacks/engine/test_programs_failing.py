"""Test failing programs: nothing is deleted, and the error has the program's own lines."""

import pytest

from gpuform.stacks.engine.deployment import Deployment, Options
from gpuform.stacks.engine.planning import EventBus, StepDone

BEFORE = "Machine('a')\nMachine('b')\npulumi.export('x', 1)\n"

# Each fails in line 9 of __main__.py; HEAD has three lines.
FAILING = {
    "body": """
        def fail():
            pass


        raise ValueError("stop here")
    """,
    "function": """
        Machine("c")


        def fail():
            raise ValueError("stop here")
        fail()
    """,
    "apply": """
        a = Machine("a")


        def fail(address):
            raise ValueError("stop here")
        a.address.apply(fail)
    """,
    "apply of an export": """
        a = Machine("a")


        def fail(address):
            raise ValueError("stop here")
        pulumi.export("x", a.address.apply(fail))
    """,
    "apply of an input": """
        a = Machine("a")


        def fail(address):
            raise ValueError("stop here")
        Machine("c", x=a.address.apply(fail), y=a.address.apply(fail))
    """,
    "asynchronous entry": """


        async def main():
            a = Machine("a")
            raise ValueError("stop here")
        pulumi.run(main)
    """,
    "after an await": """


        async def main():
            await Machine("a").address.future()
            raise ValueError("stop here")
        pulumi.run(main)
    """,
    "coroutine": """



        async def fail():
            raise ValueError("stop here")
        Machine("a", x=pulumi.Output.from_input(fail()))
    """,
    "task that nobody keeps": """

        import asyncio

        async def fail():
            raise ValueError("stop here")
        asyncio.ensure_future(fail())
        Machine("a")
    """,
    "task that nobody awaits": """

        import asyncio

        async def fail():
            raise ValueError("stop here")
        task = asyncio.ensure_future(fail())
        Machine("a")
    """,
    "thread": """
        import threading


        def fail():
            raise ValueError("stop here")
        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()
    """,
    "cause": """

        try:
            {}["x"]
        except KeyError as error:
            raise ValueError("stop here") from error
    """,
}


@pytest.mark.parametrize("where", FAILING)
def test_a_program_that_raises_deletes_nothing_and_its_lines_are_reported(lab, where):
    lab.up(BEFORE)
    outcome = lab.up(FAILING[where])
    assert not outcome.succeeded
    assert {"a", "b"} <= set(lab.names)
    assert "delete" not in [op for op, _ in lab.steps]
    assert lab.state("lab-dev").outputs["x"] == 1
    (error,) = lab.errors
    assert f'File "{lab.directory}/__main__.py", line 9, in ' in error
    assert "ValueError: stop here" in error
    assert "/pulumi/" not in error
    assert "/stacks/engine/" not in error


ENDING = {
    "sys.exit(0)": "the program exited with code 0",
    "sys.exit()": "the program exited with code 0",
    "sys.exit(3)": "the program exited with code 3",
    "sys.exit('no quota')": "the program exited: no quota",
    "raise pulumi.RunError('no quota')": "no quota",
}


@pytest.mark.parametrize("inside", ["{}", "Machine('a').address.apply(lambda _: run('''{}'''))"])
@pytest.mark.parametrize("end", ENDING)
def test_a_program_that_calls_exit_deletes_nothing(lab, end, inside):
    lab.up(BEFORE)
    run = "def run(text):\n    exec(compile(text, __file__, 'exec'), globals())\n"
    outcome = lab.up("import sys\n" + run + inside.format(end))
    assert not outcome.succeeded
    assert {"a", "b"} <= set(lab.names)
    (error,) = lab.errors
    assert error.splitlines()[0].startswith("__main__.py:")
    assert ENDING[end] in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    "program", ["raise KeyboardInterrupt", "import sys\nsys.stdout = None\n1/0"]
)
def test_unusual_program_ends_delete_nothing(lab, program):
    lab.up(BEFORE)
    assert not lab.up(program).succeeded
    assert sorted(lab.names) == ["a", "b"]
    assert "__main__.py" in lab.errors[0]


def test_a_traceback_without_program_lines_is_printed(lab):
    lab.up(BEFORE)
    program = (
        "import threading, json\n"
        "thread = threading.Thread(target=json.loads, args=['nonsense'])\n"
        "thread.start()\nthread.join()\n"
    )
    assert lab.up(program + BEFORE).succeeded, lab.errors
    assert "json.decoder.JSONDecodeError" in lab.list_messages("info#err")[-1]


def test_an_exception_handled_by_the_program_is_not_a_failure(lab):
    program = """
        import asyncio
        async def fail():
            raise ValueError("handled")
        async def main():
            task = asyncio.ensure_future(fail())
            try:
                await task
            except ValueError:
                Machine("a")
            await asyncio.gather(fail(), fail(), return_exceptions=True)
        pulumi.run(main)
    """
    assert lab.up(program).succeeded, lab.errors
    assert lab.names == ["a"]


def test_syntax_and_import_errors_have_file_and_line(lab):
    assert not lab.up("Machine('a'\n").succeeded
    assert "__main__.py" in lab.errors[0]
    assert "SyntaxError: '(' was never closed" in lab.errors[0]
    (lab.directory / "helper.py").write_text("import pulumi\n\nimport nothing_of_that_name\n")
    assert not lab.up("import helper\n").succeeded
    assert f'File "{lab.directory}/helper.py", line 3' in lab.errors[0]
    assert lab.errors[0].endswith("No module named 'nothing_of_that_name'")


def test_frames_and_causes_in_libraries_follow_those_of_the_program(lab):
    lab.up(
        "import json\ntry:\n    json.loads('')\n"
        "except ValueError as error:\n    raise OSError(1) from error\n"
    )
    (error,) = lab.errors
    first, second = error.split("The above exception was the direct cause")
    assert first.index("__main__.py") < first.index("json/decoder.py")
    assert "line 8, in <module>\n    raise OSError(1) from error\nOSError: 1" in second


def test_secrets_are_masked_in_the_message_of_an_exception(lab):
    lab.config, lab.secret_keys = {"lab:key": "hunter2hunter2"}, ["lab:key"]
    lab.up("raise ValueError(pulumi.Config().require('key'))\n")
    assert "ValueError: [secret]" in lab.errors[0]


def test_a_missing_program_is_an_error_with_a_hint(lab):
    lab.up("Machine('a')")
    (lab.directory / "__main__.py").unlink()
    events = EventBus([lab.events.append])
    assert not Deployment(lab.subject(), Options("update", False), events).run().succeeded
    assert f"{lab.directory}/__main__.py does not exist" in lab.errors[0]
    assert "`main` in Pulumi.yaml" in lab.errors[0]
    assert lab.names == ["a"]


def test_a_duplicate_resource_is_an_error_with_both_lines(lab):
    (lab.directory / "more.py").write_text(
        "from lab import Machine\n\n\ndef more():\n    return Machine('a')\n"
    )
    outcome = lab.preview("Machine('a')\nimport more\n\nmore.more()\n")
    assert not outcome.succeeded
    (error,) = lab.errors
    assert "__main__.py" in error
    assert all(position in error for position in ("py:4", "py:7")), error


def test_a_program_that_raises_before_its_exports_keeps_the_stack_outputs(lab):
    lab.up("a = Machine('a')\npulumi.export('x', a.address)")
    lab.up(
        """
        a = Machine('a')
        def broken(address): raise RuntimeError('no')
        pulumi.export('x', a.address.apply(broken))
        """
    )
    done = [event.step.urn for event in lab.events if isinstance(event, StepDone)]
    assert not [urn for urn in done if "Stack" in urn]
    assert lab.snapshot.resources[0].outputs == {"x": "10.0.0.1"}
