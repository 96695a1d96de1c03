"""The verbs that are about who may be trusted."""
