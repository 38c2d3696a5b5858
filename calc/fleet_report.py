"""A fleet in one sentence."""

from __future__ import annotations

from calc import format as fmt
from calc.fleet import Fleet


def fleet_headline(found: Fleet) -> str:
    """How many GPUs of which kinds serve how much, at what price; what is short comes first."""
    running = [place for place in found.placed if place.answer is not None]
    names = {a.id: a.name for p in running if p.answer for a in (p.answer.inputs.offer.accelerator,)}
    kinds = ", ".join(f"{fmt.count(count)} x {names[kind]}" for kind, count in sorted(found.gpus.items()))
    price = fmt.optional(found.usd_per_hour, lambda usd: f", {fmt.usd(usd)} an hour", ", not all priced")
    rate = fmt.plain(found.rate_per_s, "requests/s")
    whole = f"{fmt.plural(len(running), 'deployment')} with {rate} on {kinds}{price}."
    if not running:
        whole = "None of the deployments runs on what is given."
    if len(running) == len(found.placed):
        return whole if found.exact else f"{whole} The search was cut short: a cheaper mix may exist."
    left = ", ".join(place.row.name for place in found.placed if place.answer is None)
    short = f" Short of {'; '.join(found.short)}." if found.short else ""
    return f"Left out: {left}.{short} {whole}"
