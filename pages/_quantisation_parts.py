"""Parts of the *Quantisation* page: the matrix of speed-ups, the error study, SmoothQuant, the uploaded tensor."""

from __future__ import annotations

import functools
from hashlib import blake2b
from typing import Any

import numpy as np
import streamlit as st

from calc import format as fmt
from calc.errors import InputError
from calc.quantization_speed import TABLED, SchemeSpeed, SpeedStudy
from calc.quantization_study import (
    MOST_STUDIED,
    SCHEMES,
    Outlier,
    SchemeError,
    SmoothingStudy,
    Studied,
    bounded,
    grain_factor,
    histogram,
    random_activations,
    random_matrix,
    smoothing_study,
    study,
)
from calc.worked.rounding import worked_losses
from pages._inputs import TTL
from pages._quantisation_figures import (
    ERROR_COLOURS,
    error_figure,
    error_finding,
    histogram_figure,
    histogram_finding,
    smoothing_figure,
    smoothing_finding,
)
from pages._ui import folded, plain_text, show_chart, show_formulas, show_row_maths
from presets.tensor_files import matrices, read_matrix, tensor_list

MAX_TENSOR_MB = 64
TOKENS = 128
MADE_UP, UPLOADED = "a random matrix", "a tensor of mine"


def speed_rows(found: SpeedStudy) -> list[dict[str, object]]:
    """The matrix as text: scheme, how it runs, speed-ups, memory."""
    return [
        {
            "scheme": one.scheme.name,
            **{f"batch {batch}": _cell(one, batch) for batch in TABLED},
            "prefill": fmt.optional(one.prefill, fmt.factor, "-"),
            "weights freed": fmt.binary_bytes(one.freed_bytes) if one.freed_bytes > 0 else "none",
            "sequences that fit": fmt.count(one.sequences) if one.support.runs else "-",
            "bits per weight": fmt.significant(one.bits_per_weight),
            "on this card": str(one.support.way) if one.scheme.kv is None else _with_cache(one),
        }
        for one in found.schemes
    ]


def _with_cache(one: SchemeSpeed) -> str:
    return "16-bit weights, smaller cache" if one.freed_bytes <= 0 else f"{one.support.way}; smaller cache"


def _cell(one: SchemeSpeed, batch: int) -> str:
    """A speed-up; with a star where so many sequences do not fit, even with the smaller weights."""
    if not one.support.runs:
        return "-"
    star = " *" if batch > one.sequences else ""
    return f"{fmt.factor(one.at(batch))}{star}"


def data_rows(found: SpeedStudy) -> list[dict[str, object]]:
    """The same in base units, to take away."""
    return [
        {
            "scheme": one.scheme.name,
            "meaning": one.scheme.meaning,
            "runs": str(one.support.way),
            "why": one.support.why,
            **{f"decode_speedup_batch_{batch}": one.at(batch) if one.decode else None for batch in TABLED},
            "prefill_speedup": one.prefill,
            "weight_bytes": one.weight_bytes,
            "freed_bytes": one.freed_bytes,
            "sequences": one.sequences,
            "bits_per_weight": one.bits_per_weight,
        }
        for one in found.schemes
    ]


def draw_not_run(found: SpeedStudy) -> None:
    """What the card or the engine does with each scheme, in words."""
    with folded("How this card and engine run each", key="quantisation-support") as is_open:
        if not is_open:
            return
        st.markdown(
            "\n".join(
                f"- **{plain_text(one.scheme.name)}** ({plain_text(one.scheme.meaning)}): "
                f"{plain_text(str(one.support.way))}; {plain_text(one.support.why)}"
                for one in found.schemes
            )
        )


# ---- the error study --------------------------------------------------------------------------------------------


@st.cache_resource(max_entries=16, ttl=TTL, show_spinner=False)
def _random_study(outlier: Outlier, factor: float, seed: int) -> tuple[Studied, tuple[SchemeError, ...]]:
    studied = random_matrix(outlier=outlier, factor=factor, seed=seed)
    return studied, study(studied)


