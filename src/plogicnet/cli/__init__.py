"""The command line: `plogicnet`, one program with verbs."""

import os
import sys


def main() -> None:
    """Runs the program; exit 0 done, 1 failed, 2 bad input or usage, 130 interrupted. A traceback is never shown.

    Example:
        >>> main()  # doctest: +SKIP
    """
    try:
        code = _exit_code()
    except KeyboardInterrupt:  # while the program was still being loaded
        code = _interrupted()
    sys.exit(code)


def _exit_code() -> int:
    import typer

    from plogicnet.cli.app import app
    from plogicnet.errors import InputError

    # click's ClickException, by way of a subclass: newer versions of typer carry their own copy of click
    usage_error: type[Exception] = typer.BadParameter.__mro__[2]
    try:
        result = typer.main.get_command(app).main(prog_name="plogicnet", standalone_mode=False)
        sys.stdout.flush()
        code = result if isinstance(result, int) else 0
    except usage_error as error:
        error.show()  # type: ignore[attr-defined]
        return 2
    except InputError as error:
        print(f"plogicnet: {error}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except BrokenPipeError:
        # the reader of our output has seen enough (| head); let Python's own flush at exit meet no closed pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if os.environ.get("PLOGICNET_DEBUG"):
            raise
        print(f"plogicnet: failed: {type(error).__name__}: {error}", file=sys.stderr)
        print(
            "plogicnet: PLOGICNET_DEBUG=1 shows where; please report it if it looks like our fault",
            file=sys.stderr,
        )
        return 1
    # as a result, in those versions of typer that catch the interrupt themselves
    return _interrupted() if code == 130 else code


def _interrupted() -> int:
    print("plogicnet: interrupted", file=sys.stderr)
    return 130
