"""Functions that numba compiles."""

from collections.abc import Callable
from typing import Any

from numba import njit

from plogicnet.support.interrupts import deferred_interrupts


def compiled(*flags: str) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that compiles a function at its first call and caches the machine code on disk.

    The function runs without Python's global lock. `flags` permit inexact floating-point arithmetic; see LLVM's
    fast-math flags. Ctrl-C is deferred while the function is compiled: LLVM calls Python code, and Python ignores an
    exception there.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher: Any = njit(nogil=True, cache=True, fastmath=set(flags))(function)
        compile_for_arguments = getattr(dispatcher, "_compile_for_args", None)
        if compile_for_arguments is None:  # NUMBA_DISABLE_JIT=1
            return function

        def compile_without_interrupts(*arguments: object, **named: object) -> object:
            with deferred_interrupts():
                return compile_for_arguments(*arguments, **named)

        dispatcher._compile_for_args = compile_without_interrupts
        return dispatcher

    return decorate
