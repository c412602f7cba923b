"""A plan as a file has it: a volume that grows, with prices and a gate. Of a real run."""

from typing import Final

PLAN: Final = """\
{
  "format_version": "1",
  "project": "training",
  "stack": "dev",
  "operation": "update",
  "emulated": true,
  "made_at": "2026-11-23T02:04:36Z",
  "made_by": "gpuform 0.1.0",
  "basis": {
    "state": {
      "urn:pulumi:dev::training::pulumi:pulumi:Stack::training-dev": "6d2c1f852d6065e0b3a66df8b3dfb59a",
      "urn:pulumi:dev::training::pulumi:providers:pulumi-python::default": "474ecaad2251e17d3498295d9a1538cb",
      "urn:pulumi:dev::training::pulumi-python:dynamic/gpuform.together:SharedVolume::data": "8997508abcd73c6c5de257dd5403b105"
    },
    "config": {
      "training:tib": "f9dca6b1e7981c34646d80db6eda10b4"
    },
    "program": {
      "urn:pulumi:dev::training::pulumi-python:dynamic/gpuform.together:SharedVolume::data": {
        "aliases": "da04729563605baae42f06e31b7f293e",
        "inputs.__provider": "ceb336939d635074b1b116901c91c0b0",
        "inputs.region": "ce1f3179a7a3e6a23078f6e32350fddd",
        "inputs.size_tib": "689116282a1bb790887e11f913064e15",
        "inputs.volume_name": "693cfef921917e1d202d800cb65a83c6",
        "parent": "95a6e5a75f35756fe1273f50df642a3e"
      },
      "urn:pulumi:dev::training::pulumi:pulumi:Stack::training-dev": {
        "exports": "132e56a7fb05d909783e4e23c2a4d82f"
      }
    },
    "options": {
      "refresh": false,
      "emulate": true,
      "target": [],
      "target_dependents": false,
      "exclude": [],
      "exclude_dependents": false,
      "replace": [],
      "target_replace": [],
      "run_program": false
    },
    "effects": {
      "urn:pulumi:dev::training::pulumi-python:dynamic/gpuform.together:SharedVolume::data": [
        "update"
      ]
    },
    "key": "e4699c490052f95f3bdf8377b9b87daf",
    "seal": "6d9b617b477aa14cbf77ade5bbf58f95"
  },
  "errors": [],
  "stack_references": [],
  "planned_with": {},
  "outputs": [
    {
      "name": "size",
      "action": "update",
      "before": 5,
      "after": 8,
      "unknown": false,
      "secret": false
    }
  ],
  "changes": [
    {
      "urn": "urn:pulumi:dev::training::pulumi-python:dynamic/gpuform.together:SharedVolume::data",
      "type": "pulumi-python:dynamic/gpuform.together:SharedVolume",
      "name": "data",
      "action": "update",
      "reason": "changed",
      "replace_paths": [],
      "changes": [
        {
          "path": "size_tib",
          "action": "update",
          "before": 5,
          "after": 8,
          "unknown": false,
          "secret": false,
          "forces_replacement": false,
          "because": ""
        }
      ],
      "gpus_added": 0,
      "gpus_removed": 0,
      "parent": "",
      "dependencies": [],
      "before": {
        "region": "us-central-8",
        "gpu_types": [],
        "tags": null,
        "expires": null,
        "running": false,
        "reserved": false,
        "paid_until": "",
        "keeps_data": false,
        "unknown": [],
        "expenses": [
          {
            "what": "storage",
            "amount": 5.0,
            "unit": "TiB",
            "platform": "together",
            "gpu_type": "",
            "region": "us-central-8",
            "billing": "on_demand",
            "hourly": 0.410959,
            "currency": "USD",
            "source": "prices.yaml:3:5",
            "because": "",
            "outlives": false
          }
        ]
      },
      "after": {
        "region": "us-central-8",
        "gpu_types": [],
        "tags": null,
        "expires": null,
        "running": false,
        "reserved": false,
        "paid_until": "",
        "keeps_data": false,
        "unknown": [],
        "expenses": [
          {
            "what": "storage",
            "amount": 8.0,
            "unit": "TiB",
            "platform": "together",
            "gpu_type": "",
            "region": "us-central-8",
            "billing": "on_demand",
            "hourly": 0.657534,
            "currency": "USD",
            "source": "prices.yaml:3:5",
            "because": "",
            "outlives": false
          }
        ]
      },
      "retained": false,
      "in_use": "",
      "leaving": null,
      "others": [],
      "repairs": []
    }
  ],
  "summary": {
    "update": 1
  },
  "unchecked": [],
  "notices": [],
  "exposures": null,
  "proofs": null,
  "cost": {
    "before": {
      "amounts": [
        {
          "billing": "on_demand",
          "currency": "USD",
          "hourly": 0.410959
        }
      ],
      "unknown": []
    },
    "after": {
      "amounts": [
        {
          "billing": "on_demand",
          "currency": "USD",
          "hourly": 0.657534
        }
      ],
      "unknown": []
    }
  },
  "gates": [
    {
      "name": "budget",
      "rule": "max_hourly_cost",
      "level": "mandatory",
      "findings": [],
      "allowed": false,
      "reason": "",
      "permission": "gate:budget",
      "source": "gates.yaml:2:3"
    }
  ]
}
"""  # noqa: E501 - as gpuform writes it
