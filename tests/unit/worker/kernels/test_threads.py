"""The team of threads: every item once, no wait without end, however threads come and go."""

import numpy as np
import pytest

from worker.kernels.library import KernelsMissing, load

pytestmark = pytest.mark.timeout(600)

try:
    load()
except KernelsMissing as missing:
    pytest.skip(str(missing), allow_module_level=True)


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_short_runs_end(threads):
    """Thousands of runs of a few tiny items each, on more threads than cores: each ends, with every item done."""
    library = load()
    x = np.random.default_rng(0).standard_normal((7, 64)).astype(np.float32)
    expected = np.rint(x * (127 / np.abs(x).max(axis=1, keepdims=True)))
    q = np.zeros((7, 64), np.int8)
    scales, sums = np.zeros(7, np.float32), np.zeros(14, np.int32)
    for _ in range(20):
        engine = library.hk_engine_new(b"portable", threads)
        assert library.hk_engine_threads(engine) == threads
        for _ in range(100):
            q[:] = 0
            outputs = (q.ctypes.data, scales.ctypes.data, sums.ctypes.data)
            library.hk_quantize(engine, x.ctypes.data, 7, 64, *outputs)
            assert np.abs(q - expected).max() <= 1
        library.hk_engine_free(engine)
