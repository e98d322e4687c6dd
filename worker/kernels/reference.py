"""Each kernel in plain torch: what tests hold the compiled ones against."""

import torch

GROUP = 64
LEVELS = 127.0


def quantize(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Int8 values and a scale for each group of 64, of ``x`` [rows, multiple of 64]."""
    groups = x.view(x.shape[0], -1, GROUP)
    scales = groups.abs().amax(dim=-1) / LEVELS
    steps = torch.round(groups / scales.clamp_min(1e-30).unsqueeze(-1))
    return steps.to(torch.int8).view_as(x), scales


def dequantize(steps: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """What quantized activations stand for."""
    return (steps.view(*scales.shape, GROUP).float() * scales.unsqueeze(-1)).view(steps.shape)


def norm(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """RMS norm over the last dimension."""
    return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + epsilon) * weight


def linear(
    steps: torch.Tensor, scales: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """Quantized activations times what the weights [outputs, inputs] stand for, in float64."""
    out = dequantize(steps, scales).double() @ weight.double().t()
    return (out if bias is None else out + bias.double()).float()


def rope(x: torch.Tensor, positions: torch.Tensor, frequencies: torch.Tensor) -> torch.Tensor:
    """Rotates ``x`` [tokens, heads, dim], whose halves are the two coordinates."""
    angles = (positions.float()[:, None] * frequencies).unsqueeze(1)
    cosine, sine = angles.cos(), angles.sin()
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cosine - b * sine, b * cosine + a * sine), dim=-1)


def attention(
    query: torch.Tensor,  # [tokens, heads, dim]
    key: torch.Tensor,  # [tokens, kv heads, dim]
    value: torch.Tensor,
    window: int,
    *,
    in_int8: bool = False,
) -> torch.Tensor:
    """Causal attention of one whole sequence; keys and values are kept as bfloat16, or with the query as int8."""
    tokens, heads, dim = query.shape
    group = heads // key.shape[1]
    if in_int8:
        query, key, value = (in_steps(x) for x in (query, key, value))
    else:
        key, value = (x.bfloat16().float() for x in (key, value))
    key, value = (x.repeat_interleave(group, dim=1) for x in (key, value))
    scores = torch.einsum("qhd,khd->hqk", query, key) * dim**-0.5
    distance = torch.arange(tokens)[:, None] - torch.arange(tokens)[None, :]
    hidden = (distance < 0) | (distance >= window if window else distance < 0)
    weights = scores.masked_fill(hidden, float("-inf")).softmax(dim=-1)
    return torch.einsum("hqk,khd->qhd", weights, value)


def in_steps(x: torch.Tensor) -> torch.Tensor:
    """``x`` as int8 with one scale for the last dimension stands for it."""
    scale = x.abs().amax(dim=-1, keepdim=True) / LEVELS
    return torch.round(x / scale.clamp_min(1e-30)) * scale
