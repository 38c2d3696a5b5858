"""`ridgebeam launch`: the commands that start a plan, a Kubernetes manifest, and the scenario to hand over."""

from __future__ import annotations

import argparse
from typing import Any

from commands.arguments import (
    INFEASIBLE,
    OK,
    add_planned,
    emit,
    planned,
    verb,
)


def add(verbs: Any) -> None:
    parser = verb(
        verbs, "launch", run, "commands that start a plan, a Kubernetes manifest, the scenario as a file"
    )
    add_planned(parser)
    parser.add_argument(
        "--print",
        choices=("commands", "manifest", "scenario"),
        default="commands",
        help="what to print without --json: ready to be written to a file",
    )


def run(arguments: argparse.Namespace) -> int:
    from calc.answer import headline
    from calc.errors import InputError
    from calc.handover import handover_of
    from calc.scenario import to_json, to_query

    result = planned(arguments, "launch")
    if not result.verdict.fits:
        emit(arguments, {"commands": [], "verdict": result.verdict.as_json()}, [headline(result)])
        return INFEASIBLE
    handed = handover_of(result)
    record = {
        "commands": [
            {
                "engine": str(command.engine),
                "command": command.text,
                "files": dict(command.files),
                "problems": list(command.problems),
                "checked": command.checked,
                "not_set": list(command.not_set),
            }
            for command in handed.commands
        ],
        "manifest": handed.manifest,
        "manifest_why": handed.manifest_why or None,
        "notes": list(handed.notes),
        "scenario": to_query(result.inputs.scenario),
    }
    if arguments.print == "scenario":
        lines = [to_json(result.inputs.scenario)]
    elif arguments.print == "manifest":
        if handed.manifest is None:
            raise InputError("manifest", result.layout.label, handed.manifest_why)
        lines = [handed.manifest.rstrip("\n")]
    else:
        own, *others = handed.commands
        lines = [headline(result), own.text, *(f"  {note}" for note in handed.notes)]
        lines += [f"{other.engine}: {other.text}" for other in others]
    emit(arguments, record, lines)
    return OK
