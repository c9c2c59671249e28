"""The command line: `plogicnet`, one program with verbs."""

import _thread
import errno
import logging
import os
import signal
import sys
import threading
from importlib import import_module

ADVICE = {
    errno.ENOSPC: "free some space, or name a place on another disk",
    errno.EDQUOT: "free some space, or name a place on another disk",
    errno.EFBIG: "files may not grow so large here (see `ulimit -f`)",
    errno.EROFS: "name a place that can be written to",
    errno.EACCES: "see who may read and write there, or name another place",
    errno.EPERM: "see who may read and write there, or name another place",
    errno.ENOENT: "it was removed or renamed meanwhile; put it back, or name another",
    errno.EIO: "the disk fails, or the way to it; the system's log tells more",
    errno.EMFILE: "fewer files at once, or more allowed (see `ulimit -n`)",
}
"""What to do about what the system refuses."""


def main() -> None:
    """Runs the program; exit 0 done, 1 failed, 2 bad input or usage, 130 interrupted. A traceback is never shown.

    Example:
        >>> main()  # doctest: +SKIP
    """
    run_program("plogicnet.cli.app:app", "plogicnet")


def run_program(app: str, name: str) -> None:
    """Runs a typer application, given as "module:attribute", with the program's exit codes and messages."""
    logging.raiseExceptions = False  # a log that cannot be written holds up nothing
    before, sys.unraisablehook = sys.unraisablehook, _interrupt_again
    try:
        code = _exit_code(app, name)
    except KeyboardInterrupt:  # while the program was still being loaded
        code = 130
    finally:
        sys.unraisablehook = before
    if code == 130:
        print("plogicnet: interrupted", file=sys.stderr)
    sys.exit(code)


def _exit_code(app: str, name: str) -> int:
    import typer

    from plogicnet.support.errors import InputError

    # click's ClickException, by way of a subclass: newer versions of typer carry their own copy of click
    usage_error: type[Exception] = typer.BadParameter.__mro__[2]
    try:
        module, _, attribute = app.partition(":")
        loaded = getattr(import_module(module), attribute)
        result = typer.main.get_command(loaded).main(prog_name=name, standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0  # 130 in those versions of typer that catch the interrupt
    except usage_error as error:
        error.show()  # type: ignore[attr-defined]
        return 2
    except InputError as error:
        print(f"plogicnet: {error}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except BrokenPipeError:  # the reader of our output has seen enough (| head)
        _forget_output()
        return 0
    except Exception as error:
        if os.environ.get("PLOGICNET_DEBUG"):
            raise
        if isinstance(error, OSError):
            print(f"plogicnet: {_refused(error)}", file=sys.stderr)
            _forget_output()
            return 2
        print(f"plogicnet: failed: {type(error).__name__}: {error}", file=sys.stderr)
        print("plogicnet: PLOGICNET_DEBUG=1 shows where; please report it if it looks like our fault", file=sys.stderr)
        return 1


def _refused(error: OSError) -> str:
    """What the operating system refused, where, and what to do."""
    if error.errno is None:
        return str(error)
    from plogicnet.support.errors import InputError

    where = error.filename if error.filename is not None else "a file or the output"
    advice = ADVICE.get(error.errno)
    said = f"{where}: {error.strerror or os.strerror(error.errno)}" + (f"; {advice}" if advice else "")
    return str(InputError(said))  # without the control characters that a file's name can hold


def _forget_output() -> None:
    """Lets Python's own flush at exit meet no closed pipe or full disk."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _interrupt_again(dropped: "sys.UnraisableHookArgs") -> None:
    """An interrupt that falls where Python only notes exceptions, as in the end of an object, comes once more."""
    if issubclass(dropped.exc_type, KeyboardInterrupt):
        # in the background Ctrl-C is ignored, and SIGTERM alone interrupts
        heard = (s for s in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(s) == signal.default_int_handler)
        timer = threading.Timer(0.05, _thread.interrupt_main, (next(heard, signal.SIGINT),))
        timer.daemon = True
        timer.start()
    elif os.environ.get("PLOGICNET_DEBUG"):  # of a library's half-made object, say, that an interrupt left behind
        sys.__unraisablehook__(dropped)
