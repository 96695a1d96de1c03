"""An accelerator with explicit memories, decoupled units and dependency tokens: its instructions, proof, simulators."""
