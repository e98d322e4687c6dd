"""From reply logs to clients: a reader for each log, a mailbox for each follower of a request."""
