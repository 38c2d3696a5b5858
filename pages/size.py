"""Size a deployment: the answer in a sentence, five numbers, where the memory goes, the six steps, the levers."""

from __future__ import annotations

from calc.curves import memory_bar
from calc.plan.space import searches_layouts
from calc.result import Answer, headline, question
from calc.scenario import Fidelity
from pages._answer_metrics import answer_metrics
from pages._control_values import DEFAULT
from pages._costs import draw_costs
from pages._figures import memory_figure, memory_finding
from pages._handover import draw_handover
from pages._inputs import current_answer
from pages._levers import draw_levers, draw_nearest
from pages._plans import draw_other_layout, draw_plans, draw_proof
from pages._sensitivity import draw_sensitivity
from pages._steps import draw_steps, step_rows
from pages._ui import plain_text, show_chart, show_data, show_ignored, show_metrics, show_title

PURPOSE = (
    "Ridgebeam plans LLM serving: which GPUs a model needs, how fast it answers, what it costs, and why."
)
EXAMPLE = " Here is an example: change model, hardware or traffic in the sidebar (\N{RIGHT-POINTING DOUBLE ANGLE QUOTATION MARK} on a phone) to ask your own question."


def main() -> None:
    """The page in its two states: it serves, or it does not and here is what would."""
    result = current_answer()
    show_title(
        headline(result, most_nearest=1),  # the others have their buttons below
        plain_text(f"Assumed: {'; '.join(_assumed(result))}. Change any of it in the sidebar."),
        question=question(result.inputs),
        about=PURPOSE + EXAMPLE if result.inputs.scenario == DEFAULT else PURPOSE,
    )
    if result.verdict.fits:
        show_metrics(answer_metrics(result))
    else:
        draw_other_layout(result)
        draw_nearest(result)
    bar = memory_bar(result)
    show_chart(memory_figure(result, bar), alt=memory_finding(result, bar), key="size-memory")
    draw_steps(result)
    if result.verdict.fits:
        draw_levers(result)
        draw_plans(result)
        draw_proof(result)
        draw_sensitivity(result)
        draw_costs(result)
        draw_handover(result)
    show_data(lambda: step_rows(result), key="size-data", name="ridgebeam-steps")
    show_ignored(
        "Bursts, queues and length distributions: the steps are means; Prove it simulates all three.",
        "At textbook fidelity: kernel launches, communication between GPUs, and every efficiency but MFU.",
    )


def _assumed(result: Answer) -> list[str]:
    """What was assumed, without the engine's own defaults, which the memory step lists."""
    of_the_engine = {line.rstrip(".") for line in result.ledger.assumptions} if result.ledger else set()
    said = [line for line in (text.rstrip(".") for text in result.assumptions) if line not in of_the_engine]
    scenario = result.inputs.scenario
    if searches_layouts(scenario) and scenario.fidelity != Fidelity.TEXTBOOK and result.verdict.fits:
        said.append(
            f"{result.layout.label}, of simple layouts the fewest GPUs (row 7 and the verb plan search all)"
        )
    return said


main()
