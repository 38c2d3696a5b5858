"""A Kubernetes manifest of a plan: a Deployment of its replicas and a Service before them, for each pool, as YAML text.

Text is always quoted and escaped, so that no model name can change the structure.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import takewhile
from math import ceil
from typing import Any

from calc.engine import Engine
from calc.errors import InputError

IMAGES = {
    Engine.VLLM: "vllm/vllm-openai:v0.33.0",
    Engine.SGLANG: "lmsysorg/sglang:v0.5.23",
    Engine.TENSORRT_LLM: "nvcr.io/nvidia/tensorrt-llm/release:1.2.1",
    Engine.LLAMA_CPP: "ghcr.io/ggml-org/llama.cpp:server-cuda",
    Engine.OLLAMA: "ollama/ollama:0.20.3",
}
"""The engines' own images, of the versions whose flags `calc.memory.launch_table` lists. AMD and others need theirs."""
PORTS = {
    Engine.VLLM: 8000,
    Engine.SGLANG: 30000,
    Engine.TENSORRT_LLM: 8000,
    Engine.LLAMA_CPP: 8080,
    Engine.OLLAMA: 11434,
}
HEALTH = {Engine.OLLAMA: "/api/version"}  # the others answer at /health
RESOURCES = {"NVIDIA": "nvidia.com/gpu", "AMD": "amd.com/gpu", "Intel": "gpu.intel.com/xe"}
"""What the vendors' device plugins call one device."""
CACHE_PATH = "/root/.cache/huggingface"
"""Where Hugging Face's library keeps what it downloads when root runs it, as in these images (vLLM's documentation, Using Docker)."""
PROBE_PERIOD_S = 10
START_MARGIN = 3.0  # times the expected start before Kubernetes gives a pod up
LONGEST_NAME = 40  # of the 63 characters of a label, with room for suffixes


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """What one replica needs. `words`: the launch command; `files`: what it reads (name: text); `start_s`: until ready.

    `role`: the pool of replicas that only prefill or only decode. `not_set`: what the plan assumed and the command does not
    say; it travels as an annotation.
    """

    model_id: str
    engine: Engine
    vendor: str
    accelerator_id: str
    gpus: int
    nodes: int
    replicas: int
    words: tuple[str, ...]
    files: tuple[tuple[str, str], ...] = ()
    role: str = ""
    not_set: tuple[str, ...] = ()
    start_s: float = 300.0

    @property
    def name(self) -> str:
        """What its objects are called: the model, and the pool where there are two."""
        model = resource_name(self.model_id)
        return f"{model}-{self.role}" if self.role else model


def manifest(*pods: Pod) -> str:
    """The YAML of a Deployment and a Service for each kind of pod (and a ConfigMap where its command reads files).

    Raises `InputError` for a replica of several nodes, which a Deployment cannot start together, and for a vendor whose
    device plugin is not known.
    """
    documents = [document for pod in pods for document in _documents(pod)]
    return "---\n".join(to_yaml(document) for document in documents)


def _documents(pod: Pod) -> list[dict[str, Any]]:
    if pod.nodes > 1:
        raise InputError(
            "nodes",
            pod.nodes,
            "a Deployment starts pods one by one",
            next_step="Use LeaderWorkerSet or the engine's own operator for replicas of several nodes.",
        )
    if pod.vendor not in RESOURCES:
        raise InputError(
            "accelerator", pod.accelerator_id, f"device plugins are known of {', '.join(RESOURCES)}"
        )
    documents = [_deployment(pod), _service(pod)]
    return [_config_map(pod), *documents] if pod.files else documents


def resource_name(model_id: str) -> str:
    """A DNS label from a model id: lower case, digits and hyphens."""
    name = re.sub(r"[^a-z0-9]+", "-", model_id.rsplit("/", maxsplit=1)[-1].lower())[:LONGEST_NAME].strip("-")
    return name if name and name[0].isalpha() else f"model-{name}".strip("-")


def _config_map(pod: Pod) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{pod.name}-options"},
        "data": dict(pod.files),
    }


def _deployment(pod: Pod) -> dict[str, Any]:
    name = pod.name
    labels = {"app.kubernetes.io/name": name, "app.kubernetes.io/managed-by": "ridgebeam"}
    if pod.role:
        labels["app.kubernetes.io/component"] = pod.role
    annotations = {"ridgebeam/accelerator": pod.accelerator_id, "ridgebeam/model": pod.model_id}
    if pod.not_set:
        annotations["ridgebeam/not-set"] = " ".join(pod.not_set)
    selector = {"app.kubernetes.io/name": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": annotations,
        },
        "spec": {
            "replicas": pod.replicas,
            "selector": {"matchLabels": selector},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "template": {"metadata": {"labels": labels}, "spec": _pod_spec(pod, name)},
        },
    }


