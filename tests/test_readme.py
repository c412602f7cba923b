"""The README says what is."""

from pathlib import Path

from gpuform.providers.codegen import field_table

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_the_table_of_fields_is_current():
    assert field_table().strip() in README, (
        "paste the output of `python -m gpuform.providers.codegen --readme` into README.md"
    )
