"""What a tenant's limits say about one request: a pure rule."""

from common.domain import Priority
from common.errors import PermissionDenied
from common.tenancy import TenantLimits


def check_model_allowed(limits: TenantLimits, model: str) -> None:
    """Before the model is looked for: who may not use it does not learn whether it exists.

    Raises:
        PermissionDenied: the tenant may not use it.
    """
    if not limits.allows_model(model):
        raise PermissionDenied(
            f"this tenant may not use the model {model[:100]!r}",
            reason="MODEL_NOT_ALLOWED",
            metadata={"model": model[:100]},
        )


def check_class_allowed(limits: TenantLimits, priority: Priority) -> None:
    """Raises PermissionDenied: the tenant may not ask for this class."""
    if priority > limits.highest_priority:
        raise PermissionDenied(
            f"this tenant may ask for {limits.highest_priority.name} at most",
            reason="CLASS_NOT_ALLOWED",
            metadata={
                "priority": priority.name,
                "highest_priority": limits.highest_priority.name,
            },
        )
