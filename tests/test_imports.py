"""What ``import deltastore`` loads, and what it offers."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import deltastore

HEAVY = (
    *("torch", "tensorstore", "zarr", "rich", "typer", "pydantic", "numpy", "transformers", "safetensors"),
    *("aiobotocore", "botocore", "aiohttp", "obstore"),
)


def loaded_by(statement: str) -> set[str]:
    """The top-level names in sys.modules of a fresh interpreter that ran ``statement``."""
    program = f"import sys\n{statement}\nprint(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in result.stdout.split()}


def test_import_is_light() -> None:
    assert loaded_by("import deltastore").isdisjoint(HEAVY)


def test_the_probe_of_loaded_modules_sees_what_an_import_loads() -> None:
    assert "numpy" in loaded_by("import deltastore.kernels.cpu")


def test_an_error_class_costs_nothing_heavy() -> None:
    assert loaded_by("from deltastore import InputError").isdisjoint(HEAVY)


@pytest.mark.parametrize("name", [name for name in deltastore.__all__ if name != "__version__"])
def test_public_name_is_the_object_of_its_home(name: str) -> None:
    home = importlib.import_module(deltastore._HOMES[name])
    assert getattr(deltastore, name) is getattr(home, name)
    assert name in dir(deltastore)


def test_the_table_of_homes_lists_exactly_the_public_names() -> None:
    assert set(deltastore._HOMES) == set(deltastore.__all__) - {"__version__"}


def test_type_checkers_see_every_name_in_the_module_that_defines_it() -> None:
    tree = ast.parse(Path(deltastore.__file__).read_text())
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in guarded.body if isinstance(node, ast.ImportFrom)]
    seen = {alias.name: node.module for node in imports for alias in node.names}
    assert seen == deltastore._HOMES


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        deltastore.no_such_name  # noqa: B018
    assert not hasattr(deltastore, "no_such_name")


def test_missing_extension_says_how_to_build_it() -> None:
    program = (
        "import sys\n"
        "sys.modules['deltastore.kernels.cpu._native'] = None\n"
        "try:\n"
        "    import deltastore.kernels.cpu\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install -e ." in result.stdout
