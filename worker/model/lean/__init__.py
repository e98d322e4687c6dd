"""The lean decoder: Llama and its relatives on the CPU kernels, one call a step."""
