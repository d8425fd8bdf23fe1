"""Dumps by tensor names: what is right passes, and one wrong bit anywhere is named."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from deltastore.errors import InputError, NotFoundError
from deltastore.layout.memory import bits_of
from deltastore.validate.live import comparing, open_live
from tests.doubles.models import Tensors, bf16, copy_of, cut_table, every_dtype
from tests.doubles.stores import memory_store
from tests.doubles.training import Trainer

from .live_dumps import dump
from .live_streams import as_model, compared, refused, small

pytestmark = pytest.mark.usefixtures("small_windows")


class TestTensors:
    """Dumps by tensor names."""

    async def test_every_version_is_itself_and_no_other(self, tmp_path: Path) -> None:
        trainer = await small()
        for version in trainer.history:
            path = dump(tmp_path / f"{version}.safetensors", as_model(trainer, version))
            right = await compared(trainer.store, path, version=version)
            assert right.ok
            assert right.version == version
            assert right.elements == sum(one.size for one in trainer.model.values())
            assert right.instead is None
            newest = await compared(trainer.store, path)
            assert newest.version == 4
            assert newest.ok == (version == 4)
            assert newest.instead == (None if version == 4 else version)

    @pytest.mark.parametrize("jobs", [1, 3])
    async def test_one_bit_of_one_element(self, tmp_path: Path, jobs: int) -> None:
        model = every_dtype()
        trainer = await Trainer.create(memory_store(), model, table=cut_table(model, 3))
        await trainer.step(40)
        for name, tensor in list(model.items())[::3]:
            wrong = as_model(trainer, 1)
            flat = bits_of(name, wrong[name])
            flat[tensor.size - 2] ^= 1
            path = dump(tmp_path / f"{name}.safetensors", wrong)
            report = await compared(trainer.store, path, jobs=jobs)
            assert not report.ok
            assert report.differing == report.found == 1
            (apart,) = report.apart
            assert (apart.tensor, apart.elements, apart.index) == (name, 1, (tensor.size - 2,))
            digits = 2 * tensor.dtype.itemsize
            assert apart.live == f"{int(flat[tensor.size - 2]):0{digits}x}"
            assert apart.stored == f"{int(trainer.history[1][name][tensor.size - 2]):0{digits}x}"
            assert report.instead is None

    async def test_values_that_compare_equal_and_are_not(self, tmp_path: Path) -> None:
        model: Tensors = {"w": bf16([0x0000, 0x8000, 0x7FC0, 0x7FC1, 0xFFC0, 0x3F80])}
        trainer = await Trainer.create(memory_store(), model)
        for at, other in ((0, 0x8000), (1, 0x0000), (2, 0x7FC1), (3, 0x7FC0), (4, 0x7FC0)):
            wrong = copy_of(model)
            wrong["w"].view("<u2")[at] = other
            report = await compared(trainer.store, dump(tmp_path / "w.safetensors", wrong))
            assert [(one.index, one.live) for one in report.apart] == [((at,), f"{other:04x}")]
        assert (await compared(trainer.store, dump(tmp_path / "w.safetensors", model))).ok

    async def test_a_mixture_of_two_versions(self, tmp_path: Path) -> None:
        trainer = await small()
        names = [name for name, tensor in trainer.model.items() if tensor.size]
        mixed = {name: as_model(trainer, 2 if name in names[:2] else 1)[name] for name in trainer.model}
        path = dump(tmp_path / "mixed.safetensors", mixed)
        report = await compared(trainer.store, path, version=2)
        assert not report.ok
        assert report.instead is None
        assert list(report.shares) == [2, 1]
        assert report.shares[1] == report.differing
        assert sum(report.shares.values()) == report.chunks
        assert {one.tensor for one in report.apart} == set(names[2:])

    async def test_a_version_that_is_not_on_the_way_is_found_by_its_digest(self, tmp_path: Path) -> None:
        trainer = await small()
        path = dump(tmp_path / "four.safetensors", as_model(trainer, 4))
        report = await compared(trainer.store, path, version=2)
        assert report.instead == 4
        assert report.shares == {None: report.chunks}

    async def test_a_folder_and_a_dump_that_lacks_something(self, tmp_path: Path) -> None:
        trainer = await small()
        model = as_model(trainer, 4)
        names = list(model)
        dump(tmp_path / "both/a.safetensors", {name: model[name] for name in names[:2]})
        dump(tmp_path / "both/b.safetensors", {name: model[name] for name in names[2:]})
        assert (await compared(trainer.store, tmp_path / "both")).ok
        (tmp_path / "both/b.safetensors").unlink()
        await refused(trainer, tmp_path / "both", "missing_tensor")
        await refused(
            trainer, dump(tmp_path / "more.safetensors", {**model, "more": bf16([1])}), "unknown_tensor"
        )
        wide = {**model, names[0]: np.zeros((*model[names[0]].shape, 1), model[names[0]].dtype)}
        await refused(trainer, dump(tmp_path / "wide.safetensors", wide), "wrong_shape")

    async def test_no_such_version_and_no_such_file(self, tmp_path: Path) -> None:
        trainer = await small()
        path = dump(tmp_path / "w.safetensors", as_model(trainer, 4))
        with pytest.raises(NotFoundError) as caught:
            await compared(trainer.store, path, version=9)
        assert caught.value.code == "no_version"
        for wrong in ("absent", "absent.safetensors"):
            with pytest.raises(InputError):
                open_live(tmp_path / wrong)
        (tmp_path / "empty").mkdir()
        with pytest.raises(InputError, match="no attestation"):
            open_live(tmp_path / "empty")


async def test_memory_does_not_grow_with_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window of it, and what fetching that takes."""
    monkeypatch.setattr(comparing, "WINDOW_BYTES", 1 << 16)

    async def peak(tensors: int) -> int:
        model: Tensors = {f"layers.{number}.w": np.zeros((256, 512), np.uint16) for number in range(tensors)}
        trainer = await Trainer.create(memory_store(), model, table=cut_table(model, 8192))
        path = dump(tmp_path / f"{tensors}.safetensors", model)
        assert (await compared(trainer.store, path)).ok
        tracemalloc.start()
        await compared(trainer.store, path)
        grown = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return grown

    few, many = await peak(2), await peak(8)
    assert many - few < 6 * 256 * 512 * 2 / 8, "an eighth of what those tensors take"
