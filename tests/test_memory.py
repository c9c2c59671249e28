"""Free memory as system and container tell it."""

from pathlib import Path

import pytest

from plogicnet import memory


def test_a_containers_limit_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    most, used = tmp_path / "max", tmp_path / "current"
    monkeypatch.setattr(memory, "LIMITS", [(most, used)])
    whole = memory.free_bytes()
    most.write_text(f"{10**9}\n")
    used.write_text(f"{10**9 - 2**27}\n")
    assert memory.free_bytes() == min(whole, 2**27)
    most.write_text("max\n")
    assert memory.free_bytes() > whole // 2


def test_a_setting_stands_above_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda: 1000)
    assert memory.allowed_bytes(3) == 3 * 2**20
    assert memory.allowed_bytes(0) == 500
