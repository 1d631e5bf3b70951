"""Which GPUs this process may use, and which of them somebody else computes on."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass

# One line per GPU and, indented, one per MIG slice of it: "GPU 0: NVIDIA H200 (UUID: GPU-...)", "  MIG 1g.18gb ...".
LISTED = re.compile(r"^(?P<slice>\s*MIG\b.*|GPU (?P<index>\d+):.*)\(UUID: (?P<uuid>\S+)\)\s*$")


@dataclass(frozen=True)
class Gpu:
    """A GPU or MIG slice as CUDA_VISIBLE_DEVICES takes it (`device`), and by the name that every process of the host
    agrees on (`identity`): an index means another GPU in each of two batch jobs that see only their own ones."""

    device: str
    identity: str

    @property
    def is_slice(self) -> bool:
        return self.identity.startswith("MIG-")


def nvidia_smi(*arguments: str) -> list[str]:
    """Lines of its answer; none without a driver."""
    try:
        out = subprocess.run(["nvidia-smi", *arguments], capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return out.splitlines()


def _installed() -> list[tuple[str, str, list[str]]]:
    """(index, UUID, UUIDs of its MIG slices) of each GPU."""
    found: list[tuple[str, str, list[str]]] = []
    for line in nvidia_smi("-L"):
        if match := LISTED.match(line):
            if match["index"] is not None:
                found.append((match["index"], match["uuid"], []))
            elif found:
                found[-1][2].append(match["uuid"])
    return found


def visible() -> list[Gpu]:
    """Those that a scheduler or the user granted in CUDA_VISIBLE_DEVICES, else all of the machine; a GPU that is cut
    into MIG slices counts as its slices.

    Read as CUDA reads it: indices, UUIDs or unique beginnings of them, up to the first entry that is none.
    """
    installed = _installed()
    granted = os.environ.get("CUDA_VISIBLE_DEVICES")
    if granted is None:
        return [gpu for index, uuid, slices in installed for gpu in _whole(index, uuid, slices)]
    by_index = {index: uuid for index, uuid, _ in installed}
    uuids = [name for _, uuid, slices in installed for name in (uuid, *slices)]
    gpus: list[Gpu] = []
    for entry in (text.strip() for text in granted.split(",")):
        if entry.isdigit():
            gpus.append(Gpu(entry, by_index.get(entry, entry)))
        elif entry.startswith(("GPU-", "MIG-")):
            known = [uuid for uuid in uuids if uuid.startswith(entry)]
            gpus.append(Gpu(entry, known[0] if len(known) == 1 else entry))
        else:
            break
    return list({gpu.identity: gpu for gpu in gpus}.values())


def _whole(index: str, uuid: str, slices: list[str]) -> list[Gpu]:
    return [Gpu(each, each) for each in slices] or [Gpu(index, uuid)]


def occupants() -> dict[str, list[int]]:
    """Pids that compute on each GPU, by UUID. Processes on MIG slices count for the GPU alone, not for a slice: a
    slice is its holder's own."""
    found: dict[str, list[int]] = {}
    for line in nvidia_smi("--query-compute-apps=gpu_uuid,pid", "--format=csv,noheader,nounits"):
        uuid, _, pid = (field.strip() for field in line.partition(","))
        if pid.isdigit():
            found.setdefault(uuid, []).append(int(pid))
    return found


def choose(free: list[int], count: int, total: int) -> list[int]:
    """`count` of the positions `free` in a machine of `total` GPUs: an aligned block if there is one, and of those the
    one in the fullest surroundings, so that neighbours stay together (one socket, one switch) and gaps stay wide."""

    def free_around(block: range) -> int:
        begin = block.start - block.start % (2 * count)
        return sum(begin <= position < begin + 2 * count for position in free)

    blocks = [range(start, start + count) for start in range(0, total - count + 1, count)]
    whole = [block for block in blocks if set(block) <= set(free)]
    return list(sorted(whole, key=free_around)[0]) if whole else free[:count]
