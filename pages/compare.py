"""Compare GPUs: what each can give users and owner, at the speed that users are promised."""

from __future__ import annotations

import streamlit as st

from calc import format as fmt
from calc.errors import InputError
from calc.frontier import Operating, at_interactivity, offered, operating_points
from calc.result import Inputs
from calc.scenario import Fidelity, Scenario
from calc.sized import length_verdict
from calc.worked.run import worked_operating
from pages._frontier_figure import frontier_figure, frontier_finding
from pages._inputs import BY_VALUE, TTL, current_inputs, inputs_for
from pages._sidebar import current_scenario
from pages._ui import (
    plain_text,
    show_chart,
    show_data,
    show_ignored,
    show_side_by_side,
    show_title,
    show_worked_maths,
)
from presets import accelerators

MOST_COMPARED = 3
BESIDE = ("h100-sxm5-80gb", "h200-sxm-141gb")
SPEEDS = (5, 10, 15, 20, 30, 40, 50, 75, 100, 150, 200)


@st.cache_resource(max_entries=64, ttl=TTL, show_spinner=False, hash_funcs=BY_VALUE)
def _points(scenario: Scenario, gpu_id: str) -> tuple[Operating, ...]:
    inputs = inputs_for(scenario.on(gpu_id))
    return operating_points(inputs, inputs.offer)


def main() -> None:
    """At most three frontiers, and a table at one speed."""
    scenario, inputs = current_scenario(), current_inputs()
    top = st.container()  # the finding stands above the controls that it answers
    chosen, speed, pinned = _controls(scenario)
    if not chosen:
        raise InputError("accelerators", "none", "choose at least one to compare")
    names = {
        gpu: inputs.offer.accelerator.name if gpu == scenario.gpu else accelerators.load(gpu).name
        for gpu in chosen
    }
    found = {names[gpu]: points for gpu in chosen if (points := _points(offered(scenario), gpu))}
    if not found:
        raise InputError("accelerators", ", ".join(names.values()), _why_none(inputs))
    at = {name: at_interactivity(points, speed) for name, points in found.items()}
    baseline = names[pinned] if pinned in names else next(iter(found))
    with top:
        show_title(
            _headline(at, speed, baseline),
            plain_text(
                f"{inputs.spec.id} at {scenario.fidelity} fidelity; layouts of up to 8 GPUs; {_prompts(scenario)}."
            ),
        )
    promised_s = scenario.slo.tpot_s
    target = None if promised_s is None else 1.0 / promised_s
    made = frontier_figure(
        found, user_tokens_per_s=speed, target_tokens_per_s=target, at=at, baseline=baseline
    )
    show_chart(made, alt=frontier_finding(at, speed), key="compare-frontier")
    missing = [name for name in names.values() if name not in found]
    if missing:
        st.caption(plain_text(f"Does not fit, or has no rate for it: {', '.join(missing)}."))
    st.header(f"At {fmt.significant(speed)} tokens/s per user", anchor=False)
    show_side_by_side([_row(name, point, at.get(baseline)) for name, point in at.items()])
    st.caption(plain_text(f"Baseline: {baseline}. Watts are those of the GPUs while all users are served."))
    show_worked_maths(
        lambda: [
            line
            for point in at.values()
            if point is not None
            for line in worked_operating(
                point, output_tokens=scenario.output_tokens, baseline=at.get(baseline)
            )
        ],
        key="compare-maths",
    )
    show_data(
        lambda: [_record(p) for points in found.values() for p in points],
        key="compare-data",
        name="ridgebeam-frontier",
    )
    show_ignored(
        "Arrivals: at every point as many users as the batch wait for their answers and ask again. *Simulate traffic* has arrivals.",
        "That a GPU which waits for memory draws less than its power limit, from which watts are counted.",
        "At textbook fidelity: messages between the GPUs of a layout, which are not free.",
    )


def _why_none(inputs: Inputs) -> str:
    """Why no accelerator has a point: what is asked of the model, or its size."""
    if inputs.spec.decoder is None:
        return f"none of them has tokens per second: {inputs.spec.id} generates no tokens"
    length = length_verdict(inputs)
    return (
        "the model fits on none of them, up to 8 GPUs"
        if length.fits
        else f"nothing serves this: {length.reason}"
    )


