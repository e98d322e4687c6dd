"""Tests: unit (pure), integration (real Redis and gRPC), e2e (processes, real model)."""
