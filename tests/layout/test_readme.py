"""The layout that the README draws."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from deltastore.layout.pieces import Layout
from tests.doubles.configs import QWEN3_0_6B

README = Path(__file__).parents[2] / "README.md"


def test_the_drawing_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    (example,) = (block for block in blocks if "layouts.Drawing(" in block)
    (tmp_path / "config.json").write_text(json.dumps(QWEN3_0_6B))
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(example, "README.md", "exec"), names)
    layout = names["layout"]
    assert isinstance(layout, Layout)
    assert [param.shape for param in layout.params] == [(3072, 1024)]
    assert [piece.tensor.split(".")[-2] for piece in layout.pieces] == ["q_proj", "k_proj"]
