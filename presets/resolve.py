"""From a scenario to the inputs of an answer: all reading of presets, hub, files and prices happens here."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from functools import cache

from calc.accelerator import Accelerator
from calc.custom_accelerator import accelerator_from_json
from calc.engine import Engine
from calc.errors import InputError
from calc.format_support import engine_support
from calc.json_text import NOT_JSON, parse_json
from calc.result import Inputs, Offer
from calc.scenario import Fidelity, Scenario
from presets import accelerators, local_device, prices, profiles, sources

READS = (
    "model", "revision", "config_text", "gpu", "gpu_json", "device_memory_bytes", "usd_per_gpu_hour", "engine",
    "engine_version", "profile", "fidelity",
)  # fmt: skip
"""Fields of a scenario that say what has to be read; all others only say what is asked about it."""


def subject(scenario: Scenario) -> Scenario:
    """The scenario with its questions at their defaults: equal ones are resolved to the same inputs, traffic apart."""
    return Scenario(**{name: getattr(scenario, name) for name in READS})


def files_written(scenario: Scenario) -> str:
    """What tells apart two states of the files of this machine that a scenario names: its model, its measured profile."""
    model = "" if scenario.config_text else sources.model_written(scenario.model)
    return model + profiles.profile_written(scenario.profile)


def resolve(scenario: Scenario, *, token: str | None = None) -> Inputs:
    """Everything that the scenario names, read: model, accelerator, price, and the catalogue to look for alternatives in.

    Raises SourceError where the model's source did not deliver, InputError where a name means nothing.
    """
    source = resolve_model(scenario, token=token)
    bare = offer_of(resolve_accelerator(scenario), scenario.usd_per_gpu_hour)
    return Inputs(
        scenario=scenario,
        spec=source.spec,
        offer=with_profile(bare, scenario, source.spec.id),
        model_note=source.origin,
        stored_weight_bytes=source.checkpoint.stored_bytes if source.checkpoint else None,
        warnings=source.warnings,
        catalogue=catalogue_for(scenario, source.spec.id),
        engine_offers=tuple(
            (engine, with_profile(bare, replace(scenario, engine=engine, engine_version=""), source.spec.id))
            for engine in Engine
            if engine != scenario.engine and engine_support(engine, bare.accelerator)
        ),
    )


def resolve_model(scenario: Scenario, *, token: str | None = None) -> sources.ModelSource:
    """The model that the scenario names: the pasted config if there is one, else its id or path."""
    if scenario.config_text:
        return sources.read_config_text(scenario.config_text, name=scenario.model)
    return sources.read(scenario.model, revision=scenario.revision or None, token=token)


def resolve_accelerator(scenario: Scenario) -> Accelerator:
    """The catalogue's accelerator, the typed one that the scenario carries, or this machine's own ("local").

    A device total that the person states takes the place of the catalogue's, everywhere.
    """
    if scenario.gpu_json:
        found = accelerator_from_json(_parsed(scenario.gpu_json))
    else:
        found = accelerator_named(scenario.gpu)
    if scenario.device_memory_bytes is None:
        return found
    total = round(scenario.device_memory_bytes)
    return replace(found, driver_memory_bytes=None, cuda_memory_bytes=(total, total), unified_shares=None)


def accelerator_named(text: str) -> Accelerator:
    """The accelerator that a person names: of the catalogue, a slice, a typed one, or this machine's own ("local")."""
    if text.strip().lower() == local_device.LOCAL:
        return local_device.local_accelerator()
    return accelerators.load(text)


def _parsed(text: str) -> object:
    try:
        return parse_json(text, finite=True)
    except NOT_JSON:
        raise InputError("gpu_json", text[:40], "it must be the JSON of a typed accelerator") from None


def offer_of(accelerator: Accelerator, own_usd_per_gpu_hour: float | None = None) -> Offer:
    """The accelerator with its price: the user's own, else the cheapest on-demand one of the dated snapshot."""
    if own_usd_per_gpu_hour is None and accelerator.id not in accelerators.all_ids():
        return Offer(accelerator=accelerator)  # typed, sliced or made up: nobody lists it
    price = prices.price_of(accelerator.id, own_usd_per_gpu_hour=own_usd_per_gpu_hour)
    if price is None:
        return Offer(accelerator=accelerator)
    return Offer(
        accelerator=accelerator,
        usd_per_gpu_hour=price.usd_per_gpu_hour,
        price_note=price.words(dt.datetime.now(tz=dt.UTC).date()),
        usd_per_gpu_hour_range=None if own_usd_per_gpu_hour is not None else prices.spread_of(accelerator.id),
    )


def with_profile(offer: Offer, scenario: Scenario, model_id: str) -> Offer:
    """The offer with what the scenario's engine reaches on it; the scenario's measured run counts for its own device."""
    version = "" if scenario.engine_version == "auto" else scenario.engine_version
    profile = profiles.load(offer.accelerator, scenario.engine, model_id=model_id, engine_version=version)
    return replace(
        offer,
        profile=profiles.with_stored_run(profile, offer.accelerator, scenario.profile, model_id=model_id),
    )


def catalogue_for(scenario: Scenario, model_id: str) -> tuple[Offer, ...]:
    """The catalogue to look for alternatives in, with profiles where the fidelity needs them (the textbook does not)."""
    if scenario.fidelity == Fidelity.TEXTBOOK:
        return catalogue()
    return tuple(with_profile(offer, scenario, model_id) for offer in catalogue())


@cache
def catalogue() -> tuple[Offer, ...]:
    """Every real accelerator of the catalogue; the textbook's made-up ones are asked for by name only."""
    made_up = accelerators.made_up_ids()
    return tuple(offer_of(a) for a in accelerators.load_all() if a.id not in made_up)
