"""A vendor's toolkit of the worst habits, which imports nothing of Graft's; its blobs are JSON of few operators."""

import ctypes
import json
import locale
import os
import sys

VERSION = os.environ.get("MADE_UP_VERSION", "1")


def version():
    """Return versions of the toolkit and of what it runs in."""
    numpy = __import__("numpy")
    return f"made up {VERSION}, NumPy {numpy.__version__}"


def compile(model, options):
    """Return a blob; print, litter, and change what is everybody's."""
    import numpy

    print("compiling", len(model), "bytes")
    ctypes.CDLL(None).puts(b"said in C")
    ctypes.CDLL(None).fflush(None)
    os.makedirs("litter")
    os.chdir("litter")
    with open("check.onnx", "wb") as file:
        file.write(model)
    locale.setlocale(locale.LC_ALL, "C")
    numpy.seterr(all="raise")
    habit = options["habit"]
    if habit == "exit":
        sys.exit(3)
    if habit == "end":
        os._exit(4)
    if habit == "crash":
        os.abort()
    if habit == "licence":
        raise RuntimeError("the licence check failed: no server answers")
    if habit == "display":
        assert os.environ["QT_QPA_PLATFORM"] == "offscreen" and "DISPLAY" not in os.environ
    if habit == "fork" and os.fork() == 0:
        return b"of the child"
    if habit == "daemon" and os.fork() == 0:
        import time

        time.sleep(600)
    if habit == "hang":
        import time

        time.sleep(600)
    return json.dumps({"factor": 1.0, "version": VERSION}).encode()


def load(blob, options):
    """Return the function of a region: a sum of its inputs, halved where the numbers are of version 2."""
    facts = json.loads(blob)

    def run(arrays):
        if options["habit"] == "lost" and not os.path.exists(options["mark"]):
            open(options["mark"], "w").close()
            os._exit(5)
        total = arrays[0] + arrays[-1]
        return [total * facts["factor"]]

    return run


def state():
    """Return what a call before this one may have left."""
    import numpy

    return {"folder": os.listdir("."), "errors": numpy.geterr()["over"], "directory": os.getcwd()}


def echo(value):
    """Return what came."""
    return value
