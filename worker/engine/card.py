"""The card of the model behind a runner: the shared type under the name that the worker uses."""

from common.model_card import ModelCard as ModelCardData

__all__ = ["ModelCardData"]
