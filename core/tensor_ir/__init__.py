"""The tensor IR: nodes, text form, walks."""

from graft.core.tensor_ir.ir import Function, Stage
from graft.core.tensor_ir.printer import print_function, print_stage

Function.to_text = print_function
Stage.to_text = print_stage
