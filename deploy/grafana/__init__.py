"""Dashboards: described here in a few lines a panel, written as Grafana's JSON by `python -m deploy.grafana`."""
