"""Manifests read back by a YAML parser, field by field, and what a plan hands over."""

import re
from dataclasses import replace

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from calc.answer import answer
from calc.engine import Engine
from calc.errors import InputError
from calc.handover import commands_of, handover_of
from calc.manifest import PORTS, Pod, manifest, resource_name, to_yaml
from calc.scenario import Scenario
from presets.resolve import resolve

DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
POD = Pod(
    model_id="org/Model-7B",
    engine=Engine.VLLM,
    vendor="NVIDIA",
    accelerator_id="h100-sxm5-80gb",
    gpus=4,
    nodes=1,
    replicas=3,
    words=("vllm", "serve", "org/Model-7B", "--tensor-parallel-size", "4"),
    start_s=250.0,
)


def documents(text):
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


def container(text):
    return documents(text)["Deployment"]["spec"]["template"]["spec"]["containers"][0]


def test_a_deployment_by_the_kubernetes_reference():
    """apps/v1: the selector matches the pod's labels, the device limit is a whole number in text, probes name a port."""
    found = documents(manifest(POD))
    deployment, service = found["Deployment"], found["Service"]
    assert (deployment["apiVersion"], service["apiVersion"]) == ("apps/v1", "v1")
    spec = deployment["spec"]
    assert spec["replicas"] == 3
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    assert service["spec"]["selector"] == spec["selector"]["matchLabels"]
    server = container(manifest(POD))
    assert server["command"] == list(POD.words)
    assert server["resources"]["limits"] == {"nvidia.com/gpu": "4"}
    assert server["resources"]["requests"] == server["resources"]["limits"]  # devices cannot be overcommitted
    assert server["ports"] == [{"name": "http", "containerPort": 8000}]
    assert service["spec"]["ports"][0]["targetPort"] == "http"
    assert server["startupProbe"]["failureThreshold"] * server["startupProbe"]["periodSeconds"] >= 3 * 250
    volumes = {v["name"] for v in spec["template"]["spec"]["volumes"]}
    assert {mount["name"] for mount in server["volumeMounts"]} == volumes


@pytest.mark.parametrize("engine", list(Engine))
def test_every_engine_listens_where_the_service_looks(engine):
    words = ("OLLAMA_NUM_PARALLEL=4", "ollama", "serve") if engine is Engine.OLLAMA else ("server", "m")
    server = container(manifest(replace(POD, engine=engine, words=words)))
    assert server["ports"][0]["containerPort"] == PORTS[engine]
    if engine is Engine.OLLAMA:
        values = {entry["name"]: entry.get("value") for entry in server["env"]}
        assert values["OLLAMA_NUM_PARALLEL"] == "4"
        assert server["command"] == ["ollama", "serve"]
    assert ":" in server["image"]


def test_files_are_mounted_where_the_command_reads_them():
    pod = replace(
        POD,
        engine=Engine.TENSORRT_LLM,
        words=("trtllm-serve", "m", "--extra_llm_api_options", "options.yaml"),
        files=(("options.yaml", "kv_cache_config:\n  dtype: fp8\n"),),
    )
    found = documents(manifest(pod))
    assert yaml.safe_load(found["ConfigMap"]["data"]["options.yaml"]) == {"kv_cache_config": {"dtype": "fp8"}}
    server = container(manifest(pod))
    assert "/options.yaml" in server["command"]
    assert {"name": "options", "mountPath": "/options.yaml", "subPath": "options.yaml"} in server[
        "volumeMounts"
    ]


@settings(deadline=None, max_examples=40)
@given(st.text(min_size=1, max_size=120), st.integers(1, 8))
@example("LD_PRELOAD=/tmp/x.so", 1)  # a name, and no variable of the environment
def test_no_name_changes_the_structure(model_id, gpus):
    text = manifest(replace(POD, model_id=model_id, gpus=gpus, words=("vllm", "serve", model_id)))
    found = documents(text)
    assert set(found) == {"Deployment", "Service"}
    assert container(text)["command"][2] == model_id
    name = found["Deployment"]["metadata"]["name"]
    assert DNS_LABEL.fullmatch(name)
    assert len(name) <= 63


@settings(deadline=None, max_examples=25)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.from_regex(r"[a-z]{1,8}x", fullmatch=True), inner),
    )
)
def test_yaml_reads_back(value):
    assert yaml.safe_load(to_yaml(value)) == value


def test_names_are_dns_labels():
    assert resource_name("meta-llama/Llama-3.3-70B-Instruct") == "llama-3-3-70b-instruct"
    assert resource_name("01-ai/01") == "model-01"


@pytest.mark.parametrize("wrong", [{"nodes": 2}, {"vendor": "Apple"}])
def test_refusals(wrong):
    with pytest.raises(InputError):
        manifest(replace(POD, **wrong))


# ---- hand-over of a plan -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plan():
    return answer(resolve(Scenario(tpot_s=0.02, tp=2, memory_utilization=0.92)))


def test_the_plan_hands_over_what_it_assumed(plan):
    handed = handover_of(plan)
    own = handed.commands[0]
    assert own.engine is Engine.VLLM
    words = list(own.words)
    assert words[words.index("--tensor-parallel-size") + 1] == "2"
    assert words[words.index("--gpu-memory-utilization") + 1] == "0.92"
    assert plan.sequences.binding == "tpot"
    assert words[words.index("--max-num-seqs") + 1] == str(plan.sequences.batch)
    deployed = documents(handed.manifest)["Deployment"]
    assert deployed["spec"]["replicas"] == plan.fleet.replicas
    assert container(handed.manifest)["command"] == words


