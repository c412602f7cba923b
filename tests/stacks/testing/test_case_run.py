"""Runs of cases: chains, events, kills and configuration; and no case reaches anything outside."""

import os
from pathlib import Path

import pytest
from processes.commands import run_gpuform
from support.topologies.declarations import SCP_POOL

from gpuform.stacks.testing.runner import CaseStatus

from .conftest import RunCases, WriteCases, format_findings

CHAIN = """\
    cases:
      comes_up:
        expect: {plan: {train: create, data: create}}
      stays:
        start: {case: comes_up}
        expect: {plan: {}, takes: {at_most: 0s}}
      spares:
        start: {case: comes_up}
        config: {spare: true}
        expect: {plan: {scratch: create}}
      saves_again:
        start: {case: spares}
        expect: {plan: {scratch: delete}}
      fails:
        expect: {plan: {}}
      follows:
        start: {case: fails}
"""


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_cases_start_from_each_other(run_cases: RunCases) -> None:
    results = run_cases(CHAIN)
    assert {name: str(result.status) for name, result in results.items()} == {
        **dict.fromkeys(("comes_up", "stays", "spares", "saves_again"), "passed"),
        "fails": "failed",
        "follows": "skipped",
    }


@pytest.mark.slow
def test_cases_leave_no_files_in_the_project(run_cases: RunCases, project: Path) -> None:
    before = sorted(path.relative_to(project) for path in project.rglob("*"))
    results = run_cases("cases: {one: {run: up}, two: {start: {case: one}, run: destroy}}")
    assert all(result.status is CaseStatus.PASSED for result in results.values())
    after = sorted(path.relative_to(project) for path in project.rglob("*"))
    assert after == sorted([*before, Path("tests/demo.yaml")])


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_the_environment_does_not_reach_a_case(write_cases: WriteCases, project: Path) -> None:
    """A case sees neither API keys and addresses of platforms, nor a backend, nor permissions."""
    write_cases(
        """\
        cases:
          too_many:
            config: {gpus: 24}
            expect: {result: policy-violation, gates: {budget: stops}}
          few:
            config: {gpus: 8}
        """
    )
    done = run_gpuform(
        project,
        "test",
        TOGETHER_BASE_URL="http://127.0.0.1:1",
        TOGETHER_API_KEY="real-key",
        PULUMI_BACKEND_URL="s3://nowhere",
        GPUFORM_ALLOW="gate:budget",
        PULUMI_CONFIG_PASSPHRASE="another",
    )
    assert done.stdout.splitlines()[-1] == "2 cases: 2 passed"


def test_a_permission_lifts_a_gate(run_cases: RunCases) -> None:
    results = run_cases(
        """\
        cases:
          allowed:
            config: {gpus: 24}
            allow: ["gate:budget"]
            expect: {gates: {budget: allowed}, hourly_cost: {USD: 71.76}}
        """
    )
    assert format_findings(results["allowed"]) == []


EVENTS = """\
    cases:
      out_of_stock:
        events: [{stock_out: together}]
        expect:
          error: [has no 16 H100_SXM GPUs free]
          objects: {together/clusters: [], together/volumes: [{name: training-data}]}
      degraded:
        events: [{at: 10m, status: {object: training, status: Degraded}}]
        expect: {error: [Degraded], takes: {at_least: 10m}, resources: {train: {ready: false}}}
      without_credit:
        events: [{credit_gone: together}]
        expect: {result: out-of-credit, objects: {together/clusters: []}}
      answered_with_an_error:
        events: [{fault: {method: POST, path: /compute/clusters$, status: 400}}]
        expect: {error: ["400"]}
      killed:
        events: [{on: POST /compute/clusters$, kill: true}]
        expect: {result: killed, objects: {together/clusters: [{name: training}]}}
      goes_on:
        start: {case: killed}
        expect:
          objects: {together/clusters: [{name: training, status: Ready}]}
          resources: {train: {ready: true}}
      killed_while_waiting:
        events: [{at: 10m, kill: true}]
        expect: {result: killed, plan: {train: create, data: create}}
      somebody_resizes_it:
        start: {case: goes_on, later: 2h}
        run: refresh
        events:
          - request:
              method: PUT
              path: "/together/v1/compute/clusters/{training}"
              body: {num_gpus: 32}
        expect: {resources: {train: {num_gpus: 32}}}
      a_node_dies_under_a_job:
        start: {case: goes_on}
        events:
          - {job: {cluster: training, name: pretraining, node: training-worker-1, gpus: 8}}
          - {node_not_ready: {cluster: training, node: training-worker-0}}
          - proposal:
              cluster: training
              node: training-worker-0
              reason: GPU fell off the bus
        expect: {plan: {}}
      credit_is_back:
        start: {case: without_credit}
        events: [{control: {path: together/credit, body: {exhausted: false}}}]
        expect: {objects: {together/clusters: [{name: training, status: Ready}]}}
"""


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_every_kind_of_event_takes_effect(run_cases: RunCases) -> None:
    results = run_cases(EVENTS)
    assert {
        name: format_findings(result) for name, result in results.items() if format_findings(result)
    } == {}
    assert {result.status for result in results.values()} == {CaseStatus.PASSED}


