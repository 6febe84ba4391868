"""Makes a base image from this machine's own Python, for builds where no base image can be pulled.

    python containers/base_from_host.py [--tag hetrl/base:host]

The image holds the interpreter and its standard library, the shared libraries they need, bash, busybox (Debian package
busybox-static) and lscpu, by which vLLM's CPU build looks for its cores. It is meant for building and testing without a registry; a
release is built on an official image.
It is made anew only when something in it has changed, so images built on it stay valid.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

TAG = "hetrl/base:host"
DIGEST_LABEL = "hetrl.base-digest"
PATH = "/usr/local/bin:/usr/bin:/bin"
_LEFT_OUT = {"site-packages", "test", "tests", "idlelib", "tkinter", "turtledemo", "lib2to3", "__pycache__"}
# Wheels with compiled code are linked against these, though the interpreter is not.
_FOR_WHEELS = ("libstdc++.so.6", "libgcc_s.so.1", "libgomp.so.1", "libm.so.6", "librt.so.1", "libdl.so.2", "libpthread.so.0",
               "libutil.so.1")
_FOLDERS = ("bin", "dev", "etc", "proc", "run", "root", "sys", "tmp", "usr/bin", "usr/local/bin", "usr/local/lib", "var/tmp")
_TEXTS = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
}


class CannotMake(Exception):
    """One line: what is missing and what to do."""


def contents() -> tuple[dict[str, Path], dict[str, str]]:
    """What goes in: path in the image → file here, and path → target of a symbolic link."""
    base = Path(sys.base_prefix)
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    files: dict[str, Path] = {}
    links = {f"usr/local/bin/{alias}": name for alias in ("python", "python3")}
    interpreter = (base / "bin" / name).resolve()
    if not interpreter.is_file():
        raise CannotMake(f"there is no {base / 'bin' / name}; run this with a regular Python installation (or a venv of one)")
    files[f"usr/local/bin/{name}"] = interpreter
    library = Path(sysconfig.get_path("stdlib"))
    for path in library.rglob("*"):
        relative = path.relative_to(library)
        if _wanted(relative) and path.is_file():
            files[f"usr/local/lib/{name}/{relative.as_posix()}"] = path
    for path in base.glob("lib/libpython*.so*"):
        if path.is_symlink():
            links[f"usr/local/lib/{path.name}"] = path.resolve().name
        else:
            files[f"usr/local/lib/{path.name}"] = path
    programs = {"bin/bash": _program("bash"), "usr/bin/lscpu": _program("lscpu")}
    files.update(programs, **{"bin/busybox": _busybox()})
    compiled = [p for p in files.values() if ".so" in p.name] + [interpreter, *programs.values()]
    files.update(_shared_libraries(compiled))
    for applet in subprocess.run([files["bin/busybox"], "--list"], capture_output=True, text=True, check=True).stdout.split():
        if f"bin/{applet}" not in files:
            links[f"bin/{applet}"] = "busybox"
    return files, links


def content_digest(files: dict[str, Path], links: dict[str, str]) -> str:
    total = hashlib.sha256()
    for name in sorted(files):
        total.update(f"{name}\0{hashlib.sha256(files[name].read_bytes()).hexdigest()}\n".encode())
    total.update(repr((sorted(links.items()), sorted(_TEXTS.items()), _FOLDERS, PATH)).encode())
    return total.hexdigest()


def write_tar(out: io.BufferedIOBase, files: dict[str, Path], links: dict[str, str]) -> None:
    """A tar of the image's file system: sorted, owned by root, without time stamps; the same bytes for the same content."""
    with tarfile.open(fileobj=out, mode="w|") as tar:
        inside = (*files, *links, *_TEXTS, *(f"{folder}/x" for folder in _FOLDERS))
        for folder in sorted({str(parent) for name in inside for parent in Path(name).parents} - {"."}):
            member = _member(folder, tarfile.DIRTYPE, 0o1777 if folder in ("tmp", "var/tmp") else 0o755)
            tar.addfile(member)
        for name, text in sorted(_TEXTS.items()):
            member = _member(name, tarfile.REGTYPE, 0o644)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
        for name, path in sorted(files.items()):
            mode = path.stat().st_mode & 0o755
            member = _member(name, tarfile.REGTYPE, mode | 0o444)
            member.size = path.stat().st_size
            with path.open("rb") as file:
                tar.addfile(member, file)
        for name, target in sorted(links.items()):
            member = _member(name, tarfile.SYMTYPE, 0o777)
            member.linkname = target
            tar.addfile(member)


def ensure(tag: str = TAG) -> str:
    """Make the image unless ``tag`` already holds exactly this; its id."""
    files, links = contents()
    digest = content_digest(files, links)
    known = _docker("image", "inspect", "--format", f'{{{{index .Config.Labels "{DIGEST_LABEL}"}}}} {{{{.Id}}}}', tag, check=False).split()
    if len(known) == 2 and known[0] == digest:
        return known[1]
    changes = [f"ENV PATH={PATH} LANG=C.UTF-8 LD_LIBRARY_PATH=/usr/local/lib", f"LABEL {DIGEST_LABEL}={digest}", 'CMD ["python3"]']
    command = ["docker", "import", *(part for change in changes for part in ("--change", change)), "-", tag]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it says itself what is wrong
            write_tar(process.stdin, files, links)  # type: ignore[arg-type]
        said, complaint = process.communicate()
    if process.returncode != 0:
        raise CannotMake(f"docker import failed: {complaint.decode(errors='replace').strip()}")
    return said.decode().strip()


def _member(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.mode = kind, mode
    return member


def _wanted(relative: Path) -> bool:
    left_out = _LEFT_OUT.intersection(relative.parts) or any(part.startswith(("config-", "_tkinter")) for part in relative.parts)
    return not left_out and relative.suffix not in (".a", ".o")


def _program(name: str) -> Path:
    found = shutil.which(name)
    if found is None:
        raise CannotMake(f"{name} is not installed")
    return Path(found).resolve()


def _busybox() -> Path:
    for candidate in ("/bin/busybox", "/usr/bin/busybox"):
        if Path(candidate).is_file() and not list(_needed_by(Path(candidate))):
            return Path(candidate).resolve()
    raise CannotMake("there is no statically linked busybox; type: sudo apt-get install busybox-static")


def _shared_libraries(compiled: Iterable[Path]) -> dict[str, Path]:
    """The libraries that ``compiled`` files and common wheels load, at the paths the loader looks for them."""
    needed = {path for file in compiled for path in _needed_by(file) if "libpython" not in path}
    folders = {str(Path(path).parent) for path in needed}
    needed.update(f"{folder}/{name}" for folder in folders for name in _FOR_WHEELS if Path(folder, name).exists())
    return {path.lstrip("/"): Path(path).resolve() for path in needed}


def _needed_by(file: Path) -> Iterator[str]:
    listing = subprocess.run(["ldd", str(file)], capture_output=True, text=True, check=False).stdout
    for match in re.finditer(r"(?:=> )?(/\S+) \(0x", listing):
        yield match.group(1)


def _docker(*arguments: str, check: bool = True) -> str:
    if shutil.which("docker") is None:
        raise CannotMake("the docker command is not installed; type: containers/engine.sh start")
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise CannotMake(done.stderr.strip())
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description="Make a base image from this machine's own Python.")
    parser.add_argument("--tag", default=TAG, help="name of the image (default: %(default)s)")
    arguments = parser.parse_args()
    try:
        print(f"{arguments.tag} {ensure(arguments.tag)}")
    except CannotMake as error:
        sys.exit(f"base_from_host: {error}")


if __name__ == "__main__":
    main()
