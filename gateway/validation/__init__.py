"""What a request must look like: pure rules over a draft, all findings reported together."""
