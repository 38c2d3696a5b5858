"""Size a deployment: the answer in a sentence, five numbers, where the memory goes, the six steps, the levers."""

from __future__ import annotations

from calc import format as fmt
from calc.answer import Answer, evidence, headline
from calc.curves import memory_bar
from calc.provenance import Provenance
from pages._figures import memory_figure, memory_finding
from pages._inputs import current_answer
from pages._levers import draw_levers, draw_nearest
from pages._steps import draw_steps, step_rows
from pages._ui import Metric, plain_text, show_chart, show_data, show_ignored, show_metrics, show_title


def main() -> None:
    """The page in its two states: it serves, or it does not and here is what would."""
    result = current_answer()
    show_title(headline(result), "Assumed: " + plain_text("; ".join(result.assumptions)) + ".")
    if result.verdict.fits:
        show_metrics(metrics(result))
    else:
        draw_nearest(result)
    bar = memory_bar(result)
    show_chart(memory_figure(result, bar), alt=memory_finding(result, bar), key="size-memory")
    draw_steps(result)
    if result.verdict.fits:
        draw_levers(result)
    show_data(step_rows(result), key="size-data", name="ridgebeam-steps")
    show_ignored(
        "Bursts and queues: means only, until the simulator has confirmed the percentile.",
        "Length distributions: every request has the mean input and output.",
        "At textbook fidelity: kernel launches, communication between GPUs, and every efficiency but MFU.",
    )


def metrics(result: Answer) -> list[Metric]:
    """GPUs, TTFT, TPOT, cost and utilisation, each with its origin."""
    scenario, cost, fleet = result.inputs.scenario, result.cost, result.fleet
    kind = evidence(result)
    at = "mean" if scenario.percentile is None else "mean; the percentile needs the simulator"
    return [
        Metric(
            label="GPUs",
            reading=fmt.count(result.gpus),
            help=f"{fmt.plural(fleet.replicas, 'replica')} of {result.layout.label}." if fleet else "",
            provenance=kind,
        ),
        Metric(
            label="TTFT",
            reading=fmt.optional(result.ttft_s, fmt.seconds),
            help=f"Time to first token without queueing ({at}).",
            provenance=kind,
        ),
        Metric(
            label="TPOT",
            reading=fmt.optional(result.tpot_s, fmt.seconds),
            help=f"Time per output token at a full batch ({at}).",
            provenance=kind,
        ),
        Metric(
            label="$ per million out",
            reading=fmt.optional(cost.usd_per_million_output, fmt.usd, "no price"),
            help=f"US dollars per million output tokens at this traffic. {cost.note}",
            provenance=Provenance.DATASHEET if cost.usd_per_hour is not None else None,
        ),
        Metric(
            label="Utilisation at peak",
            reading=fmt.optional(fleet.utilization if fleet else None, fmt.percent),
            help="Busy share of the GPUs that are bought, headroom included.",
            provenance=kind,
        ),
    ]


main()