def test_a_layout_on_which_no_sequence_keeps_its_target_has_a_command_that_starts():
    slow = Scenario(model="deepseek-ai/DeepSeek-R1-Distill-Qwen-14B", gpu="l40s", tp=1, ttft_s=0.001)
    missed = answer(resolve(slow))
    assert missed.sequences.batch == 0
    for engine in Engine:
        assert all(not command.problems for command in commands_of(missed, engine))


def test_every_engine_gets_a_command_that_it_takes(plan):
    commands = handover_of(plan).commands
    assert {command.engine for command in commands} == set(Engine)
    assert [command.problems for command in commands] == [()] * len(commands)
    assert all(
        "0.92" not in command.text for command in commands[1:]
    )  # a share of memory means something else there


def test_formats_that_need_another_checkpoint_are_noted():
    handed = handover_of(answer(resolve(Scenario(quantization="int4-g128"))))
    assert any("checkpoint stored so" in note for note in handed.notes)


def test_what_a_command_does_not_say_is_said_beside_it():
    """Drafts: each engine's own option, and the manifest carries the sentence."""
    handed = handover_of(answer(resolve(Scenario(draft_tokens=4))))
    assert all("4 drafts a pass, 70%" in " ".join(command.not_set) for command in handed.commands)
    own = handed.commands[0]
    assert "--speculative-config" in own.not_set[0]
    assert set(own.not_set) <= set(handed.notes)
    annotations = documents(handed.manifest)["Deployment"]["metadata"]["annotations"]
    assert annotations["ridgebeam/not-set"] == own.not_set[0]


@pytest.mark.parametrize(
    ("engine", "prefill", "decode"),
    [("vllm", "kv_producer", "kv_consumer"), ("sglang", "prefill", "decode")],
)
def test_pools_are_two_commands_and_two_deployments(engine, prefill, decode):
    """vLLM 0.33's NixlConnector: producers prefill, consumers decode. SGLang 0.5.23: --disaggregation-mode."""
    result = answer(resolve(Scenario(disaggregated=True, engine=engine)))
    handed = handover_of(result)
    first, second = handed.own
    assert (first.role, second.role) == ("prefill", "decode")
    assert (first.replicas, second.replicas) == (
        result.fleet.prefill_replicas,
        result.fleet.replicas - result.fleet.prefill_replicas,
    )
    assert prefill in first.words[first.words.index(FLAG[engine]) + 1]
    assert decode in second.words[second.words.index(FLAG[engine]) + 1]
    assert first.problems == second.problems == ()
    assert any("in front of both pools" in note for note in handed.notes)
    assert not any("least outstanding" in note for note in handed.notes)
    found = [d for d in yaml.safe_load_all(handed.manifest) if d["kind"] == "Deployment"]
    assert [d["spec"]["replicas"] for d in found] == [first.replicas, second.replicas]
    names = [d["metadata"]["name"] for d in found]
    assert [name.rsplit("-", 1)[1] for name in names] == ["prefill", "decode"]
    services = [d for d in yaml.safe_load_all(handed.manifest) if d["kind"] == "Service"]
    assert [s["spec"]["selector"] for s in services] == [d["spec"]["selector"]["matchLabels"] for d in found]
    servers = [d["spec"]["template"]["spec"]["containers"][0] for d in found]
    assert [tuple(s["command"][: len(c.words)]) for s, c in zip(servers, handed.own, strict=True)] == [
        c.words for c in handed.own
    ]


FLAG = {"vllm": "--kv-transfer-config", "sglang": "--disaggregation-mode"}


def test_pools_of_an_engine_without_a_flag_for_them_have_no_manifest():
    result = answer(resolve(Scenario(disaggregated=True, engine="tensorrt-llm")))
    handed = handover_of(result)
    (own,) = handed.own
    assert any(f"{result.fleet.prefill_replicas} only prefill" in line for line in own.not_set)
    assert handed.manifest is None
    assert "no flag of this engine" in handed.manifest_why


def test_whole_prompts_and_adapters_are_flags_or_said_to_be_missing():
    """vLLM: --no-enable-chunked-prefill; SGLang's reference: a chunk of -1 disables chunking. The others say so."""
    result = answer(resolve(Scenario(chunked_prefill=False, adapters=2)))
    commands = {command.engine: command for command in handover_of(result).commands}
    assert "--no-enable-chunked-prefill" in commands[Engine.VLLM].words
    assert "--chunked-prefill-size -1" in commands[Engine.SGLANG].text
    for engine, command in commands.items():
        assert command.problems == ()
        assert len(command.not_set) == (0 if engine in (Engine.VLLM, Engine.SGLANG) else 2)


def test_a_plan_of_defaults_leaves_nothing_out(plan):
    assert all(command.not_set == () for command in handover_of(plan).commands)


def test_what_does_not_work_is_not_handed_over():
    with pytest.raises(InputError):
        handover_of(answer(resolve(Scenario(model="meta-llama/Llama-3.3-70B-Instruct", tp=1))))