def draw_errors() -> Studied | None:
    """The matrix, what each scheme loses on it, and the histogram of one; the matrix, for SmoothQuant."""
    st.header("What rounding loses", anchor=False)
    source = st.segmented_control(
        "Rounded is", (MADE_UP, UPLOADED), default=MADE_UP, required=True, key="quantisation-source"
    )
    made = _uploaded() if source == UPLOADED else _made_up()
    if made is None:
        return None
    studied, errors = made
    st.markdown(f"**{plain_text(_error_headline(errors))}**")
    st.caption(plain_text(f"{studied.note}. The bar joins the typical row with the worst."))
    show_chart(error_figure(errors), alt=error_finding(errors), key="quantisation-errors")
    _draw_histogram(studied)
    with folded("Every scheme in numbers", key="quantisation-numbers") as is_open:
        if is_open:
            st.dataframe(error_rows(errors), hide_index=True, key="quantisation-error-table")
            show_row_maths(
                {one.scheme.name: functools.partial(worked_losses, studied, one) for one in errors},
                key="rounding-maths",
                of="Rounded to",
            )
    bits = {"bits": 4, "scale_bits": 16, "group": 128, "zero_point_bits": 0}
    with folded(
        "Bits per weight, scales counted", icon=":material/function:", key="quantisation-bits"
    ) as is_open:
        if is_open:
            show_formulas(("bits_per_weight",), bits)
    return studied


def _error_headline(errors: tuple[SchemeError, ...]) -> str:
    """What the grain of the scale changes, from int8 and int4 of this matrix."""
    by_name = {one.scheme.name: one for one in errors}
    tensor, channel = by_name["int8, per tensor"], by_name["int8, per channel"]
    four, group = by_name["int4, per channel"], by_name["int4, per group of 128"]
    return (
        f"One int8 scale per tensor loses {fmt.factor(grain_factor(errors))} what one per channel loses on the other values "
        f"({fmt.significant(tensor.mean_absolute)} against {fmt.significant(channel.mean_absolute)}); int4 goes from "
        f"{fmt.percent(four.typical_row)} to {fmt.percent(group.typical_row)} of a row with groups of 128."
    )


def error_rows(errors: tuple[SchemeError, ...]) -> list[dict[str, object]]:
    """The study as a table."""
    return [
        {
            "scheme": one.scheme.name,
            "bits per weight": round(one.bits_per_value, 3),
            "mean error beside the outlier": float(f"{one.mean_absolute:.3g}"),
            "typical row": fmt.percent(one.typical_row),
            "worst row": fmt.percent(one.worst_row),
            "largest error, steps": float(f"{one.most_steps:.3g}"),
            "clipped": fmt.percent(one.saturated_share) if one.saturated_share else "none",
        }
        for one in errors
    ]


def _made_up() -> tuple[Studied, tuple[SchemeError, ...]]:
    left, middle, right = st.columns([2, 2, 1])
    with left:
        where = st.selectbox("Outliers in", list(Outlier), key="quantisation-outlier")
    with middle:
        factor = st.slider("Times larger", 1, 200, 50, key="quantisation-factor")
    with right:
        seed = st.number_input("Seed", 0, 10_000, 0, key="quantisation-seed")
    return _random_study(Outlier(where), float(factor), int(seed))


def _uploaded() -> tuple[Studied, tuple[SchemeError, ...]] | None:
    file = st.file_uploader(
        "A .safetensors file",
        type=["safetensors"],
        max_upload_size=MAX_TENSOR_MB,
        key="quantisation-file",
        help="Read as data: its header, then the first rows of the tensor that you choose. Nothing is kept.",
    )
    if file is None:
        st.info(
            f"Up to {MAX_TENSOR_MB} MB: one layer of a checkpoint, saved apart, is enough.",
            icon=":material/upload_file:",
        )
        return None
    found = matrices(tensor_list(file, name=file.name))
    if not found:
        raise InputError(
            "tensor file", file.name, "it must hold a matrix in F32, F16, BF16, F64, F8_E4M3 or F8_E5M2"
        )
    by_name = {tensor.name: tensor for tensor in found}
    chosen = by_name[st.selectbox("Tensor", list(by_name), key="quantisation-tensor")]
    raw = read_matrix(file, chosen, name=file.name, most_values=4 * MOST_STUDIED)
    values, cut = bounded(raw)
    shape = " x ".join(map(fmt.count, chosen.shape))
    note = f"{chosen.name}, {shape}, stored as {chosen.format}" + (f"; {cut}" if cut else "")
    studied = Studied(values=values, note=note)
    return studied, study(studied)


