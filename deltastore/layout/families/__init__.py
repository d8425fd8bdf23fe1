"""Model families: from a Hugging Face configuration alone to the tensors of a checkpoint and their roles."""

from __future__ import annotations

from deltastore.layout.families.choosing import known_architectures, model_of

__all__ = ["known_architectures", "model_of"]
