"""Grafana dashboards as Python; `python -m dashboards` writes them as JSON, and the page that explains them."""
