"""Everything that the plugin takes from SGLang exists in the release, with these parameters. Read, not imported."""

import ast
import re
from pathlib import Path

import pytest
import surface

import ddtree.sglang_plugin

pytestmark = pytest.mark.sglang
PLUGIN = Path(ddtree.sglang_plugin.__file__).parent
FILES = sorted(path for path in PLUGIN.rglob("*.py") if "tree" not in path.relative_to(PLUGIN).parts)
WORKER = PLUGIN / "compat" / "v0516.py"
SRT = "sglang.srt."

# Expressions of the worker and where the attributes that it reads from them are made.
OBJECTS = {
    "batch": ["managers.schedule_batch"],
    "draft_input": ["speculative.dflash_info_v2"],
    "self.server_args": ["server_args"],
    "server_args": ["server_args"],
    "runner": [
        "model_executor.model_runner",
        "model_executor.runner.decode_cuda_graph_runner",
        "model_executor.runner.base_runner",
    ],
    "self.model_runner": ["model_executor.model_runner", "model_executor.forward_batch_info"],
    "self.draft_model_runner": ["model_executor.model_runner"],
    "target_worker.model_runner": ["model_executor.model_runner"],
    "out": ["model_executor.model_runner_components.forward_output", "model_executor.model_runner"],
    "target_out": ["managers.utils"],
    "output": ["layers.logits_processor"],
    "batch.forward_mode": ["model_executor.forward_batch_info"],
    "self.target_worker": ["managers.tp_worker"],
    "ps": ["distributed.parallel_state_wrapper"],
    "sampling": ["sampling.sampling_batch_info"],
    "graphs": ["model_executor.runner.decode_cuda_graph_runner", "model_executor.runner.base_cuda_graph_runner"],
    "runner.req_to_token_pool": ["mem_cache.memory_pool"],
    "self.model_runner.req_to_token_pool": ["mem_cache.memory_pool"],
    "pool": ["mem_cache.memory_pool"],
    "backend": ["layers.attention.hybrid_linear_attn_backend"],
    "group": ["distributed.parallel_state"],
    "shard": ["layers.vocab_parallel_embedding"],
    "args_": ["server_args"],
    "result": ["managers.io_struct"],
    "scheduler": ["managers.scheduler"],
}


def calls_of_the_algorithm(srt: Path) -> set[str]:
    """Methods of the built-in algorithms that SGLang calls on whatever algorithm is in force."""
    called = set[str]()
    for path in srt.rglob("*.py"):
        text = path.read_text(encoding="utf-8-sig")
        called |= set(re.findall(r"(?:spec_algorithm|spec_algo|algo)\s*\.(\w+)\(", text))
    built_in = surface.definition(surface.parse(srt / "speculative/spec_info.py"), "SpeculativeAlgorithm")
    return called & {x.name for x in built_in.body if isinstance(x, ast.FunctionDef)}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_imported_name_exists(path: Path, release: Path) -> None:
    for found in surface.imports(surface.parse(path)):
        assert found.name in surface.names(release, found.module), f"{path.name}: {found.module} has no {found.name}"


def test_the_algorithm_has_every_method_that_sglang_calls(release: Path) -> None:
    called = calls_of_the_algorithm(release / "srt")
    assert {"is_dflash", "need_topk", "create_future_map", "carries_draft_hidden_states"} <= called
    base = surface.definition(surface.parse(release / "srt/speculative/spec_registry.py"), "CustomSpecAlgo")
    ours = surface.definition(surface.parse(PLUGIN / "algo.py"), "DDTreeAlgorithm")
    assert called - surface.attributes(base) - surface.attributes(ours) == set()


def test_the_future_map_is_made_as_the_built_in_algorithms_make_it(release: Path) -> None:
    built_in = surface.definition(
        surface.parse(release / "srt/speculative/spec_info.py"), "SpeculativeAlgorithm.create_future_map"
    )
    ours = surface.definition(surface.parse(PLUGIN / "algo.py"), "create_future_map")
    assert isinstance(built_in, ast.FunctionDef)
    assert isinstance(ours, ast.FunctionDef)
    assert surface.parameters(ours) == surface.parameters(built_in)


