# otel-gym as a container: the package with its pinned dependencies, no compiler, no root.
ARG PYTHON_TAG=3.13-slim
FROM python:${PYTHON_TAG} AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY otel_gym ./otel_gym
# The versions of constraints.txt, without its hashes: those bind pip to files, and the package itself has none.
RUN python -m venv /opt/otel-gym \
 && grep '^[A-Za-z0-9]' constraints.txt | sed 's/ *\\$//' > /tmp/versions.txt \
 && PIP_CONSTRAINT=/tmp/versions.txt /opt/otel-gym/bin/pip install --no-cache-dir --disable-pip-version-check .

FROM python:${PYTHON_TAG}
COPY --from=build /opt/otel-gym /opt/otel-gym
ENV PATH=/opt/otel-gym/bin:$PATH PYTHONUNBUFFERED=1
USER 10001:10001
ENTRYPOINT ["otel-gym"]
