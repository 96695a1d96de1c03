"""The proof of a program: its order, that no two accesses race, and what each memory holds."""
