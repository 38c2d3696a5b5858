"""`ridgebeam launch`: the commands that start a plan, a Kubernetes manifest, and the scenario to hand over."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from commands.arguments import (
    INFEASIBLE,
    OK,
    add_planned,
    emit,
    planned,
    verb,
)

if TYPE_CHECKING:
    from calc.handover import Command


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
    from calc.errors import InputError
    from calc.handover import OTHER_ENGINES, handover_of
    from calc.result import headline
    from calc.scenario_text import to_json, to_query

    result = planned(arguments, "launch")
    if not result.verdict.fits:
        emit(arguments, {"commands": [], "verdict": result.verdict.as_json()}, [headline(result)])
        return INFEASIBLE
    handed = handover_of(result)
    record = {
        "commands": [
            {
                "engine": str(command.engine),
                "role": command.role or None,
                "replicas": command.replicas,
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
        lines = [headline(result), *map(_line, handed.own), *(f"  {note}" for note in handed.notes)]
        lines += [OTHER_ENGINES, *(f"{other.engine}: {_line(other)}" for other in handed.others)]
    emit(arguments, record, lines)
    return OK


def _line(command: Command) -> str:
    return f"{command.replicas} x {command.role}: {command.text}" if command.role else command.text
