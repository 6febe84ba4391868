"""The cost model compiled: time and memory of a plan from flat arrays, without a Python object inside.

Everything that prices a plan calls :func:`price_plan` or, for one group, :func:`price_group`: search, prediction, report, validation. A
slow,
plain implementation of the same formulas stands in the tests and must agree.
"""
