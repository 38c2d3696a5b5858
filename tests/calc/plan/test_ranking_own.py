"""The answer keeps to a simple layout; what any layout gives on the same accelerator is what verb `plan` says."""

import json

import pytest

from calc.answer import answer
from calc.levers import lever_effects
from calc.plan.ranking import on_its_own_accelerator, other_layout_in_words
from calc.scenario import Scenario
from cli import main
from presets.resolve import resolve

EXPERTS = Scenario(model="Qwen/Qwen3-30B-A3B", gpu="l40s", rate_per_s=20.0, tpot_s=0.05)


def test_the_best_layout_is_the_one_of_the_command(capsys):
    result = answer(resolve(EXPERTS))
    other = on_its_own_accelerator(result)
    words = "plan Qwen/Qwen3-30B-A3B --gpu l40s --rate 20 --input 512 --output 256 --tpot 0.05 --json"
    assert main(words.split()) == 0
    first = json.loads(capsys.readouterr().out)["plans"][0]
    assert (first["gpus"], first["layout"]["label"]) == (other.gpus, other.layout.label)
    assert other.gpus < result.gpus
    said = other_layout_in_words(result, other)
    assert (
        f"{other.gpus} GPUs as {other.layout.label} in place of {result.gpus} as {result.layout.label}"
        in said
    )


@pytest.mark.parametrize(
    "scenario",
    [
        Scenario(model="Qwen/Qwen3-30B-A3B", gpu="l40s", rate_per_s=20.0, tp=4),  # a layout that was chosen
        Scenario(fidelity="textbook"),
    ],
)
def test_a_chosen_layout_and_the_textbook_are_left_as_they_are(scenario):
    assert on_its_own_accelerator(answer(resolve(scenario))) is None


def test_experts_over_the_host_are_a_lever_of_mixtures_alone():
    effects = lever_effects(answer(resolve(EXPERTS)))
    spread = [effect for effect in effects if effect.lever.change.text.startswith("experts and attention")]
    assert [effect.after.layout.label for effect in spread] == ["TP4 EP4 ADP4", "TP8 EP8 ADP8"]
    assert max(effect.gpus_saved for effect in spread) > 0
    dense = lever_effects(answer(resolve(Scenario())))
    assert not [effect for effect in dense if effect.lever.change.text.startswith("experts")]
