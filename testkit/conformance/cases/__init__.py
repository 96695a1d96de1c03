"""The models and inputs that a backend is tried with, and how a case ends."""
