"""From logits to tokens: adjusted, filtered, drawn by (seed, choice, position); rows never influence one another."""
