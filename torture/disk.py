"""A model of a disk: recorded file operations, and the states that a power cut can leave. Linux.

Files and directories are inodes. An operation writes the data of a file, syncs a file or a directory, or changes the
names in a directory. Data is durable once the file is synced, and a name once its directory is synced. A power cut can
come after any operation. It can lose operations that are not durable yet: none, all, any single one, or two adjacent
ones. Lost data leaves an empty file, half of the data, or zeros.
"""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from plogicnet.runs.directory import LOCK_FILE, LOG_FILE

RUN = "run"
"""The name of the directory that a command writes, below the recorded directory."""
UNSYNCED = (f"{RUN}/{LOCK_FILE}", f"{RUN}/{LOG_FILE}")
"""Files without content that matters: they are not synced, and their content is not recorded."""
PATCHED = ("fsync", "mkdir", "rmdir", "unlink", "remove", "link", "rename", "replace")
"""The functions of the module os that are recorded. Methods of Path and shutil.rmtree call them."""
MISSING, CUT, ZEROED = "missing", "cut to half", "zeroed"
"""What can happen to an operation. All can happen to the data of a file, and only the first to names."""
ROOT_INODE = 0
Tree = dict[str, bytes | None]
"""The content of each file below a directory, by relative path; None for a directory."""
Loss = tuple[tuple[int, str], ...]
"""What a power cut does to operations: their indices, and what happens to each."""


@dataclass(frozen=True)
class Operation:
    """A change of the disk.

    Attributes:
        kind: "write" (data), "sync", "name" (a new name), "remove" (a name), or "rename".
        inode: the file or directory that is written, synced, named, removed or renamed.
        path: the path, for messages.
        folder: the directory whose names change; of a rename, the target's.
        name: the name that changes; of a rename, the target's.
        source: the directory and the name before a rename.
        data: the data that is written.
    """

    kind: str
    inode: int
    path: str
    folder: int = -1
    name: str = ""
    source: tuple[int, str] = (-1, "")
    data: bytes = b""

    @property
    def synced_with(self) -> int:
        """The inode whose sync makes the operation durable."""
        return self.inode if self.kind == "write" else self.folder

    @property
    def losses(self) -> tuple[str, ...]:
        """What a power cut can do to the operation before it is durable."""
        return (MISSING, CUT, ZEROED) if self.kind == "write" else (MISSING,)


@dataclass
class Disk:
    """The names in each directory and the data of each file, by inode. Directories that have no name are not visible.

    Example:
        >>> disk = Disk({ROOT_INODE: {}})
        >>> disk.apply(Operation("write", 7, "a", data=b"text"))
        >>> disk.tree()
        {}
        >>> disk.apply(Operation("name", 7, "a", ROOT_INODE, "a"))
        >>> disk.tree()
        {'a': b'text'}
    """

    folders: dict[int, dict[str, int]]
    files: dict[int, bytes] = field(default_factory=dict)

    def copy(self) -> "Disk":
        """Return a copy that can be changed."""
        return Disk({inode: dict(names) for inode, names in self.folders.items()}, dict(self.files))

    def apply(self, operation: Operation, loss: str = "") -> None:
        """Change the disk. `loss` says what a power cut did to the operation; "" for nothing."""
        if operation.kind == "sync" or loss == MISSING:
            return
        if operation.kind == "write":
            self.files[operation.inode] = damaged(operation.data, loss)
        elif operation.kind == "remove":
            self.folders[operation.folder].pop(operation.name, None)
        else:
            if operation.kind == "rename":
                self._forget(operation)
            self.folders[operation.folder][operation.name] = operation.inode

    def _forget(self, rename: Operation) -> None:
        """Remove the previous name of a file, or all names of a directory, which has only one."""
        self.folders.get(rename.source[0], {}).pop(rename.source[1], None)
        if rename.inode in self.folders:
            for names in self.folders.values():
                for name in [name for name, inode in names.items() if inode == rename.inode]:
                    del names[name]

    def tree(self) -> Tree:
        """Return the visible files and directories."""
        found: Tree = {}
        waiting = [(ROOT_INODE, "")]
        while waiting:
            folder, prefix = waiting.pop()
            for name, inode in self.folders[folder].items():
                path = prefix + name
                if inode in self.folders:
                    found[path] = None
                    waiting.append((inode, f"{path}/"))
                else:
                    found[path] = self.files.get(inode, b"")
        return found

    def inode(self, parts: Sequence[str]) -> int | None:
        """Return the inode at a path, or None."""
        inode: int | None = ROOT_INODE
        for part in parts:
            inode = self.folders.get(-1 if inode is None else inode, {}).get(part)
        return inode


