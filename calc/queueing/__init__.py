"""Queues in closed form: what waiting costs, at once; `calc.simulation` confirms it with percentiles.

    closed_forms     Little's law, utilisation, M/M/1 and M/D/1 means that broadcast over arrays, replicas for a percentile
    single_server    MM1, MD1, MG1                   prefill one prompt at a time
    many_servers     MMc, MM1K                       replicas with one line; a bounded line
    approximations   Kingman, AllenCunneen, Sakasegawa    bursts
    sharing          LoadDependentSharing            continuous batching, end to end
    decode_load      decode_load, affine_decode_load     the running batch under a traffic
    bulk             BulkService                     static batching
    tails            shares that stay longer than a time: the equations behind the percentiles
    simulated        simulate_line, simulate_sharing     dots beside the curves

Every queue says when it holds, and is `stable`, `near saturation` or `saturated`; a saturated one has infinite times.
"""

from calc.queueing.approximations import AllenCunneen, Kingman, Sakasegawa
from calc.queueing.base import Queue, TailQueue
from calc.queueing.bulk import BulkService, ServiceSpread, expected_longest, static_batch_service_s
from calc.queueing.closed_forms import (
    allen_cunneen_mean_wait_s,
    decode_balance_step_s,
    kingman_mean_wait_s,
    md1_mean_wait_s,
    mg1_mean_wait_s,
    mm1_mean_time_s,
    mm1_mean_wait_s,
    mm1_replicas_for,
    mm1_time_quantile_s,
    requests_in_system,
    sakasegawa_mean_wait_s,
    sharing_mean_time_s,
    utilisation,
)
from calc.queueing.decode_load import (
    AffineStep,
    DecodeLoad,
    affine_decode_load,
    chunked_prefill_service_s,
    decode_load,
)
from calc.queueing.many_servers import MM1K, MMc, erlang_b, erlang_c
from calc.queueing.service import (
    ExponentialService,
    FixedService,
    GammaService,
    HyperexponentialService,
    LognormalService,
    ObservedService,
    Service,
)
from calc.queueing.sharing import LoadDependentSharing, decode_completions_per_s
from calc.queueing.simulated import MeanWithError, Simulated, batch_means, simulate_line, simulate_sharing
from calc.queueing.single_server import MD1, MG1, MM1

__all__ = [
    "MD1",
    "MG1",
    "MM1",
    "MM1K",
    "AffineStep",
    "AllenCunneen",
    "BulkService",
    "DecodeLoad",
    "ExponentialService",
    "FixedService",
    "GammaService",
    "HyperexponentialService",
    "Kingman",
    "LoadDependentSharing",
    "LognormalService",
    "MMc",
    "MeanWithError",
    "ObservedService",
    "Queue",
    "Sakasegawa",
    "Service",
    "ServiceSpread",
    "Simulated",
    "TailQueue",
    "affine_decode_load",
    "allen_cunneen_mean_wait_s",
    "batch_means",
    "chunked_prefill_service_s",
    "decode_balance_step_s",
    "decode_completions_per_s",
    "decode_load",
    "erlang_b",
    "erlang_c",
    "expected_longest",
    "kingman_mean_wait_s",
    "md1_mean_wait_s",
    "mg1_mean_wait_s",
    "mm1_mean_time_s",
    "mm1_mean_wait_s",
    "mm1_replicas_for",
    "mm1_time_quantile_s",
    "requests_in_system",
    "sakasegawa_mean_wait_s",
    "sharing_mean_time_s",
    "simulate_line",
    "simulate_sharing",
    "static_batch_service_s",
    "utilisation",
]
