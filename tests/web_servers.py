"""A run to serve, hostile names, and test servers: the real command, or the same server in this process."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from plogicnet import PLogicNet
from plogicnet.graph import KnowledgeGraph
from plogicnet.web.connections import Limits
from plogicnet.web.security import RequestGuard
from plogicnet.web.server import CachedService, RequestQueue, listening_socket, make_app, make_server
from plogicnet.web.service import ModelService
from small import family_rows, fitted

SCRIPT = "<img src=x onerror=\"document.title='pwned';window.pwned=1\">"
TAG = "</bdi></li></ul><script>window.pwned=1</script>"
RIGHT_TO_LEFT = "\u202eשלום עולם مرحبا"
LONG = "ل" * 2500 + "x" * 2500
PATH = "../../etc/passwd?a=b&c#d%2e/;+"
HOSTILE = (
    SCRIPT,
    TAG,
    RIGHT_TO_LEFT,
    LONG,
    PATH,
    "javascript:window.pwned=1",
    "{{7*7}} ${7*7}",
    "Zoë Ångström",
    "🧬 e\u0301",
    "constructor",
    "toString",
    "__proto__",
)


def served_graph() -> KnowledgeGraph:
    """Return the small families, and married entities with hostile names, so that rules apply to them."""
    rows = family_rows()
    hostile = []
    for i, name in enumerate(HOSTILE):
        partner = HOSTILE[(i + 1) % len(HOSTILE)]
        hostile += [(name, "husband", partner), (name, SCRIPT, "man0"), (f"man{i % 6}", "parent", name)]
    return KnowledgeGraph.from_names(rows[:86] + hostile, rows[86:102], rows[102:], "families <b>&amp;")


def make_run(folder: Path) -> Path:
    fitted({"neural.steps": 200}, served_graph()).save(folder)
    return folder


@contextmanager
def serving(*options: object, run: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `plogicnet serve` in a child process and yield it with the address that it printed."""
    command = [sys.executable, "-m", "plogicnet", "serve", str(run), "--port", "0", *map(str, options)]
    env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    env.pop("PLOGICNET_TOKEN", None)
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    try:
        assert child.stdout is not None
        line = child.stdout.readline()
        match = re.search(r"http://\S+", line)
        assert match, line or child.communicate(timeout=60)[1]
        yield child, match[0]
    finally:
        if child.poll() is None:
            child.send_signal(signal.SIGKILL)
        child.communicate()


@contextmanager
def in_process(model: PLogicNet, limits: Limits, token: str | None = None) -> Iterator[int]:
    """Run the same server in a thread, with limits short enough for a test, and yield its port."""
    guard = RequestGuard(make_app(RequestQueue(CachedService(ModelService(model)), limits)), "127.0.0.1", token)
    server = make_server(guard, limits)
    with listening_socket("127.0.0.1", 0) as listening:
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            while not server.started:
                time.sleep(0.01)
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()