def _draw_histogram(studied: Studied) -> None:
    names = [scheme.name for scheme in SCHEMES]
    chosen = st.selectbox("Error histogram of", names, index=1, key="quantisation-histogram-of")
    scheme = SCHEMES[names.index(chosen)]
    spread = histogram(studied, scheme)
    show_chart(
        histogram_figure(spread, colour=ERROR_COLOURS[scheme.format]),
        alt=histogram_finding(scheme.name, spread),
        key="quantisation-histogram",
    )
    if spread.saturated_share:
        st.caption(
            f"{fmt.percent(spread.saturated_share)} of the values lie beyond the largest that their scale reaches and are "
            "clipped; they are not in the histogram."
        )


# ---- SmoothQuant ------------------------------------------------------------------------------------------------


def draw_smoothing(studied: Studied) -> None:
    """The exact rescaling: what it does to the error of an int8 product, and that it changes nothing before rounding."""
    st.header("SmoothQuant: move the outliers to where a scale can hold them", anchor=False)
    left, middle, right = st.columns(3)
    with left:
        outliers = st.slider("Outlier channels in the activations", 0, 16, 4, key="smooth-outliers")
    with middle:
        factor = st.slider("Times larger than the others", 1, 200, 60, key="smooth-factor")
    with right:
        alpha = st.slider("Exponent α", 0.0, 1.0, 0.5, 0.05, key="smooth-alpha")
    found = _smoothing(studied, outliers, float(factor), alpha)
    st.markdown(f"**{plain_text(smoothing_headline(found, alpha))}**")
    show_chart(smoothing_figure(found, alpha=alpha), alt=smoothing_finding(found), key="smooth-chart")
    peak, smoothed = max(found.activation_peaks), max(found.smoothed_peaks)
    st.caption(
        plain_text(
            f"Before rounding the rescaled product differs from the true one by {found.drift:.1e} of its size, which is what "
            f"floating point leaves of zero. The largest activation falls from {fmt.significant(peak)} to "
            f"{fmt.significant(smoothed)}. {TOKENS} made-up tokens; activations int8 per tensor, weights int8 per channel."
        )
    )


def _fingerprint(studied: Studied) -> str:
    """A matrix by all of its values: caches would tell a large one apart by a sample of them."""
    values = np.ascontiguousarray(studied.values)
    said = repr((values.shape, values.dtype.str, studied.outlier, studied.channel))
    return blake2b(values.tobytes() + said.encode()).hexdigest()


@st.cache_resource(max_entries=64, ttl=TTL, show_spinner=False, hash_funcs={Studied: _fingerprint})
def _smoothing(studied: Studied, outliers: int, factor: float, alpha: float) -> SmoothingStudy:
    """SmoothQuant on made-up activations before a matrix."""
    activations = random_activations(
        tokens=TOKENS, channels=studied.values.shape[1], outliers=outliers, factor=factor
    )
    return smoothing_study(activations=activations, weights=_own_rows(studied), alpha=alpha)


def _own_rows(studied: Studied) -> Any:
    """The matrix without its output outlier: SmoothQuant is about activations."""
    if studied.outlier is not Outlier.OUTPUT:
        return studied.values
    return studied.values[[row for row in range(len(studied.values)) if row != studied.channel]]


def smoothing_headline(found: SmoothingStudy, alpha: float) -> str:
    """The gain of the rescaling at the chosen exponent."""
    return (
        f"The int8 product is off by {fmt.percent(found.plain)} as it stands, by {fmt.percent(found.at(alpha))} after rescaling with "
        f"α = {alpha:g}; least at α = {found.best_alpha:g}."
    )
