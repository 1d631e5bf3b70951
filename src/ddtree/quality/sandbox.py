"""Runs generated programs where they can do no harm: no network, no project, few resources, one process.

Four levels, of which the first that really works here is taken:

- `bubblewrap`: `bwrap` gives a new root with the system and the interpreter read-only, its own network, process and
  IPC namespaces;
- `namespaces`: the same view built with `unshare`, `mount` and `chroot`, for machines without bubblewrap;
- `landlock`: no privilege at all: only the system and the interpreter can be read and nothing written (Landlock), and
  a system call filter denies sockets and signals; for machines where user namespaces are forbidden;
- `rlimits`: resource limits alone. The program can then reach the network and read what its user can, so this level
  is taken only when asked for by `allow_unisolated`.

At every level the generated program runs in a process that cannot start others, apart from the tests (see inside.py),
and the system call filter holds too, where it knows the processor.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

Level = Literal["bubblewrap", "namespaces", "landlock", "rlimits"]
Ending = Literal["passed", "failed", "error", "timeout"]
LEVELS: tuple[Level, ...] = ("bubblewrap", "namespaces", "landlock", "rlimits")
TOOLS = {"bubblewrap": "bwrap", "namespaces": "unshare"}
MODULES = {"ddtree": "", "ddtree.quality": ""} | {
    f"ddtree.quality.{name}": Path(__file__).with_name(f"{name}.py").read_text() for name in ("seal", "inside")
}
# The interpreter inside cannot see this package, so it gets the two modules as text.
INSIDE = f"""import sys, types
for name, text in {MODULES!r}.items():
    sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name, "exec"), sys.modules[name].__dict__)
sys.modules["ddtree.quality.inside"].main()
"""
NOBODY = 65534
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"

# Arguments: new root, size of /tmp, folder to hide (or ''), then folders to show, --, the command.
NEW_ROOT = """set -e
root=$1; size=$2; hide=$3; shift 3
mount -t tmpfs -o mode=755,size=1m tmpfs "$root"
show() { mkdir -p "$root$1"; mount --rbind "$1" "$root$1"; mount -o remount,bind,ro "$root$1"; }
while [ "$1" != -- ]; do
    if [ -L "$1" ]; then ln -s "$(readlink "$1")" "$root$1"; else show "$1"; fi
    if [ -n "$hide" ] && [ -d "$root$hide" ]; then mount -t tmpfs -o ro,size=4k tmpfs "$root$hide"; hide=; fi
    shift
