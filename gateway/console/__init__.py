"""The web console: what operators see in a browser, on the gateway's status port."""
