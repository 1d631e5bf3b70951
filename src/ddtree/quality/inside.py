"""Runs inside the sandbox: a judge and, in a process of its own, the generated program.

The judge holds the problem's tests and the only way to the outside (a pipe). It forks the worker before it reads
anything, then hands it the generated program; the tests call a proxy whose arguments and results cross a pipe as
plain data. Generated code therefore shares no memory, file descriptor or argument list with the tests or the verdict:
it can end early, print what it likes or look around, but only right answers make a test pass. The judge cannot be
traced by the worker (it is not dumpable), and a killed judge is a missing verdict, never a pass.

Standard library and seal.py only; the interpreter gets both as text (`python -I -S -c`), the limits as its one
argument and the job on standard input.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
import traceback
from typing import IO, Any

from ddtree.quality.seal import PR_SET_NO_NEW_PRIVS, deny_calls, prctl, read_only

MAX_REPLY = 1 << 20  # bytes of one result
MAX_DIGITS = 100_000  # of an integer that crosses the pipe: conversion is quadratic
MAX_DETAIL = 300
PR_SET_PDEATHSIG, PR_SET_DUMPABLE = 1, 4
CONTAINERS = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}


class CandidateError(Exception):
    """The generated program raised, or answered with something that cannot cross the pipe."""


class CandidateGone(Exception):
    """The generated program's process ended."""


class Opaque:
    """Stands for a result that is not plain data (a generator, a class): equal to nothing."""


def encode(value: Any) -> Any:
    """Plain data as JSON that keeps tuples, sets, bytes and non-string keys apart."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, bytes | bytearray):
        return {"bytes": list(value)}
    if isinstance(value, dict):
        return {"dict": [[encode(k), encode(v)] for k, v in value.items()]}
    for name, kind in CONTAINERS.items():
        if isinstance(value, kind):
            return {name: [encode(v) for v in value]}
    return {"opaque": type(value).__name__}


def decode(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, body),) = value.items()
    if kind == "complex":
        return complex(*body)
    if kind == "bytes":
        return bytes(body)
    if kind == "dict":
        return {decode(k): decode(v) for k, v in body}
    if kind == "opaque":
        return Opaque()
    return CONTAINERS[kind](decode(v) for v in body)


def confine(limits: dict[str, Any]) -> None:
    if limits["uid"] is not None:  # the kernel does not count root's processes, so root cannot be limited
        os.setgroups([])
        os.setgid(limits["uid"])
        os.setuid(limits["uid"])
    prctl(PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1))
    prctl(PR_SET_DUMPABLE, ctypes.c_ulong(0))
    if limits["readable"] is not None:
        read_only(limits["readable"])
    os.environ.clear()
    sys.set_int_max_str_digits(MAX_DIGITS)
    resource.setrlimit(resource.RLIMIT_CPU, (limits["cpu_s"], limits["cpu_s"] + 1))
    for name in ("AS", "FSIZE", "NOFILE"):
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (limits[name], limits[name]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.alarm(limits["alarm_s"])  # a judge whose owner was killed ends by itself


def forbid_processes() -> None:
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))


def worker(calls: IO[str], replies: IO[str]) -> None:
    """Executes the program, then answers calls of its entry point until the judge is gone."""

    def reply(status: str, value: Any) -> None:
        replies.write(json.dumps([status, value]) + "\n")
        replies.flush()

    program, entry_point = json.loads(calls.readline())
    namespace: dict[str, Any] = {"__name__": "solution"}  # a main block of the answer is not part of the solution
    try:
        exec(compile(program, "solution.py", "exec"), namespace)
        function = namespace[entry_point]
    except BaseException as error:
        return reply("raised", f"{type(error).__name__}: {error}"[:MAX_DETAIL])
    reply("value", None)
    for line in calls:
        args, kwargs = json.loads(line)
        try:
            result = encode(function(*decode(args), **decode(kwargs)))
        except BaseException as error:
            reply("raised", f"{type(error).__name__}: {error}"[:MAX_DETAIL])
        else:
            reply("value", result)


def ask(calls: IO[str], replies: IO[str], message: Any) -> Any:
    try:
        calls.write(json.dumps(message) + "\n")
        calls.flush()
    except BrokenPipeError:
        raise CandidateGone from None
    line = replies.readline(MAX_REPLY)
    if not line:
        raise CandidateGone
    if not line.endswith("\n"):
        raise CandidateError(f"a result of more than {MAX_REPLY} bytes")
    try:
        status, value = json.loads(line)
        decoded = decode(value)
    except Exception:
        raise CandidateError("a result that cannot be read") from None
    if status == "raised":
        raise CandidateError(str(decoded))
    return decoded


def how_it_ended(worker_pid: int, cpu_s: int) -> tuple[str, str]:
    _, status, usage = os.wait4(worker_pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGXCPU or usage.ru_utime + usage.ru_stime >= cpu_s:
        return "timeout", f"used more than {cpu_s} s of processor time"
    how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return "error", f"the program ended before the tests were over ({how})"


def end(worker_pid: int) -> None:
    """Nothing of the program is left when the verdict is told."""
    try:
        os.kill(worker_pid, signal.SIGKILL)
        os.waitpid(worker_pid, 0)
    except (ProcessLookupError, ChildProcessError):
        pass


def judge(job: dict[str, str], calls: IO[str], replies: IO[str], worker_pid: int, cpu_s: int) -> tuple[str, str]:
    """Verdict (passed, failed, error or timeout) and its detail."""

    def candidate(*args: Any, **kwargs: Any) -> Any:
        return ask(calls, replies, [encode(args), encode(kwargs)])

    namespace: dict[str, Any] = {"__name__": "tests"}
    try:
        ask(calls, replies, [job["program"], job["entry_point"]])
        exec(compile(job["prompt"], "prompt.py", "exec"), namespace)  # some tests use the prompt's helpers
        namespace[job["entry_point"]] = candidate
        exec(compile(job["test"], "test.py", "exec"), namespace)
        namespace["check"](candidate)
    except AssertionError as error:
        line = traceback.extract_tb(error.__traceback__)[-1].lineno or 1
        return "failed", str(error) or job["test"].splitlines()[line - 1].strip()
    except CandidateGone:
        return how_it_ended(worker_pid, cpu_s)
    except CandidateError as error:
        return "error", str(error)
    except Exception as error:  # the test could not use the result, such as None where a number was due
        return "error", f"{type(error).__name__} in the test: {error}"
    return "passed", ""


def main() -> None:
    limits = json.loads(sys.argv[1])
    confine(limits)
    null = os.open(os.devnull, os.O_RDWR)
    calls_out, calls_in = os.pipe()
    replies_out, replies_in = os.pipe()
    worker_pid = os.fork()
    if worker_pid == 0:
        prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        for other in (calls_in, replies_out, null):
            os.close(other)
        forbid_processes()
        try:
            deny_calls()
        except OSError:  # a processor or kernel without it: only Landlock leaves anything open that it must close
            if limits["readable"] is not None:
                raise
        try:
            worker(os.fdopen(calls_out), os.fdopen(replies_in, "w"))
        finally:
            os._exit(0)
    forbid_processes()
    os.close(calls_out)
    os.close(replies_in)
    outside = os.dup(1)
    os.dup2(null, 1)
    job = json.load(sys.stdin)
    verdict, detail = judge(job, os.fdopen(calls_in, "w"), os.fdopen(replies_out), worker_pid, limits["cpu_s"])
    end(worker_pid)
    os.write(outside, json.dumps([verdict, detail[:MAX_DETAIL]]).encode())
    os._exit(0)
