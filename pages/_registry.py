"""The pages of the app, in the order of the navigation; adding one means adding its file and a line here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A page in the navigation; `parameters`: how the names of its own controls begin in a link."""

    section: str
    file: str
    title: str
    icon: str
    parameters: tuple[str, ...] = ()

    @property
    def url_path(self) -> str:
        return self.file.removesuffix(".py").replace("_", "-")


PAGES = (
    Entry(section="Plan", file="size.py", title="Size a deployment", icon=":material/straighten:"),
    Entry(
        section="Plan",
        file="compare.py",
        title="Compare GPUs",
        icon=":material/balance:",
        parameters=("compare_gpus", "baseline", "speed"),
    ),
    Entry(section="Plan", file="fleet.py", title="Fleet", icon=":material/dns:", parameters=("fleet_",)),
    Entry(
        section="Plan",
        file="simulate.py",
        title="Simulate traffic",
        icon=":material/play_circle:",
        parameters=("sim_",),
    ),
    Entry(section="Understand", file="model.py", title="Model", icon=":material/layers:"),
    Entry(section="Understand", file="memory.py", title="Memory", icon=":material/memory:"),
    Entry(section="Understand", file="roofline.py", title="Roofline", icon=":material/roofing:"),
    Entry(
        section="Understand", file="batch_size.py", title="Batch size", icon=":material/stacked_line_chart:"
    ),
    Entry(
        section="Understand",
        file="scheduler.py",
        title="Scheduler",
        icon=":material/view_timeline:",
        parameters=("sched_",),
    ),
    Entry(section="Understand", file="paged_kv.py", title="Paged KV", icon=":material/grid_view:"),
    Entry(
        section="Understand",
        file="speculative.py",
        title="Speculative decoding",
        icon=":material/fast_forward:",
        parameters=("spec_",),
    ),
    Entry(
        section="Understand",
        file="queueing.py",
        title="Queueing",
        icon=":material/hourglass:",
        parameters=("q_",),
    ),
    Entry(section="Understand", file="quantisation.py", title="Quantisation", icon=":material/compress:"),
    Entry(section="Measure", file="this_gpu.py", title="This GPU", icon=":material/speed:"),
    Entry(section="Measure", file="endpoint.py", title="An endpoint", icon=":material/network_check:"),
    Entry(section="Trust", file="accuracy.py", title="Accuracy", icon=":material/target:"),
    Entry(
        section="Trust",
        file="methods.py",
        title="Methods",
        icon=":material/function:",
        parameters=("topic",),
    ),
)
