"""What several tests share: servers and processes that they start and stop."""
