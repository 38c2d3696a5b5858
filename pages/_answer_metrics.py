"""The five numbers of an answer, on the page and in the report."""

from __future__ import annotations

from calc import format as fmt
from calc.provenance import Provenance
from calc.result import Answer, evidence
from calc.scenario import Fidelity
from pages._inputs import worked_for
from pages._ui import Metric


def answer_metrics(result: Answer) -> list[Metric]:
    """GPUs, TTFT, TPOT, cost and utilisation, each with its origin."""
    scenario, cost, fleet = result.inputs.scenario, result.cost, result.fleet
    kind = evidence(result)
    at = "mean" if scenario.percentile is None else "mean; the percentile needs the simulator"
    textbook = scenario.fidelity == Fidelity.TEXTBOOK
    first = "without queueing" if textbook else "at this load"
    worked = worked_for(scenario) if result.verdict.fits else {}
    gap = "at a full batch" if textbook else "at this load, other prompts included"
    return [
        Metric(
            label="GPUs",
            worked=worked.get("gpus"),
            reading=fmt.count(result.gpus),
            help=f"{fmt.plural(fleet.replicas, 'replica')} of {result.layout.label}." if fleet else "",
            provenance=kind,
        ),
        Metric(
            label="TTFT",
            worked=worked.get("ttft"),
            reading=fmt.optional(result.ttft_s, fmt.seconds),
            help=f"Time to first token {first} ({at}).",
            provenance=kind,
        ),
        Metric(
            label="TPOT",
            worked=worked.get("tpot"),
            reading=fmt.optional(result.tpot_s, fmt.seconds, "none" if fleet else fmt.UNKNOWN),
            help=f"Time per output token {gap} ({at}).",
            provenance=kind,
        ),
        Metric(
            label="$ per million out",
            worked=worked.get("cost"),
            reading=fmt.optional(
                cost.usd_per_million_output, fmt.usd, "no price" if cost.usd_per_hour is None else "no output"
            ),
            help=f"US dollars per million output tokens at this traffic. {cost.note}",
            provenance=Provenance.DATASHEET if cost.usd_per_million_output is not None else None,
        ),
        Metric(
            label="Utilisation at peak",
            worked=worked.get("utilisation"),
            reading=fmt.optional(fleet.utilization if fleet else None, fmt.percent),
            help="Busy share of the GPUs that are bought, headroom included.",
            provenance=kind,
        ),
    ]
