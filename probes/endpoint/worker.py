"""The load test as a process: `python -m probes.endpoint.worker`, a question on standard input, JSON lines on standard output.

The API key comes in on standard input and is held in memory only. Standard input stays open: when it closes, whoever asked is
gone, nothing more is sent, and the question's folder is removed. Events: `progress`, `facts`, then `result` or `error`.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from typing import Any

from calc.endpoint.plan import plan_from_json
from calc.errors import InputError, RidgebeamError
from presets.deployment import Deployment
from probes.endpoint.dialects import Api
from probes.endpoint.protocol import measure
from probes.endpoint.safety import ApiKey, Policy, checked_target
from probes.processes import end_with_parent


def emit(event: dict[str, Any]) -> None:
    """One event, flushed."""
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


async def _measured(question: dict[str, Any]) -> dict[str, Any]:
    plan = plan_from_json(question["plan"])
    policy = Policy.from_environment(deployment=Deployment(question["deployment"]))
    target = checked_target(question["url"], policy)
    limit = asyncio.timeout(plan.total_limit_s + 120.0)  # the plan's own limit ends the run first
    async with limit:
        return await measure(
            target,
            Api(question["api"]),
            plan,
            key=ApiKey(question.get("key", "")),
            model=question.get("model", ""),
            progress=emit,
        )


def main() -> int:
    """Answer one question."""
    question = json.loads(sys.stdin.readline())
    end_with_parent(before=lambda: shutil.rmtree(question["folder"], ignore_errors=True))
    try:
        emit({"event": "result", "run": asyncio.run(_measured(question))})
    except RidgebeamError as error:
        kind = "input" if isinstance(error, InputError) else "probe"
        emit({"event": "error", "kind": kind, "message": error.message, "next_step": error.next_step})
        return error.exit_code
    except TimeoutError:
        emit(
            {
                "event": "error",
                "kind": "probe",
                "message": "The run did not end in time.",
                "next_step": "Ask for less.",
            }
        )
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main())
