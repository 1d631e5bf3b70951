from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMPILER = Path(__file__).with_name("compile_kernels.py")
HOPPER = "90"


@pytest.mark.slow
def test_every_kernel_compiles_for_hopper_and_fits_into_registers(tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"} | {"TRITON_CACHE_DIR": str(tmp_path)}
    found = subprocess.run(
        [sys.executable, str(COMPILER), HOPPER], env=environment, capture_output=True, text=True, timeout=300
    )
    assert found.returncode == 0, found.stderr
    lines = found.stdout.split("\n")[:-1]
    assert {line.split()[0] for line in lines} == {
        *("_build", "_mask", "_walk", "_reached"),
        *("_shortlist", "_sample", "_merge", "_move"),
    }
    assert all(line.endswith("fits") for line in lines), lines
