"""An extension of Model Explorer: `model-explorer --extensions=graft_model_explorer digits.graft`."""
