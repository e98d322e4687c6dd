"""The C interface's structures, as ``headrace_kernels.h`` declares them."""

import ctypes
from enum import IntEnum

ABI = 6
"""Equals HK_ABI of the header; a library with another number was built from other sources."""


class WeightFormat(IntEnum):
    """How the weights of a linear layer are stored."""

    INT8_ROWS = 0
    BLOCKS4 = 1
    BLOCKS8 = 2
    BFLOAT16 = 3
    NF4 = 4
    FP4 = 5


class KvFormat(IntEnum):
    """How keys and values are stored."""

    BFLOAT16 = 0
    INT8 = 1


class Linear(ctypes.Structure):
    """A linear layer: packed weights, row scales, bias; or embeddings, or a head."""

    _fields_ = [  # type: ignore[mutable-override]  # the stubs want a union of types
        ("weights", ctypes.c_void_p),
        ("scales", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("n", ctypes.c_int32),
        ("k", ctypes.c_int32),
        ("format", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
    ]


class Layer(ctypes.Structure):
    """One layer of a decoder and its share of the KV pool."""

    _fields_ = [  # type: ignore[mutable-override]  # the stubs want a union of types
        ("attention_norm", ctypes.c_void_p),
        ("mlp_norm", ctypes.c_void_p),
        ("query_norm", ctypes.c_void_p),
        ("key_norm", ctypes.c_void_p),
        ("qkv", Linear),
        ("out", Linear),
        ("gate_up", Linear),
        ("down", Linear),
        ("keys", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
        ("kv_scales", ctypes.c_void_p),
        ("window", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
    ]


class Model(ctypes.Structure):
    """A decoder."""

    _fields_ = [  # type: ignore[mutable-override]  # the stubs want a union of types
        ("layers", ctypes.POINTER(Layer)),
        ("embedding", Linear),
        ("head", Linear),
        ("final_norm", ctypes.c_void_p),
        ("inverse_frequencies", ctypes.c_void_p),
        ("rope_factor", ctypes.c_float),
        ("norm_epsilon", ctypes.c_float),
        ("attention_scale", ctypes.c_float),
        ("num_layers", ctypes.c_int32),
        ("hidden", ctypes.c_int32),
        ("vocab", ctypes.c_int32),
        ("heads", ctypes.c_int32),
        ("kv_heads", ctypes.c_int32),
        ("head_dim", ctypes.c_int32),
        ("intermediate", ctypes.c_int32),
        ("block_size", ctypes.c_int32),
        ("kv_format", ctypes.c_int32),
    ]


class Step(ctypes.Structure):
    """What one step computes."""

    _fields_ = [  # type: ignore[mutable-override]  # the stubs want a union of types
        ("token_ids", ctypes.c_void_p),
        ("positions", ctypes.c_void_p),
        ("rows", ctypes.c_void_p),
        ("row_first", ctypes.c_void_p),
        ("table_first", ctypes.c_void_p),
        ("tables", ctypes.c_void_p),
        ("logit_tokens", ctypes.c_void_p),
        ("logits", ctypes.c_void_p),
        ("num_tokens", ctypes.c_int32),
        ("num_rows", ctypes.c_int32),
        ("num_logits", ctypes.c_int32),
    ]
