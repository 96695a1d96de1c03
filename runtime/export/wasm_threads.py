"""Parallel loops of a WebAssembly module: a job that workers join, in memory that all threads share.

Each thread has an instance of the module, with a stack and scratch memory of its own. The thread that calls ``run``
opens one job after another (`PARALLEL`); workers are in `WORK` for ever, and sleep while there is none. Whoever has
joined takes parts until none is left. The job is closed by its opener, when it is the last in it: a page's main thread
may not sleep, so it spins. A worker that comes late, or never, is not waited for.
"""

from __future__ import annotations

from graft.runtime.export.wasm_binary import I32, I64, address, unsigned

PARALLEL, PARTS, WORK = "graft_parallel_for", "graft_parts", "work"
JOB_BYTES = 64
NUMBER, STATE, TASK, CLOSURE, COUNT, CHUNK, NEXT, STATUS, THREADS = 0, 4, 8, 12, 16, 24, 32, 40, 44
"""Places in the job: how many there were; 0 closed, else how many threads are in it; the function and its closure; how
many iterations, those of a part, and the first that nobody has (i64); what a part failed with; how many threads there
are, which the host says."""
STACK, SCRATCH, SCRATCH_BEGIN, SCRATCH_END = 0, 1, 2, 3
"""Globals of an instance."""
TASK_TYPE = (I32, I32, I64, I64), (I32,)
PARTS_EACH = 4
"""Parts of a loop for each thread, so that one that is slow does not hold up the others."""
SPINS = 4000
"""How often a worker looks for a job before it sleeps: about 20 microseconds."""
WORKER_PAGES = 5
"""The stack of a worker."""

_BLOCK, _LOOP, _IF, _END, _RETURN, _DROP, _SELECT = (
    b"\x02\x40",
    b"\x03\x40",
    b"\x04\x40",
    b"\x0b",
    b"\x0f",
    b"\x1a",
    b"\x1b",
)
_ADD, _SHIFT, _EQUAL, _UNEQUAL, _ZERO, _LESS = b"\x6a", b"\x74", b"\x46", b"\x47", b"\x45", b"\x48"
_GROW, _NOTIFY, _WAIT = b"\x40\0", b"\xfe\0\2", b"\xfe\1\2"
_LOAD, _STORE, _LOAD_LONG, _STORE_LONG, _LOAD_WIDENED = b"\x28\2", b"\x36\2", b"\x29\3", b"\x37\3", b"\x35\2"
_ATOMIC_LOAD, _ATOMIC_STORE, _ATOMIC_STORE_LONG = b"\xfe\x10\2", b"\xfe\x17\2", b"\xfe\x18\3"
_ATOMIC_ADD, _ATOMIC_ADD_LONG, _ATOMIC_SUBTRACT, _EXCHANGE_IF = (
    b"\xfe\x1e\2",
    b"\xfe\x1f\3",
    b"\xfe\x25\2",
    b"\xfe\x48\2",
)


def get(local: int) -> bytes:
    """Return ``local.get``."""
    return b"\x20" + unsigned(local)


def _set(local: int) -> bytes:
    return b"\x21" + unsigned(local)


def _tee(local: int) -> bytes:
    return b"\x22" + unsigned(local)


def _get_global(number: int) -> bytes:
    return b"\x23" + unsigned(number)


def set_global(number: int) -> bytes:
    """Return ``global.set``."""
    return b"\x24" + unsigned(number)


def _leave(depth: int) -> bytes:
    """Return ``br``."""
    return b"\x0c" + unsigned(depth)


def _leave_if(depth: int) -> bytes:
    return b"\x0d" + unsigned(depth)


def _of(instruction: bytes, place: int) -> bytes:
    """Return an access to a place of the job, whose address is on the stack."""
    return instruction + unsigned(place)


def parts(job: int, record: int, task_type: int) -> bytes:
    """Return the body of ``graft_parts()``: take parts of the job and run them, until none is left or one failed."""
    at = address(job)
    begin, end, scratch, region, status = range(5)
    count, chunk = at + _of(_LOAD_LONG, COUNT), at + _of(_LOAD_LONG, CHUNK)
    return b"".join((
        b"\2\2", bytes((I64,)), b"\3", bytes((I32,)),
        _BLOCK, _LOOP,
        at, chunk, _of(_ATOMIC_ADD_LONG, NEXT), _tee(begin), count, b"\x59", _leave_if(1),  # i64.ge_s
        get(begin), chunk, b"\x7c", _tee(end), count, get(end), count, b"\x53", _SELECT, _set(end),  # the lesser
        _get_global(SCRATCH), _set(scratch), _get_global(SCRATCH_BEGIN), _set(region),
        address(record), at, _of(_LOAD, CLOSURE), get(begin), get(end), _run_task(at + _of(_LOAD, TASK), task_type),
        _set(status),  # and give its scratch memory back: all of it, where the part has moved to a new one
        get(scratch), _get_global(SCRATCH_BEGIN), get(region), _get_global(SCRATCH_BEGIN), _EQUAL, _SELECT,
        set_global(SCRATCH),
        get(status), _IF,
        at, get(status), _of(_ATOMIC_STORE, STATUS), at, count, _of(_ATOMIC_STORE_LONG, NEXT),
        _END, _leave(0), _END, _END, _END,
    ))  # fmt: skip


