"""Checks of graphs before training (`graphs`) and of runs before their figures are believed (`runs`).

Both return a `Checkup` of `Finding`s; `plogicnet doctor` and the report show them.
"""