def _prompts(scenario: Scenario) -> str:
    """How the work of prompts is counted."""
    if scenario.disaggregated:
        return "prompts on GPUs of their own, counted among the GPUs"
    if scenario.fidelity == Fidelity.TEXTBOOK:
        return "prefill work counted, and no user waits for the prompts of others"
    return "users also wait for the prompts of others"


def _controls(scenario: Scenario) -> tuple[list[str], float, str]:
    first = list(dict.fromkeys((scenario.gpu, *BESIDE)))[:MOST_COMPARED]
    options = list(dict.fromkeys((scenario.gpu, *accelerators.all_ids())))
    chosen = st.multiselect(
        "Accelerators, at most three",
        options,
        default=first,
        max_selections=MOST_COMPARED,
        key="compare_gpus",
        bind="query-params",
    )
    row = st.columns(2, vertical_alignment="bottom")
    pinned = row[0].selectbox("Baseline", chosen or options[:1], key="baseline", bind="query-params")
    speed = row[1].select_slider(
        "Tokens/s per user", [str(s) for s in SPEEDS], value="30", key="speed", bind="query-params"
    )
    return list(chosen), float(speed), str(pinned)


def _headline(at: dict[str, Operating | None], speed: float, baseline: str) -> str:
    """The best at that speed beside the baseline: by tokens per dollar where both have a price, else per GPU."""
    fast = {name: point for name, point in at.items() if point is not None}
    promise = f"At {fmt.significant(speed)} tokens/s per user"
    if not fast:
        return f"{promise}, none of these is fast enough."
    priced = {name: each for name, p in fast.items() if (each := p.tokens_per_usd) is not None}
    rates = priced if len(priced) > 1 else {name: p.tokens_per_s_per_gpu for name, p in fast.items()}
    what = "the tokens per dollar" if rates is priced else "the tokens/s per GPU"
    ranked = sorted(rates, key=lambda name: -rates[name])
    best = ranked[0]
    if len(ranked) == 1:
        return f"{promise}, {best} gives {fmt.significant(fast[best].tokens_per_s_per_gpu)} tokens/s per GPU."
    other = baseline if baseline in rates and baseline != best else ranked[1]
    if baseline not in fast:
        why = "is not fast enough" if baseline in at else "cannot hold the model"
        other, note = ranked[-1], f"; {baseline} {why}"
    else:
        note = ""
    return f"{promise}, {best} gives {fmt.factor(rates[best] / rates[other])} {what} of {other}{note}."


def _row(name: str, point: Operating | None, baseline: Operating | None) -> dict[str, str]:
    if point is None:
        return {"accelerator": name, "runs as": "not fast enough"}
    return {
        "accelerator": name,
        "GPUs": fmt.count(point.gpus),
        "runs as": f"{point.layout} b{point.batch}",
        "tokens/s per GPU": fmt.significant(point.tokens_per_s_per_gpu),
        "TTFT alone" if point.e2e_s is None else "TTFT": fmt.seconds(point.ttft_s),
        "$ per million out": fmt.optional(point.usd_per_million, fmt.usd, "no price"),
        "tokens per $": fmt.optional(point.tokens_per_usd, fmt.significant, "no price"),
        "against baseline": _against(point, baseline),
        "watts per user": fmt.optional(point.watts_per_user, fmt.plain, "no power limit"),
    }


def _against(point: Operating, baseline: Operating | None) -> str:
    """Tokens per dollar over the baseline's; tokens per GPU where a price is missing."""
    if baseline is None:
        return "no baseline there"
    factor, per_dollar = point.against(baseline)
    return f"{fmt.factor(factor)} per {'$' if per_dollar else 'GPU'}"


def _record(point: Operating) -> dict[str, object]:
    return {
        "gpu": point.gpu,
        "layout": point.layout,
        "batch": point.batch,
        "tokens_per_s_per_user": point.user_tokens_per_s,
        "tokens_per_s_per_gpu": point.tokens_per_s_per_gpu,
        "ttft_s": point.ttft_s,
        "usd_per_million_out": point.usd_per_million,
        "watts_per_user": None if point.watts_per_user is None else point.watts_per_user.best,
        "fits": point.fits,
    }


main()
