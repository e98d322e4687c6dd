"""The model card under the name the engine and its loaders use; the type is shared with the other services."""

from common.model_card import ModelCard as ModelCardData

__all__ = ["ModelCardData"]
