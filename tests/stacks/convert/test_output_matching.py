"""Test how outputs are found in texts."""

from gpuform.stacks.convert.output_matching import OutputIndex
from gpuform.stacks.declaration_writer.declarations import DeclaredReference


def test_a_version_that_ends_like_a_number_is_found_as_a_text() -> None:
    driver = DeclaredReference("clusters", "train", ("driver",))
    index = OutputIndex()
    index.add(driver, "550.54.0")
    assert index.split_text("driver 550.54.0") == ["driver ", driver]