def _pod_spec(pod: Pod, name: str) -> dict[str, Any]:
    volumes: list[dict[str, Any]] = [
        {"name": "cache", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
    ]
    if pod.files:
        volumes.append({"name": "options", "configMap": {"name": f"{name}-options"}})
    return {"containers": [_container(pod)], "volumes": volumes}


def _container(pod: Pod) -> dict[str, Any]:
    port = PORTS[pod.engine]
    # Only what stands before the command: a model may be called "A=b" too.
    before = tuple(takewhile(lambda word: re.match(r"[A-Z_]+=", word), pod.words))
    variables = [word.split("=", maxsplit=1) for word in before]
    command = list(pod.words[len(before) :])
    if pod.engine in {Engine.SGLANG, Engine.TENSORRT_LLM, Engine.LLAMA_CPP}:
        command += ["--host", "0.0.0.0", "--port", str(port)]  # noqa: S104 - inside the pod; the Service is in front
    if pod.engine is Engine.OLLAMA:
        variables.append(["OLLAMA_HOST", f"0.0.0.0:{port}"])
    probe = {
        "httpGet": {"path": HEALTH.get(pod.engine, "/health"), "port": "http"},
        "periodSeconds": PROBE_PERIOD_S,
    }
    tries = max(6, ceil(START_MARGIN * pod.start_s / PROBE_PERIOD_S))
    mounts: list[dict[str, Any]] = [
        {"name": "cache", "mountPath": CACHE_PATH},
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - where NCCL and the workers talk
    ]
    if pod.files:
        mounts += [{"name": "options", "mountPath": f"/{name}", "subPath": name} for name, _ in pod.files]
        command = [f"/{word}" if word in dict(pod.files) else word for word in command]
    devices = {RESOURCES[pod.vendor]: str(pod.gpus)}
    return {
        "name": "server",
        "image": IMAGES[pod.engine],
        "command": command,
        "env": [
            {
                "name": "HF_TOKEN",
                "valueFrom": {"secretKeyRef": {"name": "hugging-face", "key": "token", "optional": True}},
            },
            *({"name": variable, "value": value} for variable, value in variables),
            *_own_address(pod),
        ],
        "ports": [{"name": "http", "containerPort": port}],
        "resources": {"limits": devices, "requests": devices},
        "startupProbe": probe | {"failureThreshold": tries},
        "readinessProbe": probe,
        "volumeMounts": mounts,
    }


def _own_address(pod: Pod) -> list[dict[str, Any]]:
    """Where the other pool of a vLLM deployment fetches caches: the pod's own address."""
    if not pod.role or pod.engine is not Engine.VLLM:
        return []
    return [{"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]


def _service(pod: Pod) -> dict[str, Any]:
    name = pod.name
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {
            "selector": {"app.kubernetes.io/name": name},
            "ports": [{"name": "http", "port": 80, "targetPort": "http"}],
        },
    }


def to_yaml(value: Any, indent: int = 0) -> str:
    """Block YAML of dictionaries, lists and scalars; keys are ours, scalars are quoted as JSON."""
    pad = " " * indent
    if isinstance(value, dict) and value:
        lines = []
        for key, entry in value.items():
            if isinstance(entry, (dict, list)) and entry:
                lines.append(f"{pad}{key}:\n{to_yaml(entry, indent + 2)}")
            else:
                lines.append(f"{pad}{key}: {_scalar(entry)}\n")
        return "".join(lines)
    if isinstance(value, list) and value:
        return "".join(_item(entry, indent) for entry in value)
    return f"{pad}{_scalar(value)}\n"


def _item(entry: Any, indent: int) -> str:
    if isinstance(entry, (dict, list)) and entry:
        block = to_yaml(entry, indent + 2)
        return f"{' ' * indent}- {block.lstrip(' ')}"
    return f"{' ' * indent}- {_scalar(entry)}\n"


def _scalar(value: Any) -> str:
    """JSON, except that YAML knows no pairs of surrogates: text beyond ASCII is escaped by code point."""
    if not isinstance(value, str):
        return json.dumps(value)
    escaped = "".join(
        character if " " <= character <= "~" else f"\\U{ord(character):08x}"
        for character in value.replace("\\", "\\\\").replace('"', '\\"')
    )
    return f'"{escaped}"'