done
shift
mkdir "$root/dev" "$root/tmp"
for node in null urandom; do : > "$root/dev/$node"; mount --bind "/dev/$node" "$root/dev/$node"; done
mount -t tmpfs -o "mode=1777,size=$size" tmpfs "$root/tmp"
mount -o remount,bind,ro "$root"
exec chroot "$root" "$@"
"""


class SandboxUnavailable(Exception):
    """No level works here; the message says why and what would help."""


@dataclass(frozen=True)
class Limits:
    wall_s: float = 10.0
    cpu_s: int = 5  # per process
    memory_bytes: int = 512 << 20  # address space
    file_bytes: int = 1 << 20  # of one file
    temporary_bytes: int = 16 << 20  # of the temporary folder, which lives in memory
    open_files: int = 32


@dataclass(frozen=True)
class Task:
    """`prompt` is executed beside the tests for its helpers, `program` apart from them. `test` defines `check(f)`."""

    prompt: str
    program: str
    test: str
    entry_point: str


@dataclass(frozen=True)
class Outcome:
    ending: Ending
    detail: str = ""


@dataclass(frozen=True)
class Sandbox:
    level: Level
    hidden: Path  # folder that the program must not see, the project
    limits: Limits = Limits()
    python: Path = Path(os.path.realpath(sys.executable))

    def run(self, task: Task) -> Outcome:
        """Outcome of the tests; whatever was started has ended and the temporary folder is gone on return."""
        with tempfile.TemporaryDirectory(prefix="ddtree-sandbox-", ignore_cleanup_errors=True) as folder:
            process = subprocess.Popen(
                self._command(folder),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={"PATH": PATH},
                cwd=folder,
                start_new_session=True,
            )
            try:
                out, err = process.communicate(json.dumps(vars(task)).encode(), timeout=self.limits.wall_s)
            except subprocess.TimeoutExpired:
                return Outcome("timeout", f"took more than {self.limits.wall_s:g} s")
            finally:
                _end(process)
        if not out:
            said = err.decode(errors="replace").strip().splitlines() or ["its judge was killed"]
            decisive = said[-1] if said[0].startswith("Traceback") else said[0]
            return Outcome("error", f"no verdict from the sandbox: {decisive[:300]}")
        ending, detail = json.loads(out)
        return Outcome(ending, detail.encode(errors="replace").decode())  # a program may raise half characters

    def _command(self, folder: str) -> list[str]:
        limits = {
            "uid": NOBODY if os.geteuid() == 0 else None,
            "cpu_s": self.limits.cpu_s,
            "alarm_s": int(self.limits.wall_s) + 2,
            "AS": self.limits.memory_bytes,
            "FSIZE": 0 if self.level == "rlimits" else self.limits.file_bytes,
            "NOFILE": self.limits.open_files,
            "readable": self._shown() if self.level == "landlock" else None,
        }
        inside = [str(self.python), "-I", "-S", "-c", INSIDE, json.dumps(limits)]
        if self.level == "bubblewrap":
            return [*self._bubblewrap(), *inside]
        if self.level == "namespaces":
            return [*self._namespaces(folder), *inside]
        return inside

    def _shown(self) -> list[str]:
        prefix = Path(os.path.realpath(sys.base_prefix if self.python == _current_python() else self.python.parents[1]))
        system = [path for path in SYSTEM if os.path.lexists(path)]
        return system if _within(prefix, system) else [*system, str(prefix)]

    def _bubblewrap(self) -> list[str]:
        command = ["bwrap", "--unshare-net", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--new-session"]
        command += ["--die-with-parent", "--clearenv"]
        hide = [str(self.hidden)] if _within(self.hidden, self._shown()) else []
        for path in self._shown():
            if os.path.islink(path):
                command += ["--symlink", os.readlink(path), path]
            else:
                for parent in reversed(Path(path).parents[:-1]):  # by itself bwrap makes them for the owner only
                    command += ["--perms", "0755", "--dir", str(parent)]
                command += ["--ro-bind", path, path]
            if hide and _within(self.hidden, [path]):
                command += ["--tmpfs", hide.pop()]
        command += [
            "--dev",
            "/dev",
            "--remount-ro",
            "/dev",
            "--perms",
            "1777",
            "--size",
            str(self.limits.temporary_bytes),
            "--tmpfs",
            "/tmp",
        ]
        command += ["--remount-ro", "/", "--chdir", "/tmp"]
        if os.geteuid() == 0:  # to become nobody
            command += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
        return command

    def _namespaces(self, folder: str) -> list[str]:
        command = ["unshare", "--net", "--pid", "--ipc", "--uts", "--mount", "--fork", "--kill-child"]
        drop = ["setpriv", "--no-new-privs"]
        if os.geteuid() != 0:
            command += ["--user", "--map-root-user"]
            drop += ["--bounding-set", "-all", "--inh-caps", "-all"]
        hide = str(self.hidden) if _within(self.hidden, self._shown()) else ""
        script = ["sh", "-c", NEW_ROOT, "sh", folder, str(self.limits.temporary_bytes), hide, *self._shown(), "--"]
        return [*command, *script, *drop]


def find_sandbox(
    hidden: Path, limits: Limits | None = None, allow_unisolated: bool = False, levels: Sequence[Level] = LEVELS
) -> Sandbox:
    """The strongest sandbox that passes a real trial on this machine.

    Raises SandboxUnavailable with every level's reason when none does; level `rlimits` is tried only when allowed.
    """
    reasons = []
    for level in levels:
        if level == "rlimits" and not allow_unisolated:
            continue
        sandbox = Sandbox(level, hidden.resolve(), limits or Limits())
        problem = try_out(sandbox)
        if not problem:
            return sandbox
        reasons.append(f"{level}: {problem}")
    raise SandboxUnavailable(
        f"no sandbox without network works here ({'; '.join(reasons)}); install bubblewrap and allow user namespaces"
        + ("" if allow_unisolated else ", or set allow_unisolated to run generated code with resource limits only")
    )


TRIAL = """
import os, socket, statistics
def trial(port, hidden):
    reached = []
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        reached.append("network")
    except OSError:
        pass
    try:
        if os.listdir(hidden):
            reached.append("project")
    except OSError:
        pass
    try:
        if os.fork() == 0:
            os._exit(0)
        reached.append("processes")
    except OSError:
        pass
    return reached
"""


def try_out(sandbox: Sandbox) -> str:
    """Empty if a program that tries to get out of `sandbox` cannot, else what was wrong."""
    tool = TOOLS.get(sandbox.level)
    if tool and shutil.which(tool, path=PATH) is None:
        return f"{tool} is not installed"
    allowed = {"network", "project"} if sandbox.level == "rlimits" else set()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        reached = f"set(candidate({listener.getsockname()[1]}, {str(sandbox.hidden)!r})) - {allowed!r}"
        test = f"def check(candidate):\n    out = {reached}\n    assert not out, f'not shut off: {{out}}'\n"
        return sandbox.run(Task("", TRIAL, test, "trial")).detail


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kills the whole tree; where there is a process namespace the kernel ends it with its first process."""
    try:
        tree = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    except psutil.NoSuchProcess:
        tree = []
    process.kill()
    for member in tree:
        with suppress(psutil.NoSuchProcess):
            member.kill()
    process.communicate()  # the pipes close when the judge is gone
    while any(_runs(member) for member in tree):
        time.sleep(0.005)


def _runs(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE  # the orphans are left to init
    except psutil.NoSuchProcess:
        return False


def _current_python() -> Path:
    return Path(os.path.realpath(sys.executable))


def _within(path: Path, folders: Sequence[str]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)
