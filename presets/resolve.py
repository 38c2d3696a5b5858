"""From a scenario to the inputs of an answer: all reading of presets, hub, files and prices happens here."""

from __future__ import annotations

from functools import cache

from calc.accelerator import Accelerator
from calc.answer import Inputs, Offer
from calc.scenario import Scenario
from presets import accelerators, prices, sources


def resolve(scenario: Scenario, *, token: str | None = None) -> Inputs:
    """Everything that the scenario names, read: model, accelerator, price, and the priced catalogue.

    Raises SourceError where the model's source did not deliver, InputError where a name means nothing.
    """
    source = resolve_model(scenario, token=token)
    offer = offer_of(resolve_accelerator(scenario), scenario.usd_per_gpu_hour)
    return Inputs(
        scenario=scenario,
        spec=source.spec,
        offer=offer,
        model_note=source.origin,
        stored_weight_bytes=source.checkpoint.stored_bytes if source.checkpoint else None,
        warnings=source.warnings,
        catalogue=priced_catalogue(),
    )


def resolve_model(scenario: Scenario, *, token: str | None = None) -> sources.ModelSource:
    """The model that the scenario names: the pasted config if there is one, else its id or path."""
    if scenario.config_text:
        return sources.read_config_text(scenario.config_text, name=scenario.model)
    return sources.read(scenario.model, revision=scenario.revision or None, token=token)


def resolve_accelerator(scenario: Scenario) -> Accelerator:
    """The catalogue's accelerator, or the typed one that the scenario carries."""
    if scenario.gpu_json:
        return accelerators.from_json(scenario.gpu_json)
    return accelerators.load(scenario.gpu)


def offer_of(accelerator: Accelerator, own_usd_per_gpu_hour: float | None = None) -> Offer:
    """The accelerator with its price: the user's own, else the cheapest on-demand one of the dated snapshot."""
    if own_usd_per_gpu_hour is not None:
        return Offer(
            accelerator=accelerator, usd_per_gpu_hour=own_usd_per_gpu_hour, price_note="your own price"
        )
    quote = prices.cheapest_on_demand(accelerator.id)
    if quote is None:
        return Offer(accelerator=accelerator)
    return Offer(accelerator=accelerator, usd_per_gpu_hour=quote.usd_per_gpu_hour, price_note=quote.note)


@cache
def priced_catalogue() -> tuple[Offer, ...]:
    """Every accelerator that somebody lists a price for, cheapest first."""
    offers = (offer_of(accelerators.load(gpu_id)) for gpu_id in prices.priced_ids())
    return tuple(sorted(offers, key=lambda offer: offer.usd_per_gpu_hour or 0.0))
