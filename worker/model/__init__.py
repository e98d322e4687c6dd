"""Models behind one interface (`engine/runner.py`): loaded, quantized, run by transformers or by the lean decoder."""
