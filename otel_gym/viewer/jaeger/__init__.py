"""Jaeger's query API over the files: what Grafana's data source and Jaeger's own clients call, answered with the spans that an export would send.

https://www.jaegertracing.io/docs/latest/apis/: v1 (`/api/...`, in use up to Jaeger 2.20) and v3 (`/api/v3/...`, OTLP JSON).
"""
