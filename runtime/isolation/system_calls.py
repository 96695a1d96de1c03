"""System calls by name, with their numbers on x86-64 and aarch64; -1 where a machine has none of that name.

What is in no table here, such as what later kernels bring, is refused in a sandbox.
"""

from __future__ import annotations

ALLOWED: dict[str, tuple[int, int]] = {
    "read": (0, 63), "write": (1, 64), "readv": (19, 65), "writev": (20, 66), "pread64": (17, 67),
    "pwrite64": (18, 68), "preadv": (295, 69), "pwritev": (296, 70), "lseek": (8, 62), "close": (3, 57),
    "close_range": (436, 436), "openat": (257, 56), "open": (2, -1), "fstat": (5, 80), "stat": (4, -1),
    "lstat": (6, -1), "newfstatat": (262, 79), "statx": (332, 291), "access": (21, -1), "faccessat": (269, 48),
    "faccessat2": (439, 439), "readlink": (89, -1), "readlinkat": (267, 78), "getcwd": (79, 17),
    "getdents64": (217, 61), "getdents": (78, -1), "dup": (32, 23), "dup2": (33, -1), "dup3": (292, 24),
    "pipe2": (293, 59), "pipe": (22, -1), "ftruncate": (77, 46), "fallocate": (285, 47), "fadvise64": (221, 223),
    "memfd_create": (319, 279), "statfs": (137, 43), "fstatfs": (138, 44), "fsync": (74, 82), "fdatasync": (75, 83),
    "flock": (73, 32), "mmap": (9, 222), "munmap": (11, 215), "mprotect": (10, 226), "mremap": (25, 216),
    "brk": (12, 214), "madvise": (28, 233), "msync": (26, 227), "mincore": (27, 232), "membarrier": (324, 283),
    "futex": (202, 98), "set_robust_list": (273, 99), "get_robust_list": (274, 100), "rseq": (334, 293),
    "set_tid_address": (218, 96), "arch_prctl": (158, -1), "sched_yield": (24, 124), "sched_getaffinity": (204, 123),
    "sched_getparam": (143, 121), "sched_getscheduler": (145, 120), "sched_get_priority_max": (146, 125),
    "sched_get_priority_min": (147, 126), "getcpu": (309, 168), "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "rt_sigpending": (127, 136),
    "rt_sigtimedwait": (128, 137), "rt_sigsuspend": (130, 133), "sigaltstack": (131, 132), "poll": (7, -1),
    "ppoll": (271, 73), "select": (23, -1), "pselect6": (270, 72), "epoll_create1": (291, 20),
    "epoll_ctl": (233, 21), "epoll_wait": (232, -1), "epoll_pwait": (281, 22), "eventfd2": (290, 19),
    "timerfd_create": (283, 85), "timerfd_settime": (286, 86), "sendmsg": (46, 211), "recvmsg": (47, 212),
    "getsockopt": (55, 209), "getsockname": (51, 204), "getpeername": (52, 205), "shutdown": (48, 210),
    "clock_gettime": (228, 113), "clock_getres": (229, 114), "clock_nanosleep": (230, 115), "nanosleep": (35, 101),
    "gettimeofday": (96, 169), "time": (201, -1), "times": (100, 153), "getitimer": (36, 102),
    "setitimer": (38, 103), "alarm": (37, -1), "getpid": (39, 172), "getppid": (110, 173), "gettid": (186, 178),
    "getuid": (102, 174), "geteuid": (107, 175), "getgid": (104, 176), "getegid": (108, 177),
    "getgroups": (115, 158), "getresuid": (118, 148), "getresgid": (120, 150), "getpgid": (121, 155),
    "getpgrp": (111, -1), "getsid": (124, 156), "getrusage": (98, 165), "getrlimit": (97, 163),
    "getpriority": (140, 141), "sysinfo": (99, 179), "uname": (63, 160), "umask": (95, 166), "getrandom": (318, 278),
    "exit": (60, 93), "exit_group": (231, 94), "restart_syscall": (219, 128),
}  # fmt: skip
"""What a process may do to itself, and with descriptors that it has. What files it may open Landlock says."""

LOOKED_AT: dict[str, tuple[int, int]] = {
    "vfork": (58, -1),
    "clone": (56, 220), "clone3": (435, 435), "kill": (62, 129), "tgkill": (234, 131), "prctl": (157, 167),
    "fcntl": (72, 25), "prlimit64": (302, 261), "ioctl": (16, 29), "sched_setaffinity": (203, 122),
}  # fmt: skip
"""What is allowed by its arguments (`graft.runtime.isolation.sandbox`)."""

NAMED: dict[str, tuple[int, int]] = {
    "socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201),
    "accept": (43, 202), "accept4": (288, 242), "sendto": (44, 206), "recvfrom": (45, 207), "setsockopt": (54, 208),
    "execve": (59, 221), "execveat": (322, 281), "fork": (57, -1), "ptrace": (101, 117),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424), "tkill": (200, 130), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "unlink": (87, -1), "unlinkat": (263, 35), "rename": (82, -1),
    "renameat": (264, 38), "renameat2": (316, 276), "mkdir": (83, -1), "mkdirat": (258, 34), "rmdir": (84, -1),
    "link": (86, -1), "linkat": (265, 37), "symlink": (88, -1), "symlinkat": (266, 36), "mknod": (133, -1),
    "mknodat": (259, 33), "chmod": (90, -1), "fchmod": (91, 52), "fchmodat": (268, 53), "chown": (92, -1),
    "fchown": (93, 55), "lchown": (94, -1), "fchownat": (260, 54), "truncate": (76, 45), "utime": (132, -1),
    "utimes": (235, -1), "utimensat": (280, 88), "chdir": (80, 49), "fchdir": (81, 50), "chroot": (161, 51),
    "mount": (165, 40), "umount2": (166, 39), "setns": (308, 268), "unshare": (272, 97), "bpf": (321, 280),
    "perf_event_open": (298, 241), "io_uring_setup": (425, 425), "userfaultfd": (323, 282), "keyctl": (250, 219),
    "add_key": (248, 217), "request_key": (249, 218), "shmget": (29, 194), "shmat": (30, 196), "setuid": (105, 146),
    "setgid": (106, 144), "setpgid": (109, 154), "setsid": (112, 157), "setrlimit": (160, 164), "wait4": (61, 260),
    "waitid": (247, 95), "personality": (135, 92), "landlock_create_ruleset": (444, 444), "seccomp": (317, 277),
}  # fmt: skip
"""What is refused, so that messages can name it."""
