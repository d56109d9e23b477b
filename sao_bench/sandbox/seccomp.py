"""A seccomp filter as a classic BPF program: what no candidate needs and much mischief does.

Denied with EPERM: new namespaces and mounts, tracing and other processes' memory, memory that no limit
sees (memfd, System V), io_uring, kernel keys, modules, clocks; sockets other than Unix and IP, or all
sockets where no network namespace protects. A foreign architecture's system calls kill the process.

The standard library alone, so that this file can be joined to programs that run without this package.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct

_NEW = {  # numbers that all architectures share
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "clone3": 435,
    "pidfd_getfd": 438,
    "mount_setattr": 442,
    "memfd_secret": 447,
}
_X86_64 = (
    "ptrace 101 process_vm_readv 310 process_vm_writev 311 memfd_create 319 shmget 29 msgget 68 semget 64 "
    "keyctl 250 add_key 248 request_key 249 bpf 321 perf_event_open 298 userfaultfd 323 mount 165 umount2 166 "
    "pivot_root 155 chroot 161 unshare 272 setns 308 open_by_handle_at 304 name_to_handle_at 303 kexec_load 246 "
    "kexec_file_load 320 init_module 175 finit_module 313 delete_module 176 swapon 167 swapoff 168 reboot 169 "
    "acct 163 syslog 103 settimeofday 164 clock_settime 227 clone 56 socket 41"
)
_AARCH64 = (
    "ptrace 117 process_vm_readv 270 process_vm_writev 271 memfd_create 279 shmget 194 msgget 186 semget 190 "
    "keyctl 219 add_key 217 request_key 218 bpf 280 perf_event_open 241 userfaultfd 282 mount 40 umount2 39 "
    "pivot_root 41 chroot 51 unshare 97 setns 268 open_by_handle_at 265 name_to_handle_at 264 kexec_load 104 "
    "kexec_file_load 294 init_module 105 finit_module 273 delete_module 106 swapon 224 swapoff 225 reboot 142 "
    "acct 89 syslog 116 settimeofday 170 clock_settime 112 clone 220 socket 198"
)


def _numbers(text: str) -> dict[str, int]:
    words = text.split()
    return _NEW | dict(zip(words[::2], map(int, words[1::2]), strict=True))


ARCHITECTURES = {
    "x86_64": (0xC000003E, _numbers(_X86_64)),
    "aarch64": (0xC00000B7, _numbers(_AARCH64)),
}
"""Machine name to (audit architecture, system call numbers)."""

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _EPERM, _ENOSYS = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026
_NR, _ARCH, _ARGUMENT_0 = 0, 4, 16
_X32_BIT = 0x40000000
_NAMESPACE_FLAGS = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET."""

_SOCKET_FAMILIES = (1, 2, 10, 16)
"""Unix, IPv4, IPv6 and netlink (which name resolution opens); others are not all namespaced."""


def program(sockets: bool) -> bytes:
    """Return the filter for this machine's architecture.

    Args:
        sockets: allow Unix and IP sockets (inside a network namespace of its own), else none.

    Raises:
        OSError: the architecture is not known.
    """
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        raise OSError(f"no seccomp filter for {machine}; known: {', '.join(ARCHITECTURES)}")
    architecture, number = ARCHITECTURES[machine]
    code = [
        (_LOAD, 0, 0, _ARCH),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NR),
        (_AT_LEAST, 0, 1, _X32_BIT),
        (_RETURN, 0, 0, _ENOSYS),
    ]
    for denied in sorted(number.keys() - {"clone", "clone3", "socket"}):
        code += [(_EQUAL, 0, 1, number[denied]), (_RETURN, 0, 0, _EPERM)]
    code += [(_EQUAL, 0, 1, number["clone3"]), (_RETURN, 0, 0, _ENOSYS)]
    code += [
        (_EQUAL, 0, 4, number["clone"]),
        (_LOAD, 0, 0, _ARGUMENT_0),
        (_ANY_BIT, 0, 1, _NAMESPACE_FLAGS),
        (_RETURN, 0, 0, _EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
    code += _socket_rules(number["socket"], sockets)
    code += [(_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def _socket_rules(number: int, allowed: bool) -> list[tuple[int, int, int, int]]:
    if not allowed:
        return [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _EPERM)]
    families = len(_SOCKET_FAMILIES)
    rules = [(_EQUAL, 0, families + 2, number), (_LOAD, 0, 0, _ARGUMENT_0)]
    rules += [(_EQUAL, families - index, 0, family) for index, family in enumerate(_SOCKET_FAMILIES)]
    return [*rules, (_RETURN, 0, 0, _EPERM)]


def install(code: bytes) -> None:
    """Put a filter on this process and its children; it needs no_new_privs before.

    Raises:
        OSError: the kernel refused it.
    """
    buffer = ctypes.create_string_buffer(code)

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]

    program = Program(len(code) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(22, ctypes.c_ulong(2), ctypes.byref(program), ctypes.c_ulong(0), ctypes.c_ulong(0)):
        number = ctypes.get_errno()
        raise OSError(number, f"seccomp: {os.strerror(number)}")
