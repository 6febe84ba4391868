"""Builds the stages' images, without a network in the build.

    python containers/build.py                     all of them
    python containers/build.py profile schedule    these
    python containers/build.py flow                the flow's own image, for infra/compose.yaml
    python containers/build.py --rollout vllm deploy train    with vLLM's CPU build, for jobs with engine.rollout: vllm (0.6 GB more)
    python containers/build.py --offline           nothing is downloaded: the wheelhouse is there, the base image or this Python is

Run it with the project's own Python. The packages come from a wheelhouse that this Python's pip fills (containers/wheelhouse);
the base image is python:<version>-slim, or, where that cannot be pulled, one made from this machine's Python.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import tarfile
import tempfile
import time
import tomllib
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT), str(HERE)]

try:
    import base_from_host
    import docker
    import wheelhouse
    from docker.errors import APIError, DockerException, ImageNotFound
    from requests.exceptions import RequestException
    from wheelhouse import CannotBuild

    from artifacts.errors import HetrlError
    from flows.launch.code import code_digest
    from flows.launch.docker_settings import DockerSettings
    from flows.launch.engine import connect
except ImportError as error:
    sys.exit(f"build: {error.name} is not installed; run this with the Python that has hetrl: pip install -e .")

# In the order of the Dockerfile: the legacy builder builds everything above its target.
LAYERS = {"profile": "light", "validate": "light", "schedule": "solver", "deploy": "engine", "train": "engine"}
FLOW = "flow"
"""No stage: Prefect's server and worker, in a Dockerfile of its own. Built when it is named."""
_SHOWN_ON_FAILURE = 25


def say(text: str) -> None:
    print(f"build: {text}", flush=True)


def build(stages: list[str], *, offline: bool, online: bool, base_image: str | None, engine: str,
          rollout: str = "hf") -> list[tuple[str, str, int, float]]:
    """Build the images of ``stages``: (name, id, bytes, seconds) of each. Raises ``CannotBuild`` or a ``HetrlError``."""
    client = connect()
    # A build may be silent for long (pip, copying a large layer): no time-out between two lines of it.
    client.api.timeout = None
    base = find_base(client, base_image, offline=offline)
    say(f"base image {base}")
    if not online:
        check_python(client, base)
        for layer in dict.fromkeys(LAYERS.get(s, s) for s in stages):
            wheelhouse.ensure(_engine_layers(engine, rollout)[-1] if layer == "engine" else layer, offline=offline, say=say)
    arguments = {"BASE_IMAGE": base, "ENGINE": engine, "ROLLOUT": rollout, "HETRL_VERSION": project_version(),
                 **{f"{s.upper()}_DIGEST": code_digest(s, ROOT) for s in LAYERS if (ROOT / "stages" / s).is_dir()}}
    if FLOW in stages:
        arguments["FLOW_DIGEST"] = flow_digest()
    if not online:
        arguments["PIP_NO_INDEX"] = "1"
    settings = DockerSettings.from_env()
    done = []
    for stage in (s for s in (*LAYERS, FLOW) if s in stages):
        started = time.monotonic()
        name = settings.image(stage)
        layers = [] if online else _layers_up_to(stage, engine, rollout)
        with tempfile.TemporaryFile() as context:
            write_context(context, layers, _FLOW_PARTS if stage == FLOW else _STAGE_PARTS)
            context.seek(0)
            run_build(client, context, stage=stage, name=name, arguments=arguments, network="default" if online else "none")
        image = client.images.get(name)
        done.append((name, str(image.id), int(image.attrs["Size"]), time.monotonic() - started))
        say(f"{name} is ready: {image.attrs['Size'] / 1e6:.0f} MB, {done[-1][3]:.1f} s")
    return done


def find_base(client: docker.DockerClient, wanted: str | None, *, offline: bool) -> str:
    """The image asked for; else the slim Python that is here or can be pulled; else one made from this Python."""
    name = wanted or os.environ.get("BASE_IMAGE") or f"python:{sys.version_info[0]}.{sys.version_info[1]}-slim"
    asked_for = name == wanted or name == os.environ.get("BASE_IMAGE")
    try:
        client.images.get(name)
        return name
    except ImageNotFound:
        if not offline:
            say(f"pulling {name} …")
            try:
                client.images.pull(name)
                return name
            except (DockerException, RequestException) as error:
                reason = str(getattr(error, "explanation", "") or error).splitlines()[0]
                if asked_for:
                    raise CannotBuild(f"cannot pull {name}: {reason}") from None
                say(f"cannot pull it ({reason.rpartition(': ')[2]}); making a base image from this machine's Python")
    if asked_for:
        raise CannotBuild(f"base image {name} is not here, and --offline forbids to pull it")
    try:
        base_from_host.ensure(base_from_host.TAG)
    except base_from_host.CannotMake as error:
        raise CannotBuild(str(error)) from None
    return base_from_host.TAG


