from graft.plugins.registry.doctor import Finding, examine
from tests.plugins.registry.test_manager import backend, manager_of

COMPILES = "    def compile(self, region, options): pass\n"


def test_a_sound_plugin_has_no_findings(tmp_path):
    assert examine(manager_of(tmp_path, npu=backend() + COMPILES)) == []


def test_a_failure_is_shown_with_its_traceback(tmp_path):
    (finding,) = examine(manager_of(tmp_path, bad="1 / 0"))
    message = "plugin 'bad' raised ZeroDivisionError in import of file bad.py: division by zero"
    assert (finding.plugin, finding.severity, finding.text) == ("bad", "error", message)
    assert finding.trace.endswith("ZeroDivisionError: division by zero\n")


def test_a_backend_that_cannot_run_here_is_noted(tmp_path):
    text = backend() + COMPILES + "    def available(self): return 'no device'\n"
    note = Finding("npu", "note", "backend 'npu' cannot run here: no device")
    assert examine(manager_of(tmp_path, npu=text)) == [note]


def test_a_predicate_with_a_bare_false_is_warned_about(tmp_path):
    text = backend() + COMPILES + "    def supports(self, node): return node.op_type != 'Relu'\n"
    warning = (
        "backend 'npu': supports(Relu (node 'probe_Relu')) returned a bare False; "
        "return graft.Reject(code, text) instead"
    )
    assert examine(manager_of(tmp_path, npu=text)) == [Finding("npu", "warning", warning)]


def test_a_predicate_that_raises_is_an_error(tmp_path):
    text = backend() + COMPILES + "    def supports(self, node): return node.op_type == 'Conv' and 1 / 0 or True\n"
    error = "plugin 'npu' raised ZeroDivisionError in supports(Conv (node 'probe_Conv')): division by zero"
    (finding,) = examine(manager_of(tmp_path, npu=text))
    assert (finding.plugin, finding.severity, finding.text) == ("npu", "error", error)
    assert finding.trace.endswith("ZeroDivisionError: division by zero\n")


def test_no_operator_is_probed_without_an_attribute_that_it_needs(tmp_path):
    text = "import onnx\n" + backend() + COMPILES + "    def supports(self, node):\n"
    text += "        for one in onnx.defs.get_schema(node.op_type).attributes.values():\n"
    text += "            assert not one.required or node.attribute(one.name) is not None\n"
    text += "        return True\n"
    assert examine(manager_of(tmp_path, npu=text)) == []


def test_a_misspelt_operator_is_an_error(tmp_path):
    text = "import graft\n" + backend() + COMPILES
    text += "    @graft.supports('Matmul')\n    def product(self, node): return True\n"
    error = "backend 'npu': supports('Matmul') on 'Npu.product' names an unknown operator; did you mean 'MatMul'?"
    assert examine(manager_of(tmp_path, npu=text)) == [Finding("npu", "error", error)]


def test_two_composites_of_one_name_are_an_error(tmp_path):
    text = "import graft\nfrom graft.patterns import is_op, wildcard\nP = is_op('Relu')(wildcard())\n" + backend()
    text += COMPILES + "    @graft.supports(P, name='npu.relu')\n    def one(self, match): return True\n"
    text += "    @graft.supports(P, name='npu.relu')\n    def two(self, match): return True\n"
    error = "backend 'npu': 2 composites are called 'npu.relu'; give each its own name"
    assert examine(manager_of(tmp_path, npu=text)) == [Finding("npu", "error", error)]


def test_a_backend_that_lacks_its_one_method_is_an_error(tmp_path):
    text = backend("json").replace("(Backend)", "(JsonBackend)")
    text = "from graft.plugins.json_backend import JsonBackend\n" + text
    plain, json = examine(manager_of(tmp_path, a=backend("plain"), b=text))
    assert plain.text == "backend 'plain' does not define compile(region, options)"
    assert json.text == "backend 'json' does not define load(graph, constants)"


def test_a_pattern_that_partitioning_would_refuse_is_an_error(tmp_path):
    text = "import graft\nfrom graft.patterns import is_op, wildcard\n" + backend() + COMPILES
    text += "    @graft.supports(is_op('Rellu')(wildcard()))\n    def activation(self, match): return True\n"
    (finding,) = examine(manager_of(tmp_path, npu=text))
    assert (finding.plugin, finding.severity) == ("npu", "error")
    assert finding.text == (
        "composite 'npu.activation' of backend 'npu': the pattern names an unknown operator 'Rellu'; "
        "did you mean 'Relu'?"
    )


def test_a_constraint_that_raises_is_an_error(tmp_path):
    text = "import graft\nfrom graft.patterns import is_op, wildcard\n" + backend() + COMPILES
    text += "    odd = is_op('Relu')(wildcard()).where(lambda value: 1 / 0)\n"
    text += "    @graft.supports(odd)\n    def odd_relu(self, match): return True\n"
    (finding,) = examine(manager_of(tmp_path, npu=text))
    assert (finding.plugin, finding.severity) == ("npu", "error")
    assert "ZeroDivisionError" in finding.text
    assert "\n" not in finding.text


def test_a_composite_that_an_earlier_one_leaves_nothing_is_warned_about(tmp_path):
    text = "import graft\nfrom graft.patterns import is_op, wildcard\n" + backend() + COMPILES
    text += "    @graft.supports(is_op('Relu')(wildcard()), name='npu.relu')\n    def one(self, match): return True\n"
    text += "    patterns = property(lambda self: [graft.patterns.Composite('npu.relu', is_op('Relu')), "
    text += "graft.patterns.Composite('npu.exp_relu', is_op('Relu')(is_op('Exp')))])\n"
    warning = (
        "composite 'npu.exp_relu' of backend 'npu' never forms: the earlier row 'npu.relu' takes whatever it matches; "
        "put 'npu.exp_relu' first"
    )
    assert examine(manager_of(tmp_path, npu=text)) == [Finding("npu", "warning", warning)]
