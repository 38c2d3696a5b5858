"""Options of `ridgebeam plan` that say what is searched and what a plan must keep to, and the question they make."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from calc.errors import InputError
from calc.units import HOUR_S
from commands.arguments import inputs, not_negative, positive, scenario, tokens

if TYPE_CHECKING:
    from calc.plan.space import Question
    from calc.result import Inputs, Offer
    from calc.scenario import Scenario

ALL = "all"
SWITCHES = {"on": True, "off": False}
KILO = 1e3


def add_search(parser: argparse.ArgumentParser) -> None:
    """What is searched beside accelerators and layouts."""
    search = parser.add_argument_group("search")
    search.add_argument("--engines", nargs="+", metavar="E", help="engines to compare; default: --engine")
    search.add_argument(
        "--formats",
        nargs="+",
        metavar="Q",
        help="weight formats whose quality you accept, or `all`; default: --quantization alone",
    )
    search.add_argument(
        "--kv-formats", nargs="+", metavar="D", help="cache formats likewise; default: --kv-dtype"
    )
    search.add_argument(
        "--token-budgets", nargs="+", type=tokens, metavar="N", help="token budgets of a step to try"
    )
    search.add_argument(
        "--batch-caps", nargs="+", type=tokens, metavar="N", help="most sequences at once to try"
    )
    for name, what in (
        ("chunked-prefill", "prompts in chunks beside decoding, or whole while decoding waits"),
        ("prefix-caching", "whether text that repeats is kept"),
    ):
        search.add_argument(f"--{name}", nargs="+", choices=tuple(SWITCHES), help=f"{what}; both to try both")
    search.add_argument(
        "--drafts", nargs="+", type=whole, metavar="K", help="speculative draft lengths to try, 0: none"
    )
    search.add_argument(
        "--pools", action="store_true", help="also try prefill and decode on replicas of their own"
    )
    search.add_argument("--acceptance", type=not_negative, default=0.7, help="chance that a draft is kept")
    search.add_argument("--largest-replica", type=tokens, default=64, metavar="N", help="GPUs of one replica")
    search.add_argument(
        "--objective", choices=("cost", "gpus", "energy", "throughput"), default="cost", help="what is best"
    )


def add_limits(parser: argparse.ArgumentParser) -> None:
    """What a plan may use and must survive."""
    limits = parser.add_argument_group("limits")
    limits.add_argument("--budget", type=positive, metavar="USD", help="per hour, at most")
    limits.add_argument("--power-kw", type=positive, metavar="KW", help="of all accelerators at their limit")
    limits.add_argument("--most-gpus", type=tokens, metavar="N", help="devices in all")
    limits.add_argument(
        "--available", nargs="+", type=pair, metavar="GPU=N", default=(), help="at most N of a kind"
    )
    limits.add_argument(
        "--price", nargs="+", type=pair, metavar="GPU=USD", default=(), help="your price of a GPU-hour"
    )
    limits.add_argument(
        "--spare", choices=("none", "replica", "node"), default="none", help="what may fail at peak"
    )
    limits.add_argument(
        "--whole-nodes",
        action="store_true",
        help="accelerators are bought in whole hosts, which replicas fill",
    )
    limits.add_argument("--peak-factor", type=positive, default=1.0, help="peak over the stated rate")
    limits.add_argument(
        "--target-utilization", type=positive, metavar="U", help="busy share at peak, in place of --headroom"
    )
    limits.add_argument(
        "--deadline-h",
        type=positive,
        metavar="H",
        help="a job: --rate is then a count of documents to be done in so many hours",
    )


def whole(text: str) -> int:
    value = not_negative(text)
    if value != int(value):
        raise argparse.ArgumentTypeError(f"{text} must be a whole number")
    return int(value)


def pair(text: str) -> tuple[str, float]:
    """An accelerator and a number, written GPU=NUMBER."""
    name, _, number = text.partition("=")
    if not name or not number:
        raise argparse.ArgumentTypeError(f"{text!r} must be written GPU=NUMBER")
    return name, not_negative(number)


def _with_plan_options(arguments: argparse.Namespace, given: Scenario) -> Scenario:
    """The scenario with the options that only plans have."""
    headroom = given.headroom
    if arguments.target_utilization is not None:
        if arguments.target_utilization > 1:
            raise InputError("target_utilization", arguments.target_utilization, "it is a share, from 0 to 1")
        headroom = 1.0 / arguments.target_utilization - 1.0
    changed = replace(
        given, headroom=headroom, peak_factor=arguments.peak_factor, acceptance=arguments.acceptance
    )
    if arguments.deadline_h is None:
        return changed
    if arguments.concurrency is not None:
        raise InputError("deadline_h", arguments.deadline_h, "a job has --rate documents, not users who wait")
    return replace(changed, rate_per_s=arguments.rate / (arguments.deadline_h * HOUR_S))


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question, the inputs it is about, and whether accelerators were named."""

    question: Question
    named: bool


