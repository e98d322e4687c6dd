"""How much of a model's quality its quantization costs: perplexity, variety and size, against the unquantized source."""
