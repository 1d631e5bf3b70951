"""Finished cells, which nothing may touch."""

from __future__ import annotations

from small_bench import Bench

from ddtree.cells import read_cell


class Ledger:
    """Every cell file seen so far, as it was when it was first seen."""

    def __init__(self, bench: Bench) -> None:
        self._root = bench.folder / "results/small/cells"
        self._seen: dict[str, tuple[int, int, bytes]] = {}

    def check(self) -> None:
        """Known cells are the very same files, new ones are sound. Raises AssertionError, or BadCell."""
        for name, before in self._seen.items():
            assert self._look(name) == before, f"{name}: a finished cell was touched"
        for path in self._root.rglob("*.json"):
            name = str(path.relative_to(self._root))
            if name not in self._seen:
                read_cell(path)
                self._seen[name] = self._look(name)

    def _look(self, name: str) -> tuple[int, int, bytes]:
        path = self._root / name
        found = path.stat()
        return found.st_ino, found.st_mtime_ns, path.read_bytes()
