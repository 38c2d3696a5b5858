"""The points of the accuracy page: which are furthest, and which shares lie near and inside."""

from dataclasses import replace

import pytest

from presets.accuracy import Comparison, furthest, shares

POINT = Comparison(
    id="p", group="g", model="m", accelerator="a", engine="e", quantity="TPOT", unit="s", measured=1.0, low=0.9,
    best=1.0, high=1.1, evidence="", clean=True, note="", source="",
)  # fmt: skip


def predicted(best, **changed):
    return replace(POINT, id=f"{best:g}", best=best, low=best * 0.9, high=best * 1.1, **changed)


def test_a_half_is_as_far_as_a_double():
    points = [predicted(1.05), predicted(0.4), predicted(2.0), predicted(1.0)]
    assert [point.id for point in furthest(points, 2)] == ["0.4", "2"]


def test_shares_of_points():
    points = [predicted(1.05), predicted(1.15), predicted(2.0), predicted(0.5)]
    near, inside = shares(points, within=0.2)
    assert (near, inside) == (pytest.approx(0.5), pytest.approx(0.25))
