"""Parts of the *Model* page: the block map's pieces, tensors by kind of layer, parameters by part, formats."""

from __future__ import annotations

import streamlit as st

from calc import format as fmt
from calc.block_map import LayerGroup
from calc.model import ModelSpec
from calc.parameters import ParameterCount
from calc.quantization import beside_as_stored, stored_bytes
from calc.result import Inputs
from calc.state_map import state_rows
from calc.weight_check import check_weights
from pages._ui import folded, show_table

COMPARED_FORMATS = ("bf16", "fp8", "int8", "int4-g128", "nvfp4", "q4_k_m")


def draw_layers(groups: tuple[LayerGroup, ...]) -> None:
    """A row for each kind of layer, with its tensors once it is opened."""
    kinds: dict[tuple[str, tuple[str, ...], int], list[LayerGroup]] = {}
    for group in groups:
        kinds.setdefault((group.stack, group.parts, group.parameters), []).append(group)
    for number, ((stack, parts, parameters), alike) in enumerate(kinds.items()):
        count = sum(group.count for group in alike)
        label = f"{count} x {', '.join(parts)} ({stack}): {fmt.parameters(parameters)} each"
        with folded(label, key=f"layers-{number}") as is_open:
            if not is_open:
                continue
            show_table(
                [
                    {
                        "tensor": w.name,
                        "shape": " x ".join(map(fmt.count, w.shape)),
                        "parameters": fmt.count(w.elements),
                        "stored": w.stored,
                    }
                    for w in alike[0].weights
                ]
            )


def draw_state(spec: ModelSpec, kv_dtype: str) -> None:
    """State by kind of layer: what grows with every token, what stops at a window, what is fixed."""
    rows = state_rows(spec, kv_dtype)
    if not rows:
        return
    with folded("State by kind of layer", key="model-state") as is_open:
        if not is_open:
            return
        show_table(
            [
                {
                    "kind": row.kind,
                    "layers": fmt.count(row.layers),
                    "bytes": f"{fmt.binary_bytes(row.bytes_each)} per {row.per}"
                    if row.bytes_each
                    else "none per token",
                    "counts at most": fmt.plural(row.window, "token") if row.window else "every token",
                    "fixed per sequence": fmt.binary_bytes(row.fixed_bytes) if row.fixed_bytes else "none",
                }
                for row in rows
            ]
        )


def draw_check(inputs: Inputs) -> None:
    """The config's stored bytes against the checkpoint's own headers, where they were read."""
    if inputs.stored_weight_bytes is None:
        return
    check = check_weights(inputs.spec, inputs.stored_weight_bytes)
    difference = f", {fmt.binary_bytes(abs(check.difference_bytes))} apart" if check.difference_bytes else ""
    st.caption(
        f"Check: the config gives {fmt.binary_bytes(check.ours_bytes)}, the checkpoint's headers say "
        f"{fmt.binary_bytes(check.headers_bytes)}{difference}: {check.why}."
    )


def draw_parts(counted: ParameterCount) -> None:
    """Parameters by part, largest first."""
    with folded("Parameters by part", key="model-parts") as is_open:
        if not is_open:
            return
        show_table(
            [
                {
                    "part": part.replace("_", " "),
                    "parameters": fmt.count(size),
                    "share": fmt.percent(share),
                }
                for part, size, share in counted.by_size
            ]
        )


def draw_formats(inputs: Inputs) -> None:
    """What the weights take in other formats, beside how they are stored."""
    with folded("Formats side by side", key="model-formats") as is_open:
        if not is_open:
            return
        now = stored_bytes(inputs.spec).stored
        rows = [{"format": "as stored", "weights": fmt.binary_bytes(now), "against now": "1x"}]
        rows += [
            {"format": name, "weights": fmt.binary_bytes(size), "against now": fmt.factor(times)}
            for name, size, times in beside_as_stored(inputs.spec, COMPARED_FORMATS)
        ]
        show_table(rows)