DESTROYED = """\
    cases:
      up: {}
      goes:
        start: {case: up}
        run: destroy
        expect: {absent: [train, data, "*"], hourly_cost: {USD: 0}}
      goes_at_another_price:
        start: {case: up}
        run: destroy
        expect: {hourly_cost: {USD: 1}}
      goes_under_another_name:
        start: {case: up}
        run: destroy
        expect: {absent: [tran]}
      refused:
        config: {gpus: 9}
        expect: {error: [multiple of 8], absent: [tran]}
      moves:
        start: {case: up}
        run: preview
        config: {region: us-central-4}
        expect: {plan: {"*": replace}, replaced_by: {data: [region]}}
      grows:
        start: {case: up}
        run: preview
        config: {gpus: 8}
        expect: {replaced_by: {train: [num_gpus]}}
"""


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_absent_resources_must_have_existed_or_be_declared(
    run_cases: RunCases, project: Path
) -> None:
    topology = project / "topology.yaml"
    topology_text = topology.read_text().replace(" us-central-8", ' "{{ config.region }}"')
    topology.write_text(
        topology_text.replace("config:", "config:\n  region: {default: us-central-8}")
    )
    (project / "gates.yaml").unlink()
    results = run_cases(DESTROYED)
    never_existed = "is absent, but it neither existed nor is declared"
    assert {
        name: format_findings(result) for name, result in results.items() if format_findings(result)
    } == {
        "goes_at_another_price": ["10: hourly cost in USD: expected 1.0, planned 0.0"],
        "goes_under_another_name": [f"14: tran {never_existed}"],
        "refused": [f"17: tran {never_existed}"],
        "grows": ["27: train: expected replace, planned update"],
    }


WITHOUT_EFFECT = """\
    cases:
      late:
        events: [{at: 30h, status: {object: training, status: Degraded}}]
      unseen:
        events: [{on: DELETE /compute/clusters, stock_out: together}]
      unknown_object:
        events: [{status: {object: trainig, status: Degraded}}]
      unknown_platform:
        events: [{stock_out: togehter}]
      refused:
        events: [{control: {path: together/credit, body: {gone: true}}}]
      no_credit:
        events: [{credit_gone: aios}]
      no_control:
        events: [{control: {path: together/nothing}}]
      on_no_node:
        start: {case: up}
        events: [{job: {cluster: training, name: work, node: nope}}]
      too_large:
        start: {case: up}
        events: [{job: {cluster: training, name: work, gpus: 800}}]
      too_large_for_its_node:
        start: {case: up}
        events: [{job: {cluster: training, name: work, node: training-worker-0, gpus: 9}}]
      up: {}
      killed_before:
        events:
          - {at: 10m, kill: true}
          - {at: 15m, stock_out: together}
          - {fault: {method: DELETE, status: 503}}
          - {at: 5m, status: {object: trainig, status: Degraded}}
        expect: {result: killed}
      refused_before:
        config: {gpus: many}
        events: [{stock_out: together}]
        expect: {error: [whole number]}
      met_by_none:
        events: [{fault: {method: POST, path: /nothing$, status: 503}}]
      met_too_late:
        events: [{at: 19m, fault: {method: POST, status: 503}}]
      met_by_too_few:
        events: [{fault: {method: POST, path: /compute/clusters$, skip: 1, status: 503}}]
"""


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_an_event_without_effect_fails_its_case(run_cases: RunCases) -> None:
    results = run_cases(WITHOUT_EFFECT)
    first_findings = {
        name: format_findings(result)[0] for name, result in results.items() if name != "up"
    }
    assert format_findings(results["killed_before"]) == [
        "29: the event at 15m did not happen: the run was killed",
        "30: the fault met no request",
        "31: the event cannot happen: no object is named 'trainig' at this time",
    ]
    before = "35: the event before the run did not happen: the run ended after 0s"
    assert first_findings["refused_before"] == before
    assert first_findings["late"] == "3: the event at 30h did not happen: the run ended after 21m"
    assert "the event on DELETE /compute/clusters did not happen" in first_findings["unseen"]
    assert "no object is named 'trainig' at this time" in first_findings["unknown_object"]
    assert (
        "unknown platform 'togehter'; the platforms are together, scp"
        in first_findings["unknown_platform"]
    )
    assert "the emulator answered 422: " in first_findings["refused"]
    failed_event = "the event cannot happen: "
    assert (
        first_findings["no_credit"]
        == f"13: {failed_event}platform aios has no credit that can run out"
    )
    no_control = "unknown control together/nothing of the emulator"
    assert first_findings["no_control"] == f"15: {failed_event}{no_control}"
    assert first_findings["on_no_node"] == f"18: {failed_event}node nope not found"
    no_capacity = "job work does not start: no node has room for it"
    assert first_findings["too_large"] == f"21: {failed_event}{no_capacity}"
    no_capacity = "job work does not start: training-worker-0 has no room for it"
    assert first_findings["too_large_for_its_node"] == f"24: {failed_event}{no_capacity}"
    for name, line in (("met_by_none", 38), ("met_too_late", 40), ("met_by_too_few", 42)):
        assert first_findings[name] == f"{line}: the fault met no request"


