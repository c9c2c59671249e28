"""The command-line program `plogicnet`."""

import _thread
import errno
import logging
import os
import signal
import sys
import threading
from importlib import import_module

ADVICE = {
    errno.ENOSPC: "Free some space, or use another disk.",
    errno.EDQUOT: "Free some space, or use another disk.",
    errno.EFBIG: "The file size is limited (see `ulimit -f`).",
    errno.EROFS: "Use a directory that is writable.",
    errno.EACCES: "Check the permissions, or use another directory.",
    errno.EPERM: "Check the permissions, or use another directory.",
    errno.ENOENT: "The file was removed or renamed. Restore it, or use another file.",
    errno.EIO: "The disk or its connection failed. See the system log.",
    errno.EMFILE: "Too many files are open. Raise the limit (see `ulimit -n`).",
}
"""Advice by error number of the operating system."""


def main() -> None:
    """Run the program and exit: 0 success, 1 failure, 2 bad input or usage, 130 interrupted."""
    run_program("plogicnet.cli.app:app", "plogicnet")


def run_program(app: str, name: str) -> None:
    """Run the typer application at "module:attribute" with the exit codes and error messages of `main`."""
    logging.raiseExceptions = False  # a failing log handler must not stop the program
    previous_hook, sys.unraisablehook = sys.unraisablehook, _repeat_interrupt
    try:
        code = _exit_code(app, name)
    except KeyboardInterrupt:  # during imports
        code = 130
    finally:
        sys.unraisablehook = previous_hook
    if code == 130:
        print("plogicnet: interrupted", file=sys.stderr)
    sys.exit(code)


def _exit_code(app: str, name: str) -> int:
    import typer

    from plogicnet.support.errors import InputError
    from plogicnet.support.interrupts import is_interrupt

    # this is ClickException; newer versions of typer bundle their own copy of click, so it cannot be imported
    usage_error: type[Exception] = typer.BadParameter.__mro__[2]
    try:
        module, _, attribute = app.partition(":")
        loaded = getattr(import_module(module), attribute)
        result = typer.main.get_command(loaded).main(prog_name=name, standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0  # some versions of typer return 130 on an interrupt
    except usage_error as error:
        error.show()  # type: ignore[attr-defined]
        return 2
    except InputError as error:
        print(f"plogicnet: {error}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except BrokenPipeError:  # the reader closed the pipe, for example `| head`
        _discard_output()
        return 0
    except Exception as error:
        if is_interrupt(error):
            return 130
        if os.environ.get("PLOGICNET_DEBUG"):
            raise
        if isinstance(error, OSError):
            print(f"plogicnet: {_os_error_message(error)}", file=sys.stderr)
            _discard_output()
            return 2
        if isinstance(error, FloatingPointError):  # training diverged; the message names the setting
            print(f"plogicnet: {error}", file=sys.stderr)
            return 1
        print(f"plogicnet: internal error: {type(error).__name__}: {error}", file=sys.stderr)
        print("plogicnet: set PLOGICNET_DEBUG=1 to see the traceback, and please report this bug", file=sys.stderr)
        return 1


def _os_error_message(error: OSError) -> str:
    """Return a message with the place, the reason and advice."""
    if error.errno is None:
        return str(error)
    from plogicnet.support.errors import InputError

    place = error.filename if error.filename is not None else "cannot access a file or standard output"
    advice = ADVICE.get(error.errno)
    message = f"{place}: {error.strerror or os.strerror(error.errno)}" + (f". {advice}" if advice else "")
    return str(InputError(message))  # escapes control characters in the file name


def _discard_output() -> None:
    """Redirect unwritable output to /dev/null, so that the flush at exit does not fail."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _repeat_interrupt(unraisable: "sys.UnraisableHookArgs") -> None:
    """Repeat an interrupt that Python ignored, for example inside `__del__`."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        # background processes ignore SIGINT, so only SIGTERM interrupts them
        handled = (s for s in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(s) == signal.default_int_handler)
        timer = threading.Timer(0.05, _thread.interrupt_main, (next(handled, signal.SIGINT),))
        timer.daemon = True
        timer.start()
    elif os.environ.get("PLOGICNET_DEBUG"):  # for example of an object whose construction was interrupted
        sys.__unraisablehook__(unraisable)
