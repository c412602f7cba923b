"""What random programs found, each in its least form."""


def machines(lab) -> list[tuple[str, str]]:
    """The names and ids of the machines in the state."""
    return [(r.urn.rsplit("::", 1)[1], r.id) for r in lab.snapshot.resources if "Machine" in r.urn]


def test_a_new_component_that_registers_outputs_can_be_previewed(lab):
    program = """
        group = pulumi.ComponentResource("lab:index:Group", "g")
        group.register_outputs({"n": 1})
        """
    assert lab.preview(program).succeeded, lab.errors
    assert lab.up(program).succeeded
    assert lab.preview(program).succeeded, lab.errors


def test_a_half_done_replacement_outlives_an_older_object_of_its_name(lab):
    lab.up("Machine('a', rack='x', slot='x', refuse='delete')")
    lab.up("Machine('a', rack='y', slot='x')")
    lab.up("Machine('a', rack='y', slot='y', refuse='create')")
    assert [(r.delete, r.pending_replacement) for r in lab.snapshot.resources][-2:] == [
        (False, True),
        (True, False),
    ]
    lab.change_world("m-1", None)
    lab.run("refresh")
    assert machines(lab) == [("a", "m-2")]
    assert lab.state("a").pending_replacement


def test_a_preview_knows_which_object_of_a_fallen_dependent_is_there_to_be_deleted(lab):
    lab.up("a = Machine('a', slot='x')\nMachine('b', rack='x', refuse='delete')\n")
    lab.up("a = Machine('a', slot='x')\nMachine('b', rack=a.address)\n")
    program = "a = Machine('a', slot='y')"
    lab.preview(program)
    planned = sorted(lab.steps)
    lab.up(program)
    assert sorted([*lab.steps, *lab.failures]) == planned