def test_a_slurm_job_starts_or_its_event_fails(run_cases: RunCases, project: Path) -> None:
    topology = project / "topology.yaml"
    topology.write_text(
        topology.read_text().replace(
            "billing_type:", "cluster_type: SLURM\n    slurm_shm_size_gib: 64\n    billing_type:"
        )
    )
    results = run_cases(
        """\
        cases:
          up: {}
          works:
            start: {case: up}
            run: preview
            events: [{job: {cluster: training, name: work, gpus: 8}}]
          on_no_node:
            start: {case: up}
            run: preview
            events: [{job: {cluster: training, name: work, node: nope}}]
        """
    )
    assert {
        name: format_findings(result) for name, result in results.items() if format_findings(result)
    } == {"on_no_node": ["10: the event cannot happen: node nope not found"]}


def test_a_fault_with_met_false_fails_when_a_request_meets_it(run_cases: RunCases) -> None:
    results = run_cases(
        """\
        cases:
          none: {events: [{fault: {method: DELETE, status: 500}, met: false}]}
          some:
            events: [{fault: {method: POST, path: /compute/clusters$, status: 400}, met: false}]
            expect: {error: ["400"]}
        """
    )
    assert {
        name: format_findings(result) for name, result in results.items() if format_findings(result)
    } == {"some": ["4: the fault met a request"]}


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_an_object_that_shares_its_name_is_ambiguous(run_cases: RunCases, project: Path) -> None:
    topology = project / "topology.yaml"
    topology.write_text(
        topology.read_text().replace("volume_name: training-data", "volume_name: training")
    )
    results = run_cases(
        """\
        cases:
          up: {}
          either: {start: {case: up}, events: [{status: {object: training, status: Degraded}}]}
          one:
            start: {case: up}
            run: refresh
            events: [{status: {object: together.clusters.training, status: Degraded}}]
            expect: {resources: {train: {status: Degraded}}}
        """
    )
    (finding,) = format_findings(results["either"])
    assert "ambiguous: together.clusters.training, together.volumes.training" in finding
    assert format_findings(results["one"]) == []


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_an_invalid_field_fails_the_case_even_if_it_expects_a_failure(run_cases: RunCases) -> None:
    """A case with an invalid field has tested nothing."""
    results = run_cases(
        """\
        defaults: {config: {spare: false}}
        cases:
          key: {config: {gpsu: 8}, expect: {result: failed}}
          secret: {secrets: {toke: x}, expect: {result: failed}}
          stack: {stack_references: {network: {a: 1}}, expect: {result: failed}}
          target: {target: [train, trian], expect: {result: failed}}
          at_destroy: {run: destroy, exclude: [trian], expect: {result: failed}}
          permission: {allow: [nonsense], expect: {error: [nonsense]}}
          gate: {allow: ["gate:place", "gate:palce"], expect: {result: failed}}
          state: {start: {state: demo.yaml}, expect: {result: failed}}
          type: {config: {gpus: many}, expect: {error: ['"many" is not a whole number']}}
          rule: {config: {gpus: 9}, expect: {error: [multiple of 8]}}
        """
    )
    findings = {
        name: format_findings(result) for name, result in results.items() if format_findings(result)
    }
    (key_finding,) = findings.pop("key")
    assert key_finding == (
        "3: nothing reads the configuration key gpsu: neither the topology nor Pulumi.yaml "
        "declares it\n  did you mean gpus?"
    )
    assert {name: messages[0].splitlines()[0] for name, messages in findings.items()} == {
        "secret": "4: nothing reads the configuration key toke: neither the topology nor "
        "Pulumi.yaml declares it",
        "stack": "5: 'network' in `stack_references` is not the name of a stack",
        "target": "6: --target trian matches no resource of the stack or its program",
        "at_destroy": "7: --exclude trian matches no resource of the stack",
        "permission": "8: nonsense: permission not found",
        "gate": "9: unknown gates: gate:palce",
        "state": "10: demo.yaml is not JSON: Expecting value: line 1 column 1 (char 0)",
    }
    assert [finding.position.column for finding in results["target"].findings] == [28]


