"""A vendor's toolkit in an interpreter of its own: this file needs Python 3.9 or newer and nothing that is not in it.

``python -I toolkit_worker.py N MODULE FOLDER`` imports the file MODULE, and calls its functions for whom has the other
end of the socket with descriptor N, until that is gone. FOLDER is for what the toolkit leaves behind, and goes with it.

A message is a length, a value in JSON, and the bytes and arrays of that value as they are. A function that a function
of the toolkit returns stays here, and travels as a number.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import locale
import os
import select
import shutil
import signal
import socket
import struct
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from typing import Any

LENGTH = struct.Struct("<Q")
STATUS_CHILD = 70
"""How a child ends that a toolkit has forked and let back into the call."""
STEP = 1 << 24


def send(end: socket.socket, value: Any, number_of: Callable[[Any], int]) -> None:
    """Send a value: None, numbers, texts, lists, dictionaries, bytes, arrays, and functions, which get numbers."""
    parts: list[Any] = []
    text = _packed(value, parts, number_of)
    head = json.dumps([text, [len(part) for part in parts]]).encode()
    end.sendall(LENGTH.pack(len(head)) + head)
    for part in parts:
        end.sendall(part)


def receive(end: socket.socket, function_of: Callable[[int], Any]) -> Any:
    """Return the value that was sent; raise EOFError where the other end is gone."""
    (length,) = LENGTH.unpack(_bytes(end, LENGTH.size))
    text, sizes = json.loads(_bytes(end, length))
    return _unpacked(text, [_bytes(end, size) for size in sizes], function_of)


def _packed(value: Any, parts: list[Any], number_of: Callable[[Any], int]) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_packed(one, parts, number_of) for one in value]
    if isinstance(value, dict):
        return {"of": {str(name): _packed(one, parts, number_of) for name, one in value.items()}}
    if isinstance(value, (bytes, bytearray, memoryview)):
        parts.append(value)
        return {"bytes": len(parts) - 1}
    if hasattr(value, "__array__") and hasattr(value, "dtype"):
        if not value.dtype.isnative:
            value = value.astype(value.dtype.newbyteorder("="))
        whole = value.size > 0 and value.flags.c_contiguous
        parts.append(value.reshape(-1).view("u1").data if whole else value.tobytes())
        return {"array": len(parts) - 1, "dtype": value.dtype.name, "shape": list(value.shape)}
    if callable(value):
        return {"function": number_of(value)}
    raise TypeError(f"{type(value).__name__} cannot be sent: give numbers, texts, lists, dictionaries, bytes or arrays")


def _unpacked(text: Any, parts: list[bytearray], function_of: Callable[[int], Any]) -> Any:
    if isinstance(text, list):
        return [_unpacked(one, parts, function_of) for one in text]
    if not isinstance(text, dict):
        return text
    if "of" in text:
        return {name: _unpacked(one, parts, function_of) for name, one in text["of"].items()}
    if "bytes" in text:
        return bytes(parts[text["bytes"]])
    if "function" in text:
        return function_of(text["function"])
    import numpy  # of this interpreter, and only where arrays come

    return numpy.frombuffer(parts[text["array"]], numpy.dtype(text["dtype"])).reshape(text["shape"])


def _bytes(end: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    left = memoryview(data)
    while left:
        got = end.recv_into(left, min(len(left), STEP))
        if not got:
            raise EOFError
        left = left[got:]
    return data


class Worker:
    """The toolkit's module, and the functions that it returned."""

    def __init__(self, end: socket.socket, folder: str) -> None:
        self._end, self._folder, self._own = end, folder, os.getpid()
        self._functions: dict[int, Any] = {}
        self._module: Any = None

    def load(self, path: str) -> None:
        """Import the toolkit's module from its file."""
        spec = importlib.util.spec_from_file_location("graft_toolkit", path)
        assert spec is not None and spec.loader is not None, path
        self._module = importlib.util.module_from_spec(spec)
        sys.modules["graft_toolkit"] = self._module
        spec.loader.exec_module(self._module)

    def call(self, what: int | str, arguments: list[Any], dropped: list[int]) -> Any:
        """Return what a function gives: one of the module, or by its number one that was returned."""
        for number in dropped:
            self._functions.pop(number, None)
        function = self._functions[what] if isinstance(what, int) else getattr(self._module, what)
        return function(*arguments)

    def answer(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call and send what is returned, or what was raised; put right what vendors change in their process."""
        try:
            reply = [True, function(*arguments)]
        except BaseException as error:
            name = "exit" if isinstance(error, SystemExit) else type(error).__name__
            reply = [False, {"kind": name, "text": str(error), "trace": traceback.format_exc()}]
        if os.getpid() != self._own:
            os._exit(STATUS_CHILD)
        self._put_right()
        try:
            send(self._end, reply, self._number_of)
        except (TypeError, ValueError) as error:
            send(self._end, [False, {"kind": type(error).__name__, "text": str(error), "trace": ""}], self._number_of)

    def obey(self) -> None:
        """Answer until the other end is gone."""
        while True:
            what, arguments, dropped = receive(self._end, self._functions.__getitem__)
            self.answer(self.call, what, arguments, dropped)

    def _number_of(self, function: Any) -> int:
        number = max(self._functions, default=0) + 1
        self._functions[number] = function
        return number

    def _put_right(self) -> None:
        os.chdir(tempfile.mkdtemp(dir=self._folder))  # an empty one: what was left may be in the way
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        ctypes.CDLL(None).fflush(None)
        locale.setlocale(locale.LC_ALL, "")
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            numpy.seterr(divide="warn", over="warn", under="ignore", invalid="warn")


def _end_with(end: socket.socket, folder: str) -> None:
    """End the process, and what it started, when the other end is gone, even in the middle of a call."""
    watched = select.poll()
    watched.register(end.fileno(), select.POLLHUP)
    watched.poll()
    _end(folder)


def _end(folder: str) -> None:
    os.chdir("/")
    shutil.rmtree(folder, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    """Serve the toolkit."""
    descriptor, module, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    end = socket.socket(fileno=descriptor)
    end.set_inheritable(False)  # what the toolkit starts
    os.chdir(folder)
    threading.Thread(target=_end_with, args=(end, folder), daemon=True).start()
    worker = Worker(end, folder)
    worker.answer(worker.load, module)
    try:
        worker.obey()
    except (EOFError, OSError):
        _end(folder)


if __name__ == "__main__":
    main()
