"""Formulas of load: Little's law, and queues in closed form."""

from __future__ import annotations

from math import exp

from calc.formulas.record import Example, Formula, Symbol, in_seconds
from calc.formulas.symbols import named
from calc.queueing import closed_forms, erlang_c, tails

TOPIC = "Queueing"
STAYS = Symbol(name="time_tail", latex="P(T > t)", meaning="share of requests that stay longer than t")
LINE = "LINE queueing solver 3.0.8 (line-solver.sourceforge.net), qsys functions"


QUEUE_FORMULAS = (
    Formula(
        id="requests_in_system",
        title="Little's law",
        topic=TOPIC,
        result=Symbol(name="requests_in_system", latex="L", meaning="mean number of requests in the system"),
        template=r"${arrivals_per_s} \cdot ${time_in_system_s}",
        parameters=named("arrivals_per_s", "time_in_system_s"),
        function=closed_forms.requests_in_system,
        example=Example(
            inputs={"arrivals_per_s": 10, "time_in_system_s": 8.5},
            value=85,
            rel=1e-9,
            source="worked case little-chat",
        ),
    ),
    Formula(
        id="utilisation",
        title="Utilisation",
        topic=TOPIC,
        result=Symbol(name="utilisation", latex=r"\rho", meaning="share of time that the servers are busy"),
        template=r"\frac{${arrivals_per_s} \cdot ${service_s}}{${servers}}",
        parameters=named("arrivals_per_s", "service_s", "servers"),
        function=closed_forms.utilisation,
        example=Example(
            inputs={"arrivals_per_s": 40, "service_s": 0.02, "servers": 1},
            value=0.8,
            rel=1e-9,
            source="worked case mm1-40-50",
        ),
    ),
    Formula(
        id="mm1_mean_time_s",
        title="M/M/1: mean time in system",
        topic=TOPIC,
        result=in_seconds("mm1_mean_time_s", r"\overline{T}", "mean time in system"),
        template=r"\frac{${service_s}}{1 - ${utilisation}}",
        parameters=named("service_s", "utilisation"),
        function=closed_forms.mm1_mean_time_s,
        example=Example(
            inputs={"service_s": 0.010, "utilisation": 0.8},
            value=0.050,
            rel=1e-9,
            source="worked case mm1-80-percent",
        ),
    ),
    Formula(
        id="mm1_mean_wait_s",
        title="M/M/1: mean wait",
        topic=TOPIC,
        result=in_seconds("mm1_mean_wait_s", r"\overline{W}", "mean wait before service"),
        template=r"\frac{${utilisation} \cdot ${service_s}}{1 - ${utilisation}}",
        parameters=named("service_s", "utilisation"),
        function=closed_forms.mm1_mean_wait_s,
        example=Example(
            inputs={"service_s": 0.020, "utilisation": 0.8},
            value=0.080,
            rel=1e-9,
            source="worked case md1-half-wait",
        ),
    ),
    Formula(
        id="md1_mean_wait_s",
        title="M/D/1: mean wait",
        topic=TOPIC,
        result=in_seconds("md1_mean_wait_s", r"\overline{W}", "mean wait before service"),
        template=r"\frac{${utilisation} \cdot ${service_s}}{2 \cdot (1 - ${utilisation})}",
        parameters=named("service_s", "utilisation"),
        function=closed_forms.md1_mean_wait_s,
        example=Example(
            inputs={"service_s": 0.020, "utilisation": 0.8},
            value=0.040,
            rel=1e-9,
            source="worked case md1-half-wait",
        ),
    ),
    Formula(
        id="mm1_time_quantile_s",
        title="M/M/1: percentile of the time in system",
        topic=TOPIC,
        result=in_seconds("mm1_time_quantile_s", "T_p", "percentile of the time in system"),
        template=r"-\ln\left(1 - \frac{${percentile}}{100}\right) \cdot \frac{${service_s}}{1 - ${utilisation}}",
        parameters=named("percentile", "service_s", "utilisation"),
        function=closed_forms.mm1_time_quantile_s,
        example=Example(
            inputs={"percentile": 95, "service_s": 0.020, "utilisation": 0.8},
            value=0.29957,
            rel=1e-3,
            source="worked case mm1-40-50",
        ),
    ),
    Formula(
        id="mean_time_s",
        title="Mean time from the mean wait",
        topic=TOPIC,
        result=in_seconds("mean_time_s", r"\overline{T}", "mean time in system"),
        template=r"${mean_wait_s} + ${service_s}",
        parameters=named("mean_wait_s", "service_s"),
        function=closed_forms.mean_time_s,
        example=Example(
            inputs={"mean_wait_s": 0.040, "service_s": 0.020},
            value=0.060,
            rel=1e-9,
            source="worked case md1-half-wait: a wait of 40 ms before 20 ms of service",
        ),
    ),
    Formula(
        id="line_clears_per_s",
        title="How fast a line of waiting requests shrinks",
        topic=TOPIC,
        result=Symbol(
            name="line_clears_per_s",
            latex=r"\eta",
            meaning="requests per second by which a line shrinks",
            unit="1/second",
        ),
        template=r"\frac{${servers}}{${service_s}} - ${arrivals_per_s}",
        parameters=named("servers", "service_s", "arrivals_per_s"),
        function=tails.line_clears_per_s,
        example=Example(
            inputs={"servers": 4, "service_s": 0.020, "arrivals_per_s": 160},
            value=40.0,
            rel=1e-9,
            source="by hand: four servers of 50 a second, of which 160 are asked for",
        ),
    ),
    Formula(
        id="mmc_time_tail",
        title="M/M/c: share that stays longer",
        topic=TOPIC,
        result=STAYS,
        template=r"e^{-${t_s} / ${service_s}} + \frac{${waiting_share}}{${service_s}} \cdot "
        r"\frac{e^{-${line_clears_per_s} \cdot ${t_s}} - e^{-${t_s} / ${service_s}}}"
        r"{1 / ${service_s} - ${line_clears_per_s}}",
        parameters=named("t_s", "service_s", "waiting_share", "line_clears_per_s"),
        function=tails.mmc_time_tail,
        example=Example(
            inputs={"t_s": 1.0, "service_s": 1.0, "waiting_share": 0.1, "line_clears_per_s": 1.5},
            value=1.2 * exp(-1.0) - 0.2 * exp(-1.5),
            rel=1e-9,
            source="by hand: two servers at a quarter of their load",
        ),
    ),
    Formula(
        id="md1_time_tail",
        title="M/D/1: share that stays longer",
        topic=TOPIC,
        result=STAYS,
        template=r"1 - (1 - ${utilisation}) \sum_{0 \le j \le x} \frac{(-${utilisation} \cdot (x - j))^j}{j!} \cdot "
        r"e^{${utilisation} \cdot (x - j)} \Big|_{x = ${t_s} / ${service_s} - 1}",
        parameters=named("t_s", "utilisation", "service_s"),
        function=tails.md1_time_tail,
        example=Example(
            inputs={"t_s": 1.5, "utilisation": 0.8, "service_s": 1.0},
            value=1.0 - 0.2 * exp(0.4),
            rel=1e-9,
            source="Erlang 1909: a wait of up to one service, where the sum has one term",
        ),
    ),
    Formula(
        id="sharing_time_tail",
        title="Sharing: share that stays longer",
        topic=TOPIC,
        result=STAYS,
        template=r"2 (1 - ${utilisation}) \int_0^\pi \frac{e^{(2 \varphi - \theta) \cot \theta}}{1 + e^{\pi \cot \theta}} "
        r"\cdot \frac{\sin \theta}{D^2} \cdot e^{-D \cdot ${t_s} / ${service_s}} d\theta "
        r"\Big|_{D = \left| e^{i \theta} - \sqrt{${utilisation}} \right|^2, \varphi = \arg(e^{i \theta} - "
        r"\sqrt{${utilisation}})}",
        parameters=named("t_s", "utilisation", "service_s"),
        function=tails.sharing_time_tail,
        example=Example(
            inputs={"t_s": 0.0, "utilisation": 0.8, "service_s": 1.0},
            value=1.0,
            rel=1e-9,
            source="by hand: every request stays longer than no time",
        ),
    ),
    Formula(
        id="mm1_replicas_for",
        title="Replicas that hold a percentile",
        topic=TOPIC,
        result=Symbol(name="mm1_replicas_for", latex="n", meaning="replicas, random routing"),
        template=r"\left\lceil \frac{${arrivals_per_s}}{\frac{1}{${service_s}} + \ln\left(1 - \frac{${percentile}}"
        r"{100}\right) / ${limit_s}} \right\rceil",
        parameters=named("arrivals_per_s", "service_s", "percentile", "limit_s"),
        function=closed_forms.mm1_replicas_for,
        example=Example(
            inputs={"arrivals_per_s": 40, "service_s": 0.020, "percentile": 95, "limit_s": 0.150},
            value=2,
            rel=0.0,
            source="worked case replicas-p95-150",
        ),
    ),
    Formula(
        id="mg1_mean_wait_s",
        title="M/G/1: mean wait",
        topic=TOPIC,
        result=in_seconds("mg1_mean_wait_s", r"\overline{W}", "mean wait before service"),
        template=r"\frac{${utilisation} \cdot ${service_s}}{1 - ${utilisation}} \cdot \frac{1 + ${service_scv}}{2}",
        parameters=named("utilisation", "service_s", "service_scv"),
        function=closed_forms.mg1_mean_wait_s,
        example=Example(
            inputs={"utilisation": 0.7, "service_s": 1.0, "service_scv": 2.0},
            value=3.5,
            rel=1e-9,
            source=LINE,
        ),
    ),
    Formula(
        id="kingman_mean_wait_s",
        title="G/G/1 (Kingman): mean wait with bursts",
        topic=TOPIC,
        result=in_seconds("kingman_mean_wait_s", r"\overline{W}", "mean wait before service, approximate"),
        template=r"\frac{${utilisation} \cdot ${service_s}}{1 - ${utilisation}} \cdot "
        r"\frac{${arrival_scv} + ${service_scv}}{2}",
        parameters=named("utilisation", "service_s", "arrival_scv", "service_scv"),
        function=closed_forms.kingman_mean_wait_s,
        example=Example(
            inputs={"utilisation": 0.8, "service_s": 1.0, "arrival_scv": 1.5, "service_scv": 0.5},
            value=4.0,
            rel=1e-9,
            source=LINE,
        ),
    ),
    Formula(
        id="erlang_c",
        title="M/M/c (Erlang C): chance to wait",
        topic=TOPIC,
        result=Symbol(name="erlang_c", latex="C", meaning="chance to wait"),
        template=r"\frac{${offered_load}^{${servers}} / ${servers}!}{(1 - \frac{${offered_load}}{${servers}}) "
        r"\sum_{i=0}^{${servers} - 1} ${offered_load}^i / i! + ${offered_load}^{${servers}} / ${servers}!}",
        parameters=named("offered_load", "servers"),
        function=erlang_c,
        example=Example(
            inputs={"offered_load": 20 / 3, "servers": 8}, value=0.5326866, rel=1e-6, source=LINE
        ),
    ),
    Formula(
        id="allen_cunneen_mean_wait_s",
        title="G/G/c (Allen-Cunneen): mean wait",
        topic=TOPIC,
        result=in_seconds("allen_cunneen_mean_wait_s", r"\overline{W}", "mean wait; exact for M/M/c"),
        template=r"\frac{${waiting_share} \cdot ${service_s}}{${servers} \cdot (1 - ${utilisation})} \cdot "
        r"\frac{${arrival_scv} + ${service_scv}}{2}",
        parameters=named(
            "waiting_share", "service_s", "servers", "utilisation", "arrival_scv", "service_scv"
        ),
        function=closed_forms.allen_cunneen_mean_wait_s,
        example=Example(
            inputs={
                "waiting_share": 0.5326866,
                "service_s": 1 / 3,
                "servers": 8,
                "utilisation": 20 / 24,
                "arrival_scv": 1.0,
                "service_scv": 1.0,
            },
            value=0.13317164,
            rel=1e-6,
            source=LINE,
        ),
    ),
    Formula(
        id="sakasegawa_mean_wait_s",
        title="G/G/c (Sakasegawa): mean wait",
        topic=TOPIC,
        result=in_seconds("sakasegawa_mean_wait_s", r"\overline{W}", "mean wait, approximate"),
        template=r"\frac{${utilisation}^{\sqrt{2(${servers} + 1)} - 1} \cdot ${service_s}}{${servers} \cdot "
        r"(1 - ${utilisation})} \cdot \frac{${arrival_scv} + ${service_scv}}{2}",
        parameters=named("utilisation", "servers", "service_s", "arrival_scv", "service_scv"),
        function=closed_forms.sakasegawa_mean_wait_s,
        example=Example(
            inputs={
                "utilisation": 20 / 24,
                "servers": 8,
                "service_s": 1 / 3,
                "arrival_scv": 1.5,
                "service_scv": 2.0,
            },
            value=0.23442,
            rel=0.04,
            source="a simulated H2/H2/8 queue of these moments; the formula is approximate",
        ),
    ),
    Formula(
        id="sharing_mean_time_s",
        title="Processor sharing: mean time of a request",
        topic=TOPIC,
        result=in_seconds("sharing_mean_time_s", r"\overline{T}(x)", "mean time in system"),
        template=r"\frac{${size_s}}{1 - ${utilisation}}",
        parameters=named("size_s", "utilisation"),
        function=closed_forms.sharing_mean_time_s,
        example=Example(
            inputs={"size_s": 2.0, "utilisation": 0.7},
            value=20 / 3,
            rel=1e-9,
            source="Kleinrock 1976, Queueing Systems II, section 4.4: service time over the idle share",
        ),
    ),
    Formula(
        id="decode_balance_step_s",
        title="Continuous batching: the step that a traffic settles at",
        topic=TOPIC,
        result=in_seconds("decode_balance_step_s", r"\overline{T}", "mean step"),
        template=r"\frac{${fixed_s}}{1 - ${busy_share}}",
        parameters=named("fixed_s", "busy_share"),
        function=closed_forms.decode_balance_step_s,
        example=Example(
            inputs={"fixed_s": 7.5e-3, "busy_share": 0.51},
            value=427 / 26_971,
            rel=0.04,
            source="a simulated run of 2,000 requests: 427 s in 26,971 steps; the formula ignores fluctuation",
        ),
    ),
)
