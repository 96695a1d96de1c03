"""Mutation testing: do the tests of a module notice when it is changed?"""