def asked(arguments: argparse.Namespace) -> Asked:
    """The question of the arguments: the accelerators named, else the whole catalogue, on every engine."""
    from presets.resolve import accelerator_named

    named = [accelerator_named(gpu) for gpu in arguments.gpu or ()]
    gpu = named[0].id if named else "a100-sxm4-80gb"
    found = inputs(arguments, gpu=gpu)
    found = replace(found, scenario=_with_plan_options(arguments, scenario(arguments, gpu=gpu)))
    return Asked(question=question_about(arguments, found, [a.id for a in named]), named=bool(named))


def question_about(arguments: argparse.Namespace, found: Inputs, named: list[str]) -> Question:
    """The question about inputs that are read already."""
    from calc.engine import engine_named
    from calc.plan.space import EVERY_KV_FORMAT, EVERY_WEIGHT_FORMAT, Limits, Objective, Spare, question_of

    engines = [str(engine_named(name)) for name in arguments.engines or (found.scenario.engine,)]
    base = question_of(found)
    return replace(
        base,
        offers={engine: _offers(arguments, found, engine, named) for engine in engines},
        weight_formats=_chosen(arguments.formats, EVERY_WEIGHT_FORMAT, base.weight_formats),
        kv_formats=_chosen(arguments.kv_formats, EVERY_KV_FORMAT, base.kv_formats),
        token_budgets=(None, *arguments.token_budgets) if arguments.token_budgets else base.token_budgets,
        batch_caps=tuple(dict.fromkeys((*base.batch_caps, *(arguments.batch_caps or ())))),
        chunked_prefill=_switches(arguments.chunked_prefill) or base.chunked_prefill,
        prefix_caching=_switches(arguments.prefix_caching) or base.prefix_caching,
        draft_tokens=tuple(arguments.drafts) if arguments.drafts else base.draft_tokens,
        pools=arguments.pools,
        largest_replica=arguments.largest_replica,
        objective=Objective(arguments.objective),
        limits=Limits(
            usd_per_hour=arguments.budget,
            power_w=None if arguments.power_kw is None else arguments.power_kw * KILO,
            gpus=arguments.most_gpus,
            available={_id(name): int(count) for name, count in arguments.available},
            spare=Spare(arguments.spare),
            whole_nodes=arguments.whole_nodes,
        ),
    )


def _chosen(given: list[str] | None, every: tuple[str, ...], base: tuple[str, ...]) -> tuple[str, ...]:
    if not given:
        return base
    return every if ALL in given else tuple(dict.fromkeys((*base, *(name.lower() for name in given))))


def _switches(given: list[str] | None) -> tuple[bool, ...]:
    return tuple(SWITCHES[word] for word in dict.fromkeys(given or ()))


def _id(name: str) -> str:
    from presets.resolve import accelerator_named

    return accelerator_named(name).id


def _offers(arguments: argparse.Namespace, found: Inputs, engine: str, named: list[str]) -> tuple[Offer, ...]:
    """The accelerators with their prices and what the engine reaches on them."""
    from presets.resolve import accelerator_named, catalogue, offer_of, with_profile

    own = {_id(name): usd for name, usd in arguments.price}
    listed = (
        catalogue()
        if not named
        else tuple(offer_of(accelerator_named(gpu), arguments.usd_per_gpu_hour) for gpu in named)
    )
    if engine == found.scenario.engine and not named and not own:
        return found.catalogue
    return tuple(
        with_profile(_priced(offer, own), replace(found.scenario, engine=engine), found.spec.id)
        for offer in listed
    )


def _priced(offer: Offer, own: dict[str, Any]) -> Offer:
    usd = own.get(offer.accelerator.id)
    return offer if usd is None else replace(offer, usd_per_gpu_hour=usd, price_note="your own price")