@cache
def damaged(data: bytes, loss: str) -> bytes:
    r"""Return the data of a file after a power cut.

    Example:
        >>> damaged(b"0001", CUT), damaged(b"0001", ZEROED)
        (b'00', b'\x00\x00\x00\x00')
    """
    return data[: len(data) // 2] if loss == CUT else bytes(len(data)) if loss == ZEROED else data


class Recorder:
    """Records the file operations of this process below a directory.

    The data of a file is recorded when the file is synced, renamed or linked. Thus data that is written in another way
    is not recorded, and `differences` finds it.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.operations: list[Operation] = []
        self._inodes = ROOT_INODE
        self._disk = self._read()
        self._initial = self._disk.copy()
        self._originals = {name: getattr(os, name) for name in PATCHED}

    def _read(self) -> Disk:
        """Return the present content of the directory. Hard links share an inode."""
        disk, known = Disk({}), {self.root.stat().st_ino: ROOT_INODE}
        for folder, folders, files in os.walk(self.root):
            names = disk.folders.setdefault(known[Path(folder).stat().st_ino], {})
            for path in (Path(folder, name) for name in (*folders, *files)):
                real = path.stat().st_ino
                if real not in known:
                    known[real] = self._new_inode()
                names[path.name] = known[real]
                if path.is_file():
                    disk.files[known[real]] = path.read_bytes()
        return disk

    def _new_inode(self) -> int:
        self._inodes += 1
        return self._inodes

    def __enter__(self) -> "Recorder":
        for name in PATCHED:
            setattr(os, name, partial(self._call, name))
        return self

    def __exit__(self, *_: object) -> None:
        for name, original in self._originals.items():
            setattr(os, name, original)

    def recording(self) -> "Recording":
        """Return what was recorded so far."""
        initial = self._initial.copy()
        for inode in self._disk.folders:
            initial.folders.setdefault(inode, {})  # not visible until it has a name
        return Recording(initial, tuple(self.operations))

    def _call(self, function: str, *args: Any, **kwargs: Any) -> Any:
        """Call a function of the module os, and record the operation if it succeeds."""
        if function == "fsync":
            paths = [self._parts("", args[0])]
        elif function in ("link", "rename", "replace"):
            paths = [self._parts(args[0], kwargs.get("src_dir_fd")), self._parts(args[1], kwargs.get("dst_dir_fd"))]
        else:
            paths = [self._parts(args[0], kwargs.get("dir_fd"))]
        inside = [parts for parts in paths if parts is not None]
        if inside and len(inside) < len(paths):
            raise NotImplementedError(f"{function} across the recorded directory: {args}")
        if inside:
            for name in UNSYNCED:
                if self.root.joinpath(name).exists():
                    self._see(tuple(name.split("/")), with_data=False)
            if function in ("fsync", "link", "rename", "replace") and self.root.joinpath(*inside[0]).is_file():
                self._see(inside[0])
        result = self._originals[function](*args, **kwargs)
        if inside:
            self._record(function, inside[0], inside[-1])
        return result

    def _parts(self, path: Any, descriptor: int | None) -> tuple[str, ...] | None:
        """Return the parts of a path below the recorded directory, or None if it is outside."""
        start = Path.cwd() if descriptor is None else Path(f"/proc/self/fd/{descriptor}").readlink()
        full = start / os.fsdecode(path)
        full = full.parent.resolve() / full.name
        return full.relative_to(self.root).parts if full.is_relative_to(self.root) else None

    def _see(self, parts: tuple[str, ...], with_data: bool = True) -> None:
        """Record the name and the data of a file, if they are new."""
        inode = self._disk.inode(parts)
        if inode is None:
            inode = self._new_inode()
            self._add("name", inode, parts)
        if with_data and (data := self.root.joinpath(*parts).read_bytes()) != self._disk.files.get(inode, b""):
            self._add("write", inode, parts, data=data)

    def _record(self, function: str, parts: tuple[str, ...], target: tuple[str, ...]) -> None:
        """Record a call that succeeded."""
        if function == "mkdir":
            inode = self._new_inode()
            self._disk.folders[inode] = {}
            self._add("name", inode, parts)
            return
        found = self._disk.inode(parts)
        if found is None:
            raise AssertionError(f"{function} {'/'.join(parts)}: it was created in an unknown way")
        if function == "fsync":
            self._add("sync", found, parts)
        elif function in ("rename", "replace"):
            if parts != target:
                self._add("rename", found, target, source=parts)
        else:
            self._add("name" if function == "link" else "remove", found, target)

    def _add(
        self, kind: str, inode: int, parts: tuple[str, ...], data: bytes = b"", source: tuple[str, ...] = ()
    ) -> None:
        """Add an operation, and apply it to the model of the disk."""
        path = "/".join(source) + " -> " * bool(source) + "/".join(parts)
        operation = Operation(kind, inode, path, data=data)
        if kind in ("name", "remove", "rename"):
            old = (self._folder(source), source[-1]) if source else (-1, "")
            operation = Operation(kind, inode, path, self._folder(parts), parts[-1], old)
        self.operations.append(operation)
        self._disk.apply(operation)

    def _folder(self, parts: tuple[str, ...]) -> int:
        """Return the inode of the directory that contains a path."""
        inode = self._disk.inode(parts[:-1])
        if inode is None:
            raise AssertionError(f"{'/'.join(parts)}: its directory was created in an unknown way")
        return inode


@dataclass(frozen=True)
class CrashState:
    """A state that a power cut can leave: after how many operations, what it lost, and the visible files."""

    after: int
    loss: Loss
    tree: Tree


@dataclass(frozen=True)
class Recording:
    """The disk before a command, and the operations of the command."""

    initial: Disk
    operations: tuple[Operation, ...]

    def differences(self, root: Path) -> list[str]:
        """Return the paths that differ between the replay of all operations and the real directory."""
        disk = self.initial.copy()
        for operation in self.operations:
            disk.apply(operation)
        replayed, real = disk.tree(), read_tree(root)
        paths = sorted(replayed.keys() | real.keys())
        return [p for p in paths if p not in UNSYNCED and replayed.get(p, b"absent") != real.get(p, b"absent")]

    def settled_after(self) -> list[float]:
        """Return, for each operation, how many operations it takes until a power cut cannot change its effect.

        It is durable, or the names that it changes are no longer visible: their directory was removed, or the file was
        renamed, and that is durable.
        """
        count = len(self.operations)
        settled = [math.inf] * count
        synced: dict[int, int] = {}
        removed: dict[int, int] = {}
        renamed: dict[tuple[int, str], int] = {}
        for index in range(count - 1, -1, -1):
            operation = self.operations[index]
            later = (removed.get(operation.folder), renamed.get((operation.folder, operation.name)))
            ends = [settled[i] for i in later if i is not None and operation.kind != "rename"]
            settled[index] = min([synced.get(operation.synced_with, math.inf), *ends])
            if operation.kind == "sync":
                synced[operation.inode], settled[index] = index + 1, index + 1
            elif operation.kind == "remove" and operation.inode in self.initial.folders:
                removed[operation.inode] = index
            elif operation.kind == "rename":
                renamed[operation.source] = index
        return settled

    def losses(self, pairs: bool = True) -> dict[Loss, list[int]]:
        """Return all losses that a power cut can cause, and after how many operations each is possible.

        Without `pairs`, a power cut loses nothing or a single operation.
        """
        settled = self.settled_after()
        found: dict[Loss, list[int]] = {}
        for after in range(len(self.operations) + 1):
            open_ = [i for i in range(after) if settled[i] > after]
            possible: set[Loss] = {(), *(((i, loss),) for i in open_ for loss in self.operations[i].losses)}
            if pairs:
                possible.add(tuple((i, MISSING) for i in open_))
                for i, j in pairwise(open_):
                    possible |= {((i, loss), (j, MISSING)) for loss in self.operations[i].losses}
                    possible |= {((i, MISSING), (j, loss)) for loss in self.operations[j].losses}
            for loss in possible:
                found.setdefault(loss, []).append(after)
        return found

    def states(self, pairs: bool = True) -> list[CrashState]:
        """Return all different states that a power cut can leave, in the order of the operations."""
        before = [self.initial.copy()]
        for operation in self.operations:
            before.append(before[-1].copy())
            before[-1].apply(operation)
        found: dict[int, CrashState] = {}
        for loss, places in self.losses(pairs).items():
            first = loss[0][0] if loss else 0
            disk, what, at = before[first].copy(), dict(loss), first
            for after in places:
                for index in range(at, after):
                    disk.apply(self.operations[index], what.get(index, ""))
                at, tree = after, disk.tree()
                found.setdefault(hash(frozenset(tree.items())), CrashState(after, loss, tree))
        return sorted(found.values(), key=lambda state: (state.after, state.loss))

    def describe(self, state: CrashState) -> str:
        """Return a power cut as text."""
        lost = [f"{self.operations[i].kind} {self.operations[i].path} {what}" for i, what in state.loss]
        last = self.operations[state.after - 1] if state.after else None
        at = f"after operation {state.after} of {len(self.operations)}" + (f", {last.kind} {last.path}" if last else "")
        return f"{at}; {', '.join(lost) or 'nothing lost'}"


def read_tree(root: Path) -> Tree:
    """Return the files and directories below a directory."""
    paths = {path.relative_to(root).as_posix(): path for path in root.rglob("*")}
    return {name: None if path.is_dir() else path.read_bytes() for name, path in paths.items()}
