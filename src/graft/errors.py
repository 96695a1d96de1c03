"""The errors of Graft, in a module that imports nothing.

A message says what, where, both sides of the mismatch and what to do; the facts stay as attributes.
"""


class GraftError(Exception):
    """Base class of every error that a user of Graft can cause and mend.

    Keyword arguments become attributes: ``GraftError("...", node="conv1").node == "conv1"``. ``spelled`` gives, by the
    words of the message that name something of Python, what the same is on the command line.
    """

    def __init__(self, message: str, *, spelled: dict[str, str] | None = None, **facts: object) -> None:
        super().__init__(message)
        self.message = message
        self.spelled = spelled or {}
        self.facts = facts

    @property
    def command_line(self) -> str:
        """The message as the command line says it: with options in the place of Python's arguments."""
        text = self.message
        for python, option in self.spelled.items():
            text = text.replace(python, option)
        return text

    def __getattr__(self, name: str) -> object:
        facts = self.__dict__.get("facts", {})
        if name in facts:
            return facts[name]
        raise AttributeError(f"{type(self).__name__} has no fact {name!r}")


class ArgumentError(GraftError, TypeError):
    """An argument of a public function is of another kind than it takes; ``function`` and ``argument`` name it."""


class ModelError(GraftError):
    """The model is not valid ONNX, or asks for something that cannot be honoured."""


class UnsupportedError(GraftError):
    """The model is valid but no backend that was allowed can compute a part of it."""


class PatternError(GraftError):
    """A pattern, or a check of a pattern, is wrong."""


class PlanError(GraftError):
    """A plan, or an option of placement, cannot be fulfilled."""


class OptionError(GraftError):
    """An option of a backend is unknown, of a wrong type, or a secret that is missing; ``option`` names it."""


class DatabaseError(GraftError):
    """A database of measurements is damaged, of another program, or of a newer version; ``path`` names it."""


class TuningError(GraftError):
    """Parameters of a schedule are wrong, or tuning was asked for what cannot be measured here."""


class PluginError(GraftError):
    """A plugin raised, or broke the contract of the plugin interface; ``plugin`` names it."""


class MachineError(GraftError):
    """A description of a machine contradicts itself, or no machine is called so; ``machine`` names it."""


class CompileError(GraftError):
    """A region could not be compiled."""


class InternalError(GraftError):
    """What a backend made fails its own proof: a fault of the backend, which no other backend is to hide."""


class ScheduleError(GraftError):
    """A step of a schedule cannot be taken: it names the step and the reason."""


class ArtifactError(GraftError):
    """An artifact is damaged, of another version, or needs a plugin that is missing."""


class InputError(GraftError):
    """A program was called with the wrong names, shapes or dtypes."""


class RunError(GraftError):
    """A compiled program failed while it ran; ``node`` says where."""


class CancelledError(RunError):
    """A run was cancelled before it was done; the message says how far it came."""


class DeadlineError(RunError):
    """A run was not done before its deadline; the message says how far it came."""


class DeviceError(GraftError):
    """A device, or what emulates it, cannot be had, or did not answer as a session has it; ``board`` names it."""


class DatatypeError(GraftError):
    """A custom datatype, or a lowering of it, is missing or wrong."""


class RecipeError(GraftError):
    """A recipe of quantisation is wrong, or data do not fit the model that is to run on them; ``field`` names what."""


class VerifyError(GraftError):
    """A compiled program differs from its reference by more than the tolerance."""


class AccuracyError(VerifyError):
    """No quantised model is within the bound on its metric; ``model`` is the best that was found."""
