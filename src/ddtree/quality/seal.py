"""Shuts a process off from files and other processes without any privilege: Landlock and a system call filter.

Part of what runs inside the sandbox, so the standard library only. Landlock (Linux 6.2 or later) leaves a few folders
readable and nothing writable; the filter denies sockets, signals to others, changes of what Landlock does not guard,
and memory that no limit counts. The filter serves the other levels as well, as a second wall.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Sequence

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446  # the same on every architecture
LANDLOCK_VERSION, LANDLOCK_PATH = 1, 1  # flag of create; rule type of add
LANDLOCK_SINCE = 3  # the version that guards truncation
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, ALL_FILE_RIGHTS = 1, 2, 4, 8, 0x7FFF
AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# Numbers on x86_64 and aarch64 (-1: does not exist there).
DENIED = {
    "socket": (41, 198), "io_uring_setup": (425, 425), "bpf": (321, 280), "perf_event_open": (298, 241),
    # Memory that no limit of a process counts and that outlives it.
    "shmget": (29, 194), "semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "pidfd_send_signal": (424, 424),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "prctl": (157, 167), "prlimit64": (302, 261), "setpriority": (141, 140), "ioprio_set": (251, 30),
    "sched_setparam": (142, 118), "sched_setscheduler": (144, 119), "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40),
    "chmod": (90, -1), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, -1), "lchown": (94, -1), "fchown": (93, 55), "fchownat": (260, 54),
    "utime": (132, -1), "utimes": (235, -1), "futimesat": (261, -1), "utimensat": (280, 88),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "removexattrat": (466, 466),
}  # fmt: skip


def system_call(number: int, *arguments: object) -> int:
    result: int = ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), f"system call {number}: {os.strerror(ctypes.get_errno())}")
    return result


def prctl(option: int, *values: object) -> None:
    padding = [ctypes.c_ulong(0)] * (4 - len(values))
    if ctypes.CDLL(None, use_errno=True).prctl(option, *values, *padding) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}): {os.strerror(ctypes.get_errno())}")


def read_only(folders: Sequence[str]) -> None:
    """From now on this process and its children can read and execute below `folders`, and nothing else.

    Raises OSError where the kernel has no Landlock or an old one.
    """
    if system_call(LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(LANDLOCK_VERSION)) < LANDLOCK_SINCE:
        raise OSError("Landlock is older than Linux 6.2")
    handled = struct.pack("Q", ALL_FILE_RIGHTS)
    rules = system_call(LANDLOCK_CREATE, handled, ctypes.c_size_t(len(handled)), ctypes.c_uint32(0))
    rights = dict.fromkeys(folders, EXECUTE | READ_FILE | READ_DIR)
    for path, right in {**rights, "/dev/null": READ_FILE | WRITE_FILE, "/dev/urandom": READ_FILE}.items():
        place = os.open(path, os.O_PATH)
        system_call(LANDLOCK_ADD, rules, LANDLOCK_PATH, struct.pack("=Qi", right, place), ctypes.c_uint32(0))
        os.close(place)
    prctl(PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1))
    system_call(LANDLOCK_RESTRICT, rules, ctypes.c_uint32(0))
    os.close(rules)


def deny_calls() -> None:
    """Every system call in DENIED fails with EPERM from now on. Raises OSError on other processors."""
    machine = platform.machine()
    if machine not in AUDIT_ARCH:
        raise OSError(f"no system call filter for {machine}; allowed: {', '.join(AUDIT_ARCH)}")
    column = list(AUDIT_ARCH).index(machine)
    numbers = [numbers[column] for numbers in DENIED.values() if numbers[column] >= 0]
    load, equal, at_least, give = 0x20, 0x15, 0x35, 0x06
    allow, refuse = 0x7FFF0000, 0x00050000 | 1  # the latter: errno EPERM
    count = len(numbers)
    program = [(load, 0, 0, 4), (equal, 0, count + 3, AUDIT_ARCH[machine])]  # another ABI is refused as a whole
    program += [(load, 0, 0, 0), (at_least, count + 1, 0, 0x40000000)]  # x32 numbers
    program += [(equal, count - i, 0, number) for i, number in enumerate(numbers)]
    program += [(give, 0, 0, allow), (give, 0, 0, refuse)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in program))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program), ctypes.addressof(code)))
    prctl(PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1))
    prctl(PR_SET_SECCOMP, ctypes.c_ulong(SECCOMP_MODE_FILTER), header)
