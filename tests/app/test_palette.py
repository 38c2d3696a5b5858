"""Colours that stand side by side stay apart for every kind of colour vision, and lines stay visible in both themes.

Matrices: Machado, Oliveira and Fernandes 2009, full deficiency, on linear RGB. Distances: CIE 1976 in Lab; 10 is told apart at
a glance (just noticeable is 2.3). Where two are closer, a dash, a marker or a label must tell them apart as well.
"""

import tomllib
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest

from pages._axes import COLOURS, KINDS

VISION = {
    "usual": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
TOGETHER = {
    "memory bar": ("weights", "kv", "activations", "overhead"),
    "roofs": ("memory", "compute", "link"),
    "passes": ("decode", "prefill"),
    "verdict": ("fits", "does not fit"),
    "percentiles": ("p50", "p95", "p99"),
    "walls": ("kv wall", "compute", "target"),
    "formats": ("fp8", "int8", "int4", "fp4", "nvfp4"),
}
SRGB_TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = SRGB_TO_XYZ.sum(axis=1)


def linear(colour):
    channels = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    ratio = SRGB_TO_XYZ @ np.clip(rgb, 0, 1) / WHITE
    f = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def distance(first, second, vision):
    matrix = np.asarray(VISION[vision])
    return float(np.linalg.norm(lab(matrix @ linear(first)) - lab(matrix @ linear(second))))


def contrast(first, second):
    light, dark = sorted((linear(c) @ [0.2126, 0.7152, 0.0722] for c in (first, second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("group", TOGETHER)
def test_colours_that_stand_together_are_told_apart(group, vision):
    for first, second in combinations(TOGETHER[group], 2):
        assert distance(COLOURS[first], COLOURS[second], vision) > 10, (first, second)


@pytest.mark.parametrize("vision", VISION)
def test_neighbouring_kinds_of_layers_are_told_apart(vision):
    for first, second in pairwise(KINDS):
        assert distance(first, second, vision) > 10, (first, second)


def themes():
    with (Path(__file__).parents[2] / ".streamlit/config.toml").open("rb") as file:
        return tomllib.load(file)["theme"]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_and_links_are_readable(theme):
    chosen = themes()[theme]
    ground = chosen["backgroundColor"]
    assert contrast(chosen["textColor"], ground) >= 7
    assert contrast(chosen["linkColor"], ground) >= 4.5
    # small print is the text at six tenths over its ground
    mixed = [
        round(0.6 * int(chosen["textColor"][i : i + 2], 16) + 0.4 * int(ground[i : i + 2], 16))
        for i in (1, 3, 5)
    ]
    assert contrast("#" + "".join(f"{channel:02x}" for channel in mixed), ground) >= 4.5


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_line_colour_is_visible_on_both_grounds(theme):
    """2.2 to 1 at the least (the palest, orange and sky blue, are areas with an edge or thick lines); most reach 3."""
    ground = themes()[theme]["backgroundColor"]
    solid = {colour for colour in COLOURS.values() if colour.startswith("#")}
    ratios = sorted(contrast(colour, ground) for colour in solid)
    assert ratios[0] > 2.2
    assert sum(ratio >= 3 for ratio in ratios) >= 0.6 * len(ratios)
