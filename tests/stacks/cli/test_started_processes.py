"""The modules that gpuform starts by their dotted names exist under these names."""

from importlib.util import find_spec

from gpuform.stacks import cli
from gpuform.stacks.cli import multi_stack_worker
from gpuform.stacks.operations.multi_stack.automation import WORKER_MODULE
from gpuform.stacks.operations.opening.interpreter import COMMAND_MODULE
from gpuform.stacks.testing.processes import PRELOADED_MODULE


def test_processes_are_started_with_the_package_of_the_commands() -> None:
    assert cli.__name__ == COMMAND_MODULE
    assert find_spec(f"{COMMAND_MODULE}.__main__") is not None


def test_the_module_that_the_fork_server_preloads_exists() -> None:
    # multiprocessing ignores a module that it cannot import.
    assert find_spec(PRELOADED_MODULE) is not None


def test_operations_on_several_stacks_start_the_module_of_the_worker():
    assert multi_stack_worker.__name__ == WORKER_MODULE