def test_an_invalid_default_is_reported_at_its_position(run_cases: RunCases) -> None:
    results = run_cases("defaults: {config: {gpsu: 8}}\ncases: {a: {config: {gpus: 8}}}")
    (finding,) = results["a"].findings
    assert (finding.position.line, finding.position.column) == (1, 27)


def test_a_program_that_dies_breaks_its_case_and_others_still_run(
    run_cases: RunCases, project: Path
) -> None:
    (project / "topology.yaml").unlink()
    (project / "__main__.py").write_text(
        "import os, sys, pulumi\n"
        "if pulumi.Config().get_bool('dies'):\n"
        "    print('last words', flush=True)\n"
        "    os._exit(7)\n"
        "pulumi.export('answer', 42)\n"
    )
    results = run_cases(
        "cases: {dies: {config: {dies: true}}, lives: {expect: {outputs: {answer: 42}}}}"
    )
    assert results["dies"].status is CaseStatus.BROKEN
    assert "exited with 7" in results["dies"].error
    assert results["lives"].status is CaseStatus.PASSED


def test_a_case_with_a_committed_stack_uses_its_configuration(
    run_cases: RunCases, project: Path
) -> None:
    settings = project / "Pulumi.prod.yaml"
    settings.write_text(
        'config:\n  demo:gpus: "8"\n  demo:token:\n    secure: v1:abc:def\nencryptionsalt: v1:x\n'
    )
    before = settings.read_text()
    results = run_cases(
        """\
        defaults: {stack: prod}
        cases:
          as_committed:
            expect:
              properties: {train: {num_gpus: 8}}
              warning: [is encrypted in Pulumi.prod.yaml]
          with_a_secret:
            secrets: {token: planted-9c}
            expect: {outputs: {token: planted-9c}}
        """
    )
    assert {
        name: format_findings(result) for name, result in results.items() if format_findings(result)
    } == {}
    assert settings.read_text() == before


def test_stack_references_have_the_outputs_that_the_case_declares(
    run_cases: RunCases, project: Path
) -> None:
    (project / "topology.yaml").write_text(
        "stack_references: {network: 'organization/network/prod'}\n"
        "outputs: {told: '{{ stack_references.network.region }}'}\n"
    )
    results = run_cases(
        """\
        cases:
          given:
            stack_references: {network/prod: {region: us-central-8}}
            expect: {outputs: {told: us-central-8}}
          missing:
            expect: {error: [network/prod]}
          unread:
            stack_references: {network/prod: {region: x}, network/dev: {region: x}}
          stays:
            start: {case: given}
            run: refresh
            stack_references: {network/dev: {region: x}}
        """
    )
    assert {
        name: format_findings(result) for name, result in results.items() if format_findings(result)
    } == {
        "unread": ["8: the program does not read network/dev; it reads organization/network/prod"]
    }


POOL = f"""
config:
  count: {{type: integer, default: 3}}
node_pools:
  workers:
{SCP_POOL}    image_id: IMAGE-7XFMaJpLsapKvskFMjCtmm
    cluster_fabric_name: train-a
    gpu_node_name_prefix: train
    count: "{{{{ config.count }}}}"
    drain: {{slurm: {{via: local}}}}
"""


def test_a_case_contacts_no_scheduler_of_this_machine(
    run_cases: RunCases, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real scheduler may have nodes with the names of the case's nodes, and would drain them."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("scontrol", "squeue", "sinfo"):
        (folder / name).write_text(f"#!/bin/sh\necho $0 $* >> {tmp_path}/asked\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("GPUFORM_ALLOW", "real-schedulers")
    (project / "gates.yaml").unlink()
    (project / "topology.yaml").write_text(POOL)
    results = run_cases(
        """\
        cases:
          up: {}
          shrinks:
            start: {case: up}
            config: {count: 2}
            expect: {error: [Slurm by local was not asked]}
        """
    )
    assert {
        name: format_findings(result) for name, result in results.items() if format_findings(result)
    } == {}
    assert not (tmp_path / "asked").exists()
