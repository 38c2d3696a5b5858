"""Flags of `ridgebeam simulate` that add to an engine's own scheduler: pools, drafts, prefixes, tiers, swap.

And the refusal of flags that a run would not look at.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from commands.arguments import not_negative, positive, refuse_alone, tokens

if TYPE_CHECKING:
    from calc.simulation.features import Features


def add_features(parser: argparse.ArgumentParser) -> None:
    """The flags, in a group of their own."""
    group = parser.add_argument_group("serving ideas (an engine that does not have one refuses it)")
    group.add_argument(
        "--prefill-replicas", type=tokens, metavar="N", help="prompts apart; --replicas then decode"
    )
    group.add_argument("--link", metavar="GB_PER_S[,LATENCY_S]", help="between the pools")
    group.add_argument("--drafts", type=tokens, metavar="K", help="speculation: tokens drafted a pass")
    group.add_argument("--acceptance", type=not_negative, default=0.7, metavar="SHARE")
    group.add_argument(
        "--draft-cost", type=not_negative, default=0.05, metavar="SHARE", help="of the target's step"
    )
    group.add_argument("--prefix-ttl", type=positive, metavar="S", help="unused cached text expires")
    group.add_argument(
        "--tier",
        action="append",
        default=[],
        metavar="GIB,GB_PER_S[,LATENCY_S]",
        help="KV memory behind the card: host, and again for an SSD",
    )
    group.add_argument("--swap", metavar="GIB,GB_PER_S", help="preempt to host memory (vllm-v0)")
    group.add_argument("--samples", type=tokens, metavar="N", help="answers to each prompt (vllm-v0)")
    group.add_argument("--beams", type=tokens, metavar="N", help="beam search of this width (vllm-v0)")
    group.add_argument(
        "--beam-dropped",
        type=not_negative,
        metavar="SHARE",
        help="chance a token that a beam is dropped and another forked (0.2)",
    )
    group.add_argument(
        "--kv-bytes-per-token", type=positive, metavar="B", help="of links and tiers; default: the model's"
    )


def refuse_unused(arguments: argparse.Namespace) -> None:
    """Flags that this run would not look at."""
    repeated = arguments.repeat > 1
    refuse_alone("--scheduler", arguments.scheduler, useful=repeated, without="--repeat 2 or more")
    refuse_alone(
        "--repeat",
        arguments.repeat if repeated else None,
        useful=not arguments.find,
        without="a load of its own (--find looks for one)",
    )
    refuse_alone("--think", arguments.think, useful=bool(arguments.concurrency), without="--users")
    refuse_alone("--gpu", arguments.gpu, useful=not arguments.step_ms, without="SOURCE in place of --step-ms")
    single = not (repeated or arguments.find)
    for flag, path in (("--csv", arguments.csv), ("--chrome-trace", arguments.chrome_trace)):
        refuse_alone(flag, path, useful=single, without="a single run (neither --repeat nor --find)")


def features_of(arguments: argparse.Namespace, kv_bytes_per_token: float) -> Features:
    """What the flags say; `kv_bytes_per_token` is the model's, 0 if there is none."""
    from calc.errors import InputError
    from calc.simulation.cluster import Router
    from calc.simulation.features import Features, link_from, tier_from
    from calc.simulation.rules import USUAL_BEAM_DROPPED

    if arguments.router not in tuple(Router):
        raise InputError("router", arguments.router, f"choose one of {', '.join(Router)}")
    if bool(arguments.prefill_replicas) != bool(arguments.link):
        raise InputError("link", arguments.link, "--prefill-replicas and --link go together")
    if arguments.beams and arguments.samples:
        raise InputError("beams", arguments.beams, "--beams and --samples exclude each other")
    if arguments.beam_dropped is not None and not arguments.beams:
        raise InputError("beam dropped", arguments.beam_dropped, "it needs --beams")
    beam_dropped = arguments.beam_dropped
    if arguments.beams and beam_dropped is None:
        beam_dropped = USUAL_BEAM_DROPPED
    link_bytes_per_s, link_latency_s = link_from("link", arguments.link) if arguments.link else (0.0, 0.0)
    return Features(
        router=Router(arguments.router),
        kv_bytes_per_token=arguments.kv_bytes_per_token or kv_bytes_per_token,
        prefill_replicas=arguments.prefill_replicas or 0,
        link_bytes_per_s=link_bytes_per_s,
        link_latency_s=link_latency_s,
        drafts=arguments.drafts or 0,
        acceptance=arguments.acceptance,
        draft_cost=arguments.draft_cost,
        prefix_ttl_s=arguments.prefix_ttl,
        tiers=tuple(tier_from("tier", one) for one in arguments.tier),
        swap=tier_from("swap", arguments.swap) if arguments.swap else None,
        beam_dropped=beam_dropped,
    )


def told_of_features(record: dict[str, Any], line: Callable[[str, dict[str, Any]], str]) -> list[str]:
    """Lines on pools, drafts, tiers and swap, where the run had them."""
    lines = []
    if record["transfer_s"]["mean"] is not None:
        lines.append(line("transfer", record["transfer_s"]))
    if record["tokens_per_pass"] > 1:
        lines.append(f"{'drafts':<12}{record['tokens_per_pass']:.3f} tokens a pass and sequence")
    if record["loaded_tokens"]:
        lines.append(f"{'tiers':<12}{record['loaded_tokens']:,} prompt tokens were loaded and not computed")
    if record["beams_dropped"]:
        lines.append(
            f"{'beams':<12}{record['beams_dropped']:,} dropped for forks, {record['beam_copies']:,} blocks copied on write"
        )
    if record["swap_outs"]:
        lines.append(f"{'swap':<12}{record['swap_outs']:,} times out and in")
    return lines
