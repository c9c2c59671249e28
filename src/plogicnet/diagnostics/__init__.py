"""Checks of graphs before training (`graphs`) and of trained runs (`runs`).

Both return a `DiagnosticReport`, a list of `Finding`s, which `plogicnet doctor` and the HTML report show.
"""
