"""A run up to the compared answers, in a folder with an awkward name and with secrets in the environment."""

import json

import pytest
from workflow.small_bench import PLAN, Bench, make

from ddtree.cells import read_cell

pytestmark = pytest.mark.slow
SECRETS = {
    "HF_TOKEN": "hf_plantedHubToken0123456789",
    "OPENAI_API_KEY": "planted-api-key",
    "DATABASE_PASSWORD": "planted pass word",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Bench, str]:
    folder = tmp_path_factory.mktemp("awkward") / "mit Leerzeichen ä $HOME"
    folder.mkdir()
    bench = make(folder)
    bench.configure(PLAN | {"concurrency": [1]})
    python = folder / ".envs/embedded/bin/python"
    python.write_text(python.read_text().replace("workflow/fake_engine.py", "security/chatty_engine.py"))
    status, output = bench.run("results/small/quality/lossless.json", **SECRETS)
    assert status == 0, output
    return bench, output


def test_a_folder_with_spaces_and_umlauts_is_like_any_other(run: tuple[Bench, str]) -> None:
    bench, _ = run
    assert bench.statuses("ar") == bench.statuses("tree") == {"ok"}
    assert not bench.processes()


def test_a_secret_of_the_environment_is_in_no_file_and_in_no_output(run: tuple[Bench, str]) -> None:
    bench, output = run
    for value in SECRETS.values():
        assert value not in output
        holders = [path for path in bench.folder.rglob("*") if path.is_file() and value.encode() in path.read_bytes()]
        assert holders == []


def test_the_server_had_an_environment_to_tell_but_no_secrets(run: tuple[Bench, str]) -> None:
    bench, _ = run
    cell = read_cell(bench.folder / "results/small/cells/ar/short/c1.json")
    told = cell.effective["environment"]
    assert isinstance(told, dict)
    assert "DDTREE_NONCE" in told
    assert not SECRETS.keys() & told.keys()
    log = next(bench.folder.glob("logs/servers/small/ar-*.log")).read_text()
    assert "DDTREE_NONCE" in log


def test_settings_under_a_secret_s_name_are_not_kept(run: tuple[Bench, str]) -> None:
    bench, _ = run
    for path in (bench.folder / "results/small/cells").rglob("*.json"):
        assert json.loads(path.read_text())["effective"]["hub_token"] == "[redacted]"
