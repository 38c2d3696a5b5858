"""How one replica is spread over GPUs: `Layout`."""

from __future__ import annotations

from dataclasses import dataclass

from calc.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Degrees of parallelism of one replica, and how many replicas there are.

    tp: tensor parallel; pp: pipeline stages; dp: data-parallel engines behind one front; ep: expert-parallel group
    (0: experts follow tp); attention_dp: ranks that hold whole attention while experts are shared.
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 0
    attention_dp: int = 1
    nodes: int = 1
    replicas: int = 1

    def __post_init__(self) -> None:
        for name in ("tp", "pp", "dp", "attention_dp", "nodes", "replicas"):
            value = getattr(self, name)
            if not isinstance(value, int) or not 1 <= value <= 100_000:
                raise InputError(name, value, "it must be a whole number from 1 to 100,000")
        if not isinstance(self.ep, int) or self.ep < 0:
            raise InputError("ep", self.ep, "it must be 0 (experts follow tp) or a whole number")
        if self.attention_dp > 1 and self.tp % self.attention_dp and self.attention_dp % self.tp:
            raise InputError("attention_dp", self.attention_dp, f"it must divide tp ({self.tp})")

    @property
    def attention_tp(self) -> int:
        """GPUs that share the heads of one attention layer."""
        return max(1, self.tp // self.attention_dp)

    @property
    def attention_ranks(self) -> int:
        """Groups of GPUs in a replica that each hold whole attention, and the caches of their own sequences."""
        return self.attention_dp * self.dp

    def share_of_rank(self, sequences: int) -> int:
        """A replica's most sequences at once as each attention rank may take of them; at least one."""
        return max(1, sequences // self.attention_ranks)

    @property
    def schedulers(self) -> int:
        """How many step beside each other in a replica, each with its share of the cache.

        One for each attention rank, and for each micro-batch that keeps the stages of a pipeline busy.
        """
        return self.attention_ranks * self.pp

    @property
    def gpus_per_replica(self) -> int:
        return self.tp * self.pp * self.dp

    @property
    def gpus(self) -> int:
        return self.gpus_per_replica * self.replicas

    @property
    def label(self) -> str:
        """Short form for tables: "TP4", "TP8 PP2 EP8"."""
        parts = [f"TP{self.tp}"]
        parts += [f"PP{self.pp}"] if self.pp > 1 else []
        parts += [f"DP{self.dp}"] if self.dp > 1 else []
        parts += [f"EP{self.ep}"] if self.ep > 1 else []
        parts += [f"ADP{self.attention_dp}"] if self.attention_dp > 1 else []
        return " ".join(parts)