@pytest.mark.parametrize(
    ("module", "function", "caller"),
    [
        ("kernels.ops.speculative.cache_locs", "assign_extend_cache_locs_func", WORKER),
        ("kernels.ops.speculative.dflash", "_prepare_dflash_draft_block_unchecked", WORKER),
        ("srt.speculative.dflash_utils", "apply_dflash_verify_logits_adjustments", WORKER),
        ("srt.speculative.dflash_utils", "build_dflash_verify_target_probs", PLUGIN / "accept.py"),
        ("srt.speculative.dflash_utils", "parse_dflash_draft_config", PLUGIN / "algo.py"),
        ("srt.speculative.dflash_utils", "resolve_block_size", PLUGIN / "algo.py"),
        ("srt.utils.hf_transformers.config", "get_config", PLUGIN / "algo.py"),
        ("srt.speculative.dflash_worker_v2", "_fill_compact_seq_lens_cpu_bound", WORKER),
        ("srt.speculative.dflash_worker_v2", "_rebuild_compact_draft_cache", WORKER),
        ("srt.speculative.dflash_worker_v2", "_append_target_hidden_to_draft_kv_by_loc", WORKER),
        ("srt.speculative.dflash_worker_v2", "_make_next_draft_input_decode", WORKER),
        ("srt.model_executor.forward_batch_info", "init_new", PLUGIN / "verify_info.py"),
        ("srt.managers.tp_worker", "TpModelWorker.forward_batch_generation", WORKER),
        ("srt.distributed.parallel_state", "all_gather_into_tensor", PLUGIN / "sampler.py"),
    ],
)
def test_calls_name_only_parameters_that_exist(module: str, function: str, caller: Path, release: Path) -> None:
    found = surface.definition(surface.parse(surface.source(release, f"sglang.{module}")), function)
    assert isinstance(found, ast.FunctionDef)
    open_ended = found.args.kwarg is not None
    here = surface.calls(surface.parse(caller), function.rpartition(".")[2])
    assert here
    for call in here:
        if ast.unparse(call.func).startswith("super()"):
            continue
        named = {keyword.arg for keyword in call.keywords if keyword.arg}
        assert open_ended or named <= set(surface.parameters(found))
        if not call.args:
            assert surface.required(found) <= named


@pytest.mark.parametrize(
    ("module", "cls", "caller"),
    [
        ("srt.model_executor.forward_batch_info", "ForwardBatch", WORKER),
        ("srt.managers.utils", "GenerationBatchResult", WORKER),
    ],
)
def test_records_are_made_of_fields_that_exist(module: str, cls: str, caller: Path, release: Path) -> None:
    made = surface.definition(surface.parse(surface.source(release, f"sglang.{module}")), cls)
    assert isinstance(made, ast.ClassDef)
    known = surface.fields(made)
    for call in surface.calls(surface.parse(caller), cls):
        named = {keyword.arg for keyword in call.keywords}
        assert named <= set(known)
        assert {name for name, needed in known.items() if needed} <= named


def test_a_verify_input_gives_the_fields_of_eagles(release: Path) -> None:
    eagle = surface.definition(surface.parse(release / "srt/speculative/eagle_info.py"), "EagleVerifyInput")
    assert isinstance(eagle, ast.ClassDef)
    known = surface.fields(eagle)
    here = surface.calls(surface.parse(PLUGIN / "verify_info.py"), "cls")
    assert len(here) == 2
    for call in here:
        named = {keyword.arg for keyword in call.keywords}
        assert {name for name, needed in known.items() if needed} <= named <= set(known)


def test_attributes_that_are_read_from_sglangs_objects_exist(release: Path) -> None:
    missing = []
    for path in FILES:
        tree = surface.parse(path)
        for expression, modules in OBJECTS.items():
            known: set[str] = set()
            for module in modules:
                try:
                    known |= surface.attributes(surface.parse(surface.source(release, SRT + module)))
                except FileNotFoundError:
                    continue
            if read := surface.uses(tree, expression):
                assert known, f"none of {modules} exists"
                missing += [f"{path.name}: {expression}.{name}" for name in read - known]
    assert missing == []


def test_what_the_worker_takes_from_itself_is_its_own_or_the_base_classes(release: Path) -> None:
    worker = surface.parse(WORKER)
    known = surface.attributes(worker)
    for name in ("dflash_worker_v2", "base_spec_worker"):
        known |= surface.attributes(surface.parse(release / f"srt/speculative/{name}.py"))
    assert surface.uses(worker, "self") - known == set()


def test_the_worker_overrides_methods_with_the_parameters_of_the_base_class(release: Path) -> None:
    theirs = surface.definition(surface.parse(release / "srt/speculative/dflash_worker_v2.py"), "DFlashWorkerV2")
    ours = surface.definition(surface.parse(WORKER), "DDTreeWorker")
    overridden = [x for x in ours.body if isinstance(x, ast.FunctionDef) and x.name in surface.attributes(theirs)]
    names = {"__init__", "init_attention_backends", "_maybe_build_draft_sampler", "forward_batch_generation"}
    assert {x.name for x in overridden} == names
    for method in overridden:
        base = surface.definition(theirs, method.name)
        assert isinstance(base, ast.FunctionDef)
        assert surface.parameters(method) == surface.parameters(base)


def test_sglangs_own_decode_step_still_does_what_ours_was_written_after(release: Path) -> None:
    """The calls of the built-in step, in order: a release that changes them needs another look at ours."""
    step = surface.definition(
        surface.parse(release / "srt/speculative/dflash_worker_v2.py"), "DFlashWorkerV2.forward_batch_generation"
    )
    seen = [ast.unparse(x.func) for x in ast.walk(step) if isinstance(x, ast.Call)]
    for name in (
        "_prepare_dflash_draft_block_unchecked", "self._compute_compact_draft_seq_lens",
        "self._rebuild_compact_draft_cache", "self.draft_model_runner.forward", "verify_input.prepare_for_verify",
        "self.target_worker.forward_batch_generation", "apply_dflash_verify_logits_adjustments", "on_publish",
        "self._append_target_hidden_to_draft_kv_by_loc", "self._make_next_draft_input_decode", "GenerationBatchResult",
    ):  # fmt: skip
        assert name in seen