def check_python(client: docker.DockerClient, base: str) -> None:
    """The wheels are for this Python and Linux; the base image must have the same."""
    if sys.platform != "linux":
        raise CannotBuild("a wheelhouse made here would not fit Linux; add --online")
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    try:
        there = client.containers.run(base, ["python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], entrypoint=[],
                                      network_mode="none", remove=True, labels={"hetrl.build": "1"}).decode().strip()
    except DockerException as error:
        raise CannotBuild(f"base image {base} cannot run python3: {error}") from None
    if there != here:
        raise CannotBuild(f"base image {base} has Python {there}, this is {here}; run this with Python {there}, or add --online")


_STAGE_PARTS = ("artifacts", "stages")
_FLOW_PARTS = (*_STAGE_PARTS, "flows", "infra/jobs", "infra/clusters", "prefect.yaml")


def write_context(out: IO[bytes], layers: list[str], parts: tuple[str, ...] = _STAGE_PARTS) -> None:
    """The build context: what the Dockerfile copies and no more; normalised, so that the builder's cache sees only content."""
    with tarfile.open(fileobj=out, mode="w") as tar:
        for path in sorted(_context_files(layers, parts)):
            member = tarfile.TarInfo(path.relative_to(ROOT).as_posix())
            member.size, member.mode = path.stat().st_size, 0o644
            with path.open("rb") as file:
                tar.addfile(member, file)


def flow_digest() -> str:
    """sha256 of everything of ours that is in the flow's image."""
    total = hashlib.sha256()
    for path in sorted(_context_files([], _FLOW_PARTS)):
        total.update(f"{path.relative_to(ROOT).as_posix()}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()


def run_build(client: docker.DockerClient, context: IO[bytes], *, stage: str, name: str, arguments: dict[str, str], network: str) -> None:
    """One build, its steps told as they start; the last lines of the output when it fails."""
    last: deque[str] = deque(maxlen=_SHOWN_ON_FAILURE)
    try:
        file = "containers/flow.Dockerfile" if stage == FLOW else "containers/Dockerfile"
        stream = client.api.build(fileobj=context, custom_context=True, dockerfile=file, target=stage, tag=name, rm=True,
                                  forcerm=True, decode=True, buildargs=arguments, network_mode=network)
        step = ""
        for message in stream:
            for line in _lines(message):
                last.append(line)
                if line.startswith("Step "):
                    step = "" if _trivial(line) else line
                elif step:
                    if "Using cache" not in line:  # what is cached is not worth a line
                        say(f"{stage}: {step[:110]}")
                    step = ""
            if "error" in message:
                shown = "\n    ".join(last)
                raise CannotBuild(f"{stage} cannot be built; the last lines were\n    {shown}")
    except (APIError, RequestException) as error:
        raise CannotBuild(f"{stage} cannot be built: {error}") from None


def project_version() -> str:
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])


def _layers_up_to(stage: str, engine: str, rollout: str = "hf") -> list[str]:
    """The wheelhouse layers that the Dockerfile uses up to this target."""
    if stage == FLOW:
        return ["light", FLOW]
    order = ["light", "solver", "engine"]
    used = order[: order.index(LAYERS[stage]) + 1]
    return [part for layer in used for part in (_engine_layers(engine, rollout) if layer == "engine" else [layer])]


def _engine_layers(engine: str, rollout: str) -> list[str]:
    """The last holds what is asked for. With CUDA vLLM is among the engine's own packages."""
    return [f"engine-{engine}", *(["engine-cpu-vllm"] if (engine, rollout) == ("cpu", "vllm") else [])]


def _context_files(layers: list[str], parts: tuple[str, ...]) -> Iterator[Path]:
    yield HERE / ("flow.Dockerfile" if "flows" in parts else "Dockerfile")
    yield HERE / "slim.sh"
    yield wheelhouse.CONSTRAINTS
    yield from wheelhouse.ALONE.values()
    yield from (HERE / "requirements").glob("*.txt")
    for layer in layers:
        yield from (wheelhouse.WHEELHOUSE / layer).glob("*")
    for part in parts:
        for path in (ROOT / part).rglob("*") if (ROOT / part).is_dir() else [ROOT / part]:
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc" and not path.name.startswith("."):
                yield path


def _lines(message: dict[str, Any]) -> list[str]:
    text = str(message.get("stream") or message.get("error") or "")
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def _trivial(step: str) -> bool:
    instruction = step.partition(" : ")[2].split(" ", 1)[0]
    return instruction not in ("COPY", "RUN")


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the stages' images.", epilog="example: python containers/build.py profile schedule")
    parser.add_argument("stages", nargs="*", metavar="stage", help=f"which (default: all): {', '.join(LAYERS)}; or flow")
    parser.add_argument("--offline", action="store_true", help="download nothing: neither packages nor a base image")
    parser.add_argument("--online", action="store_true", help="no wheelhouse: pip runs in the build, with a network")
    parser.add_argument("--base-image", metavar="IMAGE", help="instead of python:<version>-slim (or set BASE_IMAGE)")
    parser.add_argument("--engine", choices=("cpu", "cuda"), default="cpu", help="for deploy and train (default: cpu)")
    parser.add_argument("--rollout", choices=("hf", "vllm"), default="hf",
                        help="for deploy and train without GPUs: vllm adds vLLM's CPU build; hf needs nothing (default: hf)")
    arguments = parser.parse_args()
    unknown = [s for s in arguments.stages if s not in LAYERS and s != FLOW]
    if unknown:
        parser.error(f"no stage named {unknown[0]!r}; there are: {', '.join(LAYERS)}")
    if arguments.offline and arguments.online:
        parser.error("--offline and --online exclude each other")
    try:
        done = build(arguments.stages or list(LAYERS), offline=arguments.offline, online=arguments.online, base_image=arguments.base_image,
                     engine=arguments.engine, rollout=arguments.rollout)
    except CannotBuild as error:
        sys.exit(f"build: {error}")
    except HetrlError as error:
        sys.exit(f"build: {error.line}")
    except KeyboardInterrupt:
        print("build: interrupted; what was finished is kept", file=sys.stderr)
        sys.exit(130)
    for name, identity, size, seconds in done:
        print(f"{name:<32} {identity.removeprefix('sha256:')[:12]}  {size / 1e6:6.0f} MB  {seconds:5.1f} s")


if __name__ == "__main__":
    main()
