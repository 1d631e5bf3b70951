"""The plugin inside the real release, without a GPU. DDTREE_SGLANG_PYTHON is an interpreter that imports SGLang."""

import json
import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.sglang
ROOT = Path(__file__).resolve().parents[2]
TARGET = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 576, "intermediate_size": 1536,
    "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152,
    "max_position_embeddings": 8192, "tie_word_embeddings": True,
}  # fmt: skip


def test_the_plugin_works_inside_the_release(tmp_path: Path) -> None:
    """Found by its entry point, hooks take, arguments resolve, and the worker's step commits the target's tokens."""
    (tmp_path / "config.json").write_text(json.dumps(TARGET))
    done = subprocess.run(
        [
            os.environ["DDTREE_SGLANG_PYTHON"],
            str(Path(__file__).with_name("release_script.py")),
            str(tmp_path),
            str(ROOT / "assets" / "smollm2-135m-dflash"),
        ],
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    said = [line for line in done.stdout.splitlines() if line.startswith("ok ")]
    assert said == ["ok registered", "ok hooks", "ok arguments", "ok step"], done.stderr[-3000:]