def _run_task(task: bytes, task_type: int) -> bytes:
    return task + b"\x11" + unsigned(task_type) + b"\0"


def parallel_for(job: int, parts_function: int, task_type: int) -> bytes:
    """Return the body of ``graft_parallel_for(context, i64 count, i64 grain, task, closure)``: it returns a status."""
    at = address(job)
    context, count, grain, task, closure, threads, chunk = range(7)
    return b"".join((
        b"\1\2", bytes((I64,)),
        at, _of(_LOAD_WIDENED, THREADS), _tee(threads), b"\x42\1\x57",  # i64.le_s
        get(count), get(grain), b"\x57\x72", _IF,
        get(context), get(closure), b"\x42\0", get(count), _run_task(get(task), task_type), _RETURN,
        _END,
        get(threads), b"\x42", unsigned(PARTS_EACH), b"\x7e", _set(threads),  # i64.mul
        get(count), get(threads), b"\x7c\x42\1\x7d", get(threads), b"\x7f", _set(chunk),  # rounded up
        at, get(chunk), get(grain), get(chunk), get(grain), b"\x55", _SELECT, _of(_STORE_LONG, CHUNK),
        at, get(count), _of(_STORE_LONG, COUNT), at, b"\x42\0", _of(_ATOMIC_STORE_LONG, NEXT),
        at, get(task), _of(_STORE, TASK), at, get(closure), _of(_STORE, CLOSURE),
        at, address(0), _of(_ATOMIC_STORE, STATUS), at, address(1), _of(_ATOMIC_STORE, STATE),
        at, address(1), _of(_ATOMIC_ADD, NUMBER), _DROP, at, address((1 << 32) - 1), _of(_NOTIFY, NUMBER), _DROP,
        b"\x10", unsigned(parts_function),
        _LOOP, at, address(1), address(0), _of(_EXCHANGE_IF, STATE), address(1), _UNEQUAL, _leave_if(0), _END,
        at, _of(_ATOMIC_LOAD, STATUS), _END,
    ))  # fmt: skip


def work(job: int, parts_function: int) -> bytes:
    """Return the body of ``work()``: of a worker, which never ends but where there is no memory for its stack."""
    at = address(job)
    seen, state, spins = range(3)
    return b"".join((
        b"\1\3", bytes((I32,)),
        address(WORKER_PAGES), _GROW, _tee(state), address((1 << 32) - 1), _EQUAL, _IF, _RETURN, _END,
        get(state), address(WORKER_PAGES), _ADD, address(16), _SHIFT, set_global(STACK),
        *(address(0) + set_global(one) for one in (SCRATCH, SCRATCH_BEGIN, SCRATCH_END)),
        _LOOP,
        _BLOCK, address(0), _set(spins), _LOOP,
        at, _of(_ATOMIC_LOAD, NUMBER), get(seen), _UNEQUAL, _leave_if(1),
        get(spins), address(1), _ADD, _tee(spins), address(SPINS), _LESS, _leave_if(0), _END,
        at, get(seen), b"\x42\x7f", _of(_WAIT, NUMBER), _DROP, _leave(1), _END,
        at, _of(_ATOMIC_LOAD, NUMBER), _set(seen),
        _BLOCK, _LOOP,
        at, _of(_ATOMIC_LOAD, STATE), _tee(state), _ZERO, _leave_if(1),
        at, get(state), get(state), address(1), _ADD, _of(_EXCHANGE_IF, STATE), get(state), _UNEQUAL,
        _leave_if(0), _END,
        b"\x10", unsigned(parts_function), at, address(1), _of(_ATOMIC_SUBTRACT, STATE), _DROP, _END,
        _leave(0), _END, _END,
    ))  # fmt: skip


def scratch() -> bytes:
    """Return the body of ``graft_scratch(context, i64 bytes)``: an address, 0 where memory runs out.

    A thread whose memory does not suffice takes twice as much behind all that there is, and keeps it; so what is left
    behind is less than what it has.
    """
    old, pages = 2, 3
    size = b"\x20\1\xa7"
    return b"".join((
        b"\1\2", bytes((I32,)),
        _get_global(SCRATCH), _tee(old), size, _ADD, _get_global(SCRATCH_END), b"\x4b", _IF,  # i32.gt_u
        size, _get_global(SCRATCH_END), _get_global(SCRATCH_BEGIN), b"\x6b", _ADD, address(1), _SHIFT,
        address(16), b"\x76", address(1), _ADD, _tee(pages), _GROW, _tee(old), address((1 << 32) - 1), _EQUAL,
        _IF, address(0), _RETURN, _END,
        get(old), address(16), _SHIFT, _tee(old), set_global(SCRATCH_BEGIN),
        get(old), get(pages), address(16), _SHIFT, _ADD, set_global(SCRATCH_END),
        _END,
        get(old), size, _ADD, address(63), _ADD, b"\x41\x40\x71", set_global(SCRATCH), get(old), _END,
    ))  # fmt: skip


def begin_step() -> bytes:
    """Return the code that gives all scratch memory of this thread back."""
    return _get_global(SCRATCH_BEGIN) + set_global(SCRATCH)
