"""Figures as data: ranges, where labels stand, one colour per meaning, and what the alt text claims."""

import re
from math import isclose, log10

import pytest

from calc.answer import answer
from calc.block_map import layer_groups
from calc.curves import batch_curve, context_curve, memory_bar
from calc.scenario import Scenario
from calc.sizing import Limit
from pages import _axes as axes
from pages import _charts as charts
from pages import _figures as figures
from pages._experts_figure import experts_figure, experts_finding, experts_of
from presets import models
from presets.resolve import resolve


@pytest.fixture(scope="module")
def chat():
    return answer(resolve(Scenario(kv_bytes_per_gpu=50e9, fidelity="textbook")))


def test_a_label_on_a_log_axis_stands_at_its_line():
    made = charts.lines(
        [1, 1000],
        [charts.Series(name="y", values=[1, 2])],
        xaxis=axes.logarithmic(1, 1000, "x"),
        yaxis=axes.linear(0, 3, "y"),
        vertical=[axes.Mark(at=153, text="ridge")],
    ).checked()
    (label,) = made.layout.annotations
    (line,) = made.layout.shapes
    assert isclose(label.x, log10(153))
    assert line.x0 == line.x1 == 153
    assert made.layout.xaxis.range == (0, 3)


def test_no_line_is_black():
    made = charts.lines(
        [1, 2],
        [charts.Series(name="y", values=[1, 2])],
        xaxis=axes.linear(0, 3, "x"),
        yaxis=axes.linear(0, 3, "y"),
        vertical=[axes.Mark(at=1, text="a")],
        horizontal=[axes.Mark(at=1, text="b")],
    ).checked()
    assert len(made.layout.shapes) == 2
    assert {shape.line.color for shape in made.layout.shapes} <= set(axes.COLOURS.values())


def test_tick_marks_of_a_doubling_axis_are_powers_of_two():
    axis = axes.doubling(1, 300, "batch")
    assert axis["tickvals"] == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert axes.doubling(1, 131_072, "t")["ticktext"][-1] in {"64k", "128k"}


def test_memory_bar_ends_at_the_label_and_its_wall_at_the_cache(chat):
    bar = memory_bar(chat)
    made = figures.memory_figure(chat, bar).checked()
    assert sum(trace.x[0] for trace in made.data) == pytest.approx(
        80e9 / 2**30, rel=1e-3
    )  # 26.03 + 4 + 50 GB
    wall, need = made.layout.shapes
    assert wall.x0 == pytest.approx(80e9 / 2**30, rel=1e-3)
    assert need.x0 < wall.x0
    assert "79 sequences fit" in figures.memory_finding(chat, bar)
    assert [trace.marker.color for trace in made.data] == [
        axes.COLOURS[name] for name in ("weights", "overhead", "kv")
    ]


def words(label):
    """A label without the block of its line's colour."""
    return re.sub(r"<span.*</span> ", "", label.text)


def test_batch_figure_has_both_walls_and_the_target(chat):
    made = figures.batch_figure([batch_curve(chat, "textbook")], tpot_target_s=0.050).checked()
    texts = [words(label) for label in made.layout.annotations]
    assert texts == ["KV wall 79", "weights compute-bound from 153", "target 50 ms"]
    assert made.layout.xaxis.type == "log"
    assert made.layout.xaxis.range[0] == 0
    assert "2,390 tokens/s at 79 sequences" in figures.batch_finding(batch_curve(chat, "textbook"))


def test_batch_figure_marks_the_batch_at_which_prompts_bring_tpot_to_its_target():
    """The step alone stays below the target there, so that the crossing of the two lines is not where it ends."""
    result = answer(resolve(Scenario()))
    assert result.sequences.binding is Limit.TPOT
    made = figures.batch_figure([batch_curve(result, "expected")], tpot_target_s=0.050).checked()
    texts = [words(label) for label in made.layout.annotations]
    assert f"TPOT target: {result.sequences.batch} at most" in texts


def test_context_figure_shows_where_windows_fill():
    spec = models.load("mistralai/Mistral-7B-v0.1")
    curve = context_curve(spec, kv_dtype="bf16")
    made = figures.context_figure(curve, wall_bytes=80e9, wall_name="card").checked()
    assert "32 layers full" in [words(label) for label in made.layout.annotations]
    assert "32 layers stop growing at 4,096" in figures.context_finding(curve, spec.id)
    assert made.layout.yaxis.range[1] > log10(80e9)


def test_block_map_tiles_the_layers():
    groups = layer_groups(models.load("Qwen/Qwen3-8B"))
    made = figures.layers_figure(groups).checked()
    assert sum(sum(trace.x) for trace in made.data) == 36
    assert "36 x full attention" in figures.layers_finding(groups)


def test_the_expert_grid_has_a_square_for_each():
    moe = experts_of(models.load("Qwen/Qwen3-30B-A3B"))
    made = experts_figure(moe).checked()
    assert [len(trace.x) for trace in made.data] == [
        8,
        120,
    ]  # 128 experts, 8 of them for a token: its model card
    assert "uses 8 of them" in experts_finding(moe)
    assert experts_of(models.load("Qwen/Qwen3-8B")) is None
