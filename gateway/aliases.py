"""What operators may say of names that point at models; `catalogue` resolves them."""

from common.aliases import Alias, NoFallback, Target, promoted
from common.errors import FieldViolation, InvalidRequest, NotFound
from common.streams.aliases import remove_alias, store_alias
from common.streams.node import Node
from common.wire.aliases import encode_alias
from gateway.catalogue import Catalogue
from gateway.validation.fields import check_model
from gateway.validation.findings import Findings

MAX_TARGETS = 16
_MAX_WEIGHT = 1_000_000
_BOUND_S = 2.0


class Aliases:
    """Sets and promotes names."""

    def __init__(self, node: Node, catalogue: Catalogue) -> None:
        """Through ``node``; ``catalogue`` knows models and names."""
        self._node = node
        self._catalogue = catalogue

    async def set(self, alias: Alias) -> Alias:
        """Let a name point there; without targets it is no name any more.

        Raises:
            InvalidRequest: what is wrong with it.
        """
        await self._catalogue.first_look()
        self._check(alias)
        if alias.current:
            await store_alias(self._node, alias.name, encode_alias(alias), bound_s=_BOUND_S)
        else:
            await remove_alias(self._node, alias.name, bound_s=_BOUND_S)
        await self._catalogue.refresh()
        return alias

    async def promote(self, name: str, revision: str) -> Alias:
        """All traffic of a name, or of a model by its own name, to a revision; or back to what was before.

        Raises:
            NotFound: there is no such name, or the revision was never served.
            InvalidRequest: there is nothing to go back to.
        """
        await self._catalogue.first_look()
        alias = self._catalogue.alias(name)
        if alias is None:
            model = await self._catalogue.get(name)
            alias = Alias(name, (Target(model.card.model, model.card.revision),))
        try:
            alias = promoted(alias, revision)
        except NoFallback:
            raise InvalidRequest(
                [FieldViolation("revision", f"must be named: {name} has no fallback")]
            ) from None
        if revision and not await self._catalogue.has_revision(alias.current[0].model, revision):
            raise NotFound(
                f"{alias.current[0].model} was never served at revision {revision[:100]!r}",
                reason="REVISION_NOT_FOUND",
                metadata={"resource_type": "revision", "resource_name": revision[:200]},
            )
        return await self.set(alias)

    def _check(self, alias: Alias) -> None:
        findings = Findings()
        check_model(alias.name, findings)
        models = {model.card.model for model in self._catalogue.models}
        for field, targets in (("current", alias.current), ("fallback", alias.fallback)):
            place = f"alias.{field}"
            if len(targets) > MAX_TARGETS:
                findings.add(place, f"must have at most {MAX_TARGETS} targets")
            if targets and not any(target.weight for target in targets):
                findings.add(place, "must have a target with a weight above 0")
            for index, target in enumerate(targets[:MAX_TARGETS]):
                if target.weight > _MAX_WEIGHT:
                    findings.add(f"{place}[{index}].weight", f"must be at most {_MAX_WEIGHT}")
                if target.model not in models:
                    findings.add(f"{place}[{index}].model", "must be a model that was served")
                elif alias.name in models and target.model != alias.name:
                    findings.add(
                        f"{place}[{index}].model",
                        f"must be {alias.name}: the name of a model points at its own revisions",
                    )
        if alias.fallback_above_waiting is not None and not alias.fallback:
            findings.add("alias.fallback_above_waiting", "needs a fallback")
        findings.raise_if_any()
