# The flow's image: Prefect's server, the S3 server and the worker of infra/compose.yaml and infra/kubernetes. No stage runs in it; it
# starts their containers. Not a target of containers/Dockerfile, whose legacy builder would build it for every stage.
#
#     python containers/build.py flow                                        without a network in the build
#     docker build -f containers/flow.Dockerfile -t hetrl/flow:latest .      by hand (packages from PyPI)
ARG BASE_IMAGE=python:3.11-slim

FROM ${BASE_IMAGE} AS build
COPY containers/requirements/light.txt containers/requirements/flow.txt containers/slim.sh infra/constraints.txt \
     containers/wheelhouse/light* containers/wheelhouse/flow* /wheels/
ARG PIP_NO_INDEX
RUN python -m venv /opt/hetrl \
 && PIP_FIND_LINKS=/wheels /opt/hetrl/bin/pip install -q --no-cache-dir -c /wheels/constraints.txt -r /wheels/flow.txt \
 && /opt/hetrl/bin/pip uninstall -q -y pip setuptools \
 && sh /wheels/slim.sh /opt/hetrl

FROM ${BASE_IMAGE} AS flow
ENV PATH=/opt/hetrl/bin:${PATH} PYTHONPATH=/opt/hetrl/app LANG=C.UTF-8 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp \
    DO_NOT_TRACK=1 PREFECT_SERVER_ANALYTICS_ENABLED=false
COPY --from=build /opt/hetrl /opt/hetrl
WORKDIR /opt/hetrl/app
ARG HETRL_VERSION=0+source
ARG FLOW_DIGEST
RUN mkdir hetrl-${HETRL_VERSION}.dist-info \
 && printf 'Metadata-Version: 2.1\nName: hetrl\nVersion: %s\n' "${HETRL_VERSION}" > hetrl-${HETRL_VERSION}.dist-info/METADATA \
 && mkdir -m 1777 /data /leases
COPY artifacts artifacts
COPY stages stages
COPY flows flows
COPY prefect.yaml prefect.yaml
COPY infra/jobs infra/jobs
COPY infra/clusters infra/clusters
USER 65534:65534
LABEL org.opencontainers.image.title=hetrl-flow org.opencontainers.image.version=${HETRL_VERSION} hetrl.code-digest=${FLOW_DIGEST}
