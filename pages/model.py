"""Model: what is in it, how it is stored, and what one conversation of it costs in memory."""

from __future__ import annotations

import streamlit as st

from calc import format as fmt
from calc.block_map import layer_groups
from calc.curves import context_curve
from calc.memory.kv import kv_bytes_per_token, largest_context, sequence_bytes
from calc.model import ModelSpec
from calc.parameters import ParameterCount, count_parameters
from calc.provenance import Provenance
from calc.quantization import WeightBytes, stored_bytes
from calc.state_map import stacking
from calc.worked.formula import Worked
from calc.worked.model import worked_conversation, worked_token, worked_weights
from pages._experts_figure import experts_figure, experts_finding, experts_of
from pages._figures import context_figure, context_finding, layers_figure, layers_finding
from pages._inputs import current_inputs
from pages._layers import draw_check, draw_formats, draw_layers, draw_parts, draw_state
from pages._ui import (
    Metric,
    plain_text,
    predict_first,
    show_chart,
    show_data,
    show_ignored,
    show_metrics,
    show_title,
    show_worked_maths,
)

CONVERSATION_TOKENS = 32_768


def main() -> None:
    """Parameters, layers, state against context, formats."""
    inputs = current_inputs()
    spec, accelerator, kv_dtype = inputs.spec, inputs.offer.accelerator, inputs.scenario.kv_format
    counted, stored = count_parameters(spec), stored_bytes(spec)
    per_token = kv_bytes_per_token(spec, kv_dtype)
    tokens = min(spec.max_positions or CONVERSATION_TOKENS, CONVERSATION_TOKENS)
    conversation = sequence_bytes(spec, tokens, kv_dtype)
    kept = (
        f"{fmt.binary_bytes(per_token)} of KV per token; a conversation of {fmt.count(tokens)} tokens needs "
        f"{fmt.decimal_bytes(conversation)}"
        if spec.decoder is not None
        else "and nothing is kept between tokens: it reads a text and generates none"
    )
    show_title(
        f"{fmt.parameters(counted.total)} parameters, {kept}.",
        plain_text(f"{spec.id}, KV cache in {kv_dtype}." if spec.decoder is not None else f"{spec.id}."),
    )
    if conversation:
        _predict(spec, stored, kv_dtype)
    weights, token = (
        worked_weights(parameters=counted.total, stored_bytes=stored.stored),
        worked_token(spec, kv_dtype),
    )
    show_metrics(_metrics(counted, weights, token, per_token))
    curve = context_curve(spec, kv_dtype=kv_dtype)
    if curve.bytes[-1]:
        room = inputs.scenario.device_memory_bytes or accelerator.memory_label_bytes
        made = context_figure(curve, wall_bytes=room, wall_name=accelerator.name)
        show_chart(made, alt=context_finding(curve, spec.id), key="model-context")
    groups = layer_groups(spec)
    st.header("Layers", anchor=False)
    stacked = "; then ".join(pattern.text for pattern in stacking(spec))
    if stacked:
        st.caption(plain_text(f"As stacked: {stacked}."))
    show_chart(layers_figure(groups), alt=layers_finding(groups), key="model-blocks")
    moe = experts_of(spec)
    if moe is not None:
        st.caption(experts_finding(moe))
        show_chart(experts_figure(moe), alt=experts_finding(moe), key="model-experts")
    draw_layers(groups)
    draw_state(spec, kv_dtype)
    draw_parts(counted)
    draw_formats(inputs)
    draw_check(inputs)
    show_worked_maths(
        lambda: [weights, *token, *worked_conversation(spec, kv_dtype, tokens)], key="model-maths"
    )
    if inputs.model_note:
        st.caption(plain_text(f"Shapes: {inputs.model_note}"))
    show_data(
        lambda: [{"tokens": n, "bytes": size} for n, size in zip(curve.tokens, curve.bytes, strict=True)],
        key="model-data",
        name="ridgebeam-context",
    )
    show_ignored(
        "What an engine reserves beyond the mathematics: blocks, groups of layers, padding.",
        "Activations and buffers while a token is computed.",
    )


def _predict(spec: ModelSpec, stored: WeightBytes, kv_dtype: str) -> None:
    tokens = largest_context(spec, stored.stored, kv_dtype)
    if not tokens:
        return
    predict_first(
        key="model",
        question="After how many tokens does the cache of a single conversation weigh as much as all the weights?",
        unit="tokens",
        answer=tokens,
        reading=fmt.plural(tokens, "token"),
        arithmetic=[
            (
                f"Weights: {fmt.decimal_bytes(stored.stored)}. One conversation of {fmt.count(tokens)} tokens: "
                f"{fmt.decimal_bytes(sequence_bytes(spec, tokens, kv_dtype))}."
            )
        ],
    )


def _metrics(
    counted: ParameterCount, weights: Worked, token: tuple[Worked, ...], per_token: int
) -> list[Metric]:
    exact, summed = Provenance.EXACT, "the sum of *Parameters by part*, below"
    return [
        Metric(
            label="Parameters",
            reading=fmt.parameters(counted.total),
            help=f"{fmt.count(counted.total)}: {summed}.",
            provenance=exact,
        ),
        Metric(
            label="Active per token",
            reading=fmt.parameters(counted.active),
            help=f"{fmt.count(counted.active)}: {summed}, of routed experts those that one token visits.",
            provenance=exact,
        ),
        Metric(
            label="Weights as stored",
            reading=fmt.binary_bytes(weights.result),
            help=f"{fmt.count(weights.result)} bytes.",
            worked=weights,
            provenance=exact,
        ),
        Metric(
            label="KV per token",
            reading=fmt.binary_bytes(per_token),
            help=f"{fmt.count(per_token)} bytes"
            + ("." if len(token) == 1 else ": *State by kind of layer*, below, summed."),
            worked=token[0] if len(token) == 1 and token[0].result == per_token else None,
            provenance=exact,
        ),
    ]


main()
