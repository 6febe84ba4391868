"""Tiny stages that end in every way a stage can, and a collector of their events."""

from __future__ import annotations

from pathlib import Path

from artifacts.invocation import Log, Outcome, Progress

STAGES = {
    "good": """
        say(event="progress", done=1, total=2, message="half", values={"loss": 0.5})
        say(event="log", level="info", message="working")
        print("a library speaks", file=sys.stderr)
        print("plain text on standard output")
        outcome(status="ok", version=request["version"], summary={"workdir": request["workdir"], "cwd": os.getcwd()})
    """,
    "infeasible": """
        outcome(status="error", kind="InfeasiblePlan", message="nothing fits", fix="add a GPU", details={"violations": ["memory"]})
        sys.exit(3)
    """,
    "unheard": """
        outcome(status="error", kind="NoSuchKind", message="odd")
        sys.exit(1)
    """,
    "bug": """
        raise ValueError("a bug in the stage")
    """,
    "silent": """
        sys.exit(5)
    """,
    "killed": """
        say(event="log", message="about to die")
        os.kill(os.getpid(), signal.SIGKILL)
    """,
    "late_crash": """
        outcome(status="ok", version="v1")
        os._exit(7)
    """,
    "polite": """
        def stop(*_):
            outcome(status="error", kind="StageCrashed", message="stopped, nothing was published")
            sys.exit(143)
        signal.signal(signal.SIGTERM, stop)
        say(event="log", message="ready")
        time.sleep(600)
    """,
    "stubborn": """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        say(event="log", message="ready")
        time.sleep(600)
    """,
    "finishes_when_asked": """
        def stop(*_):
            outcome(status="ok", version="v9")
            sys.exit(0)
        signal.signal(signal.SIGTERM, stop)
        say(event="log", message="ready")
        time.sleep(600)
    """,
    "hangs_at_exit": """
        outcome(status="ok", version="v2")
        time.sleep(600)
    """,
    "leaves_children": """
        children = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=new) for new in (False, True)]
        outcome(status="ok", version="v3", summary={"pids": [c.pid for c in children]})
    """,
    "waits_with_children": """
        children = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=new) for new in (False, True)]
        say(event="log", message="pids " + " ".join(str(p) for p in [os.getpid(), *(c.pid for c in children)]))
        time.sleep(600)
    """,
    "noisy": """
        raw = os.fdopen(1, "wb", closefd=False)
        raw.write(b"\\xff\\xfe not utf-8 \\xe2\\x82\\n")
        raw.write(b"x" * (5 * 2**20) + b"\\n")
        for n in range(20000):
            raw.write(b'{"event":"log","level":"debug","message":"line %d"}\\n' % n)
        raw.write(b'{"event":"log","message":\\n{"event":"nonsense"}\\n10%\\r20%\\r30%\\r\\n')
        raw.flush()
        for piece in ('{"event":"log","mess', 'age":"in pieces \\u20ac'.encode()[:-1], '\\u20ac'.encode()[-1:], '"}\\n'):
            raw.write(piece if isinstance(piece, bytes) else piece.encode()); raw.flush(); time.sleep(0.02)
        sys.stderr.write("e" * 100000 + "\\n"); sys.stderr.flush()
        raw.write(b'{"event":"outcome","status":"error","kind":"InputError","message":"not the last"}\\n')
        raw.write(b'{"event":"outcome","status":"ok","version":"v4"}'); raw.flush()  # no line end
    """,
    "look": """
        status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
        def writable(folder):
            try:
                open(os.path.join(folder, "probe"), "w").write("x")
                return True
            except OSError:
                return False
        with open("note.txt", "w") as file:
            file.write("left in the work folder")
        folders = ("/", "/usr", "/etc", "/app", "/dev/shm", "/tmp", os.getcwd())
        shm = os.statvfs("/dev/shm")
        outcome(status="ok", version="v6", summary={
            "uid": os.getuid(), "capabilities": int(status["CapEff"], 16), "no_new_privileges": int(status["NoNewPrivs"]),
            "seccomp": int(status["Seccomp"]), "writable": [folder for folder in folders if writable(folder)],
            "parent": open("/proc/1/comm").read().strip(), "home": os.environ["HOME"], "host": socket.gethostname(),
            "variables": sorted(n for n in os.environ if n.startswith(("AWS_", "HETRL_"))),
            "secret_length": len(os.environ.get("AWS_SECRET_ACCESS_KEY", "")), "mounted": os.path.exists("/data/model.txt"),
            "shm_bytes": shm.f_blocks * shm.f_frsize, "interfaces": sorted(os.listdir("/sys/class/net")),
        })
    """,
    "validate": """
        outcome(status="ok", version="v8")
    """,
    "writes_store": """
        folder = request["store"].removeprefix("file://")
        open(os.path.join(folder, "made.txt"), "w").write("by the stage")
        outcome(status="ok", version="v7", summary={"uid": os.getuid()})
    """,
    "hungry": """
        say(event="log", message="eating")
        held = []
        while True:
            held.append(bytearray(os.urandom(2**20)) * 8)
    """,
    "leaky": """
        say(event="log", message="the secret is " + os.environ["AWS_SECRET_ACCESS_KEY"])
        print("again " + os.environ["AWS_SECRET_ACCESS_KEY"], file=sys.stderr)
        outcome(status="ok", version="v5")
    """,
}

PREAMBLE = """
import json, os, signal, socket, subprocess, sys, time
request = json.load(open(sys.argv[sys.argv.index("--request") + 1]))
def say(**event): print(json.dumps(event), flush=True)
def outcome(**fields): say(event="outcome", **fields)
"""


def stage_source(name: str) -> str:
    """The program of a tiny stage."""
    lines = STAGES[name].strip("\n").split("\n")
    return PREAMBLE + "\n".join(line[8:] for line in lines) + "\n"

def write_stages(root: Path) -> Path:
    """Lay the tiny stages out below ``root`` as a checkout would be."""
    (root / "artifacts").mkdir()
    (root / "stages").mkdir()
    (root / "stages" / "__init__.py").write_text("")
    for name in STAGES:
        package = root / "stages" / name
        package.mkdir()
        (package / "__init__.py").write_text("")
        (package / "__main__.py").write_text(stage_source(name))
    return root


class Events(list[Log | Progress | Outcome]):
    """Collects events; ``logs`` are the messages of log lines."""

    def __call__(self, event: Log | Progress | Outcome) -> None:
        self.append(event)

    @property
    def logs(self) -> list[str]:
        return [e.message for e in self if isinstance(e, Log)]
