"""How well layouts are ranked on groups that the fit did not see: the section "Ranking of layouts" of docs/accuracy.md.

Each (model, accelerator, engine) with four layouts or more is predicted by a fit of step times and first tokens without any
row of it. Needs the reference data; some minutes on one core. Prints the figures, worst groups first.
"""

from __future__ import annotations

import json
from collections import defaultdict

import numpy as np
from fit_first_tokens import first_token_fit, first_tokens
from fit_profiles import link_curves, spec_of
from fit_serving import Fit, rows_of

from presets import measurements
from presets.layout_ranking import LayoutRanking, Times, layout_rankings, shipped_times


def held_out_times(wanted: set[tuple[str, str, str]]) -> dict[int, Times]:
    """TTFT and TPOT of every row of the wanted groups, by fits that saw none of the group."""
    clean = [m for m in measurements.serving() if m.use == "clean"]
    fit = Fit(rows_of(clean, spec_of), link_curves())
    full = fit.solve(np.ones(len(fit.rows), bool), stride=2)
    found: dict[int, Times] = {}
    for group in sorted(wanted):
        out = np.array([row.group == group for row in fit.rows])
        constants = fit.solve(~out, start=full, stride=2, rounds=1, nfev=5)
        tpot_s = fit.settled(constants)
        ttft_s = first_tokens(fit, first_token_fit(fit, ~out))
        for index in np.flatnonzero(out):
            found[clean[index].row] = (float(ttft_s[index]), float(tpot_s[index]))
    return found


def summary(rankings: tuple[LayoutRanking, ...]) -> dict[str, object]:
    """Tau and what is kept, over groups (each its mean over limits) and over all rankings."""
    by_group: dict[str, list[LayoutRanking]] = defaultdict(list)
    for ranking in rankings:
        by_group[ranking.group].append(ranking)
    taus = {group: float(np.mean([r.tau for r in found])) for group, found in by_group.items()}
    kept = [r.kept for r in rankings]
    worst = sorted(rankings, key=lambda r: (r.kept, r.tau))[:12]
    return {
        "groups": len(by_group),
        "rankings": len(rankings),
        "tau, mean over groups": round(float(np.mean(list(taus.values()))), 3),
        "tau, median over rankings": round(float(np.median([r.tau for r in rankings])), 3),
        "groups with tau of 0.7 and more": sum(tau >= 0.7 for tau in taus.values()),
        "rankings that keep 90%": round(float(np.mean(np.array(kept) >= 0.9)), 3),
        "worst": [
            {"group": r.group, "tpot_s": r.limit_s, "tau": round(r.tau, 2), "kept": round(r.kept, 2)}
            for r in worst
        ],
    }


def main() -> None:
    shipped = shipped_times()
    in_sample = layout_rankings(shipped)
    wide = {tuple(r.group.split(", ")[:3]) for r in in_sample}
    wanted = {m.group for m in measurements.serving() if (m.checkpoint, m.accelerator, m.engine) in wide}
    apart = layout_rankings(held_out_times(wanted))
    print(json.dumps({"held out": summary(apart), "in sample": summary(in_sample)}, indent=1))


if __name__ == "__main__":
    main()
