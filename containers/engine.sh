#!/usr/bin/env bash
# A Docker engine for tests and builds where none runs (CI, a machine without systemd).
#
#     containers/engine.sh start    installs Docker if root may, starts dockerd if none answers, waits until it does
#     containers/engine.sh stop     stops the dockerd that "start" started, and no other
#     containers/engine.sh status   says whether an engine answers
#
# HETRL_DOCKERD_ARGS are options for dockerd (a data root, another socket, which DOCKER_HOST then names); HETRL_ENGINE_STATE is the
# folder for its log and pid (.hetrl).
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${HETRL_ENGINE_STATE:-.hetrl}
state=$folder/dockerd.pid
log=$folder/dockerd.log

answers() { docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

# Start time of a process in clock ticks: tells it from a later one with the same pid.
started() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

# The pid of the engine we started, if it still runs.
ours() {
  local pid ticks
  [ -f "$state" ] && read -r pid ticks <"$state" && [ "$(started "$pid")" = "$ticks" ] && echo "$pid"
}

install_packages() {
  local wanted=()
  command -v dockerd >/dev/null || wanted+=(docker.io)
  command -v iptables >/dev/null || wanted+=(iptables)
  [ -x /bin/busybox ] && ! ldd /bin/busybox >/dev/null 2>&1 || wanted+=(busybox-static)
  [ ${#wanted[@]} -gt 0 ] || return 0
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    if ! command -v dockerd >/dev/null; then
      echo "engine: Docker is not installed; as an administrator, type: apt-get install ${wanted[*]}" >&2
      return 1
    fi
    return 0
  fi
  echo "engine: installing ${wanted[*]} …"
  { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${wanted[@]}"; } >>"$log" 2>&1 ||
    { echo "engine: apt-get failed; see $log" >&2; return 1; }
}

start() {
  mkdir -p "$folder"
  if answers; then
    echo "engine: a Docker engine answers already"
    [ "$(id -u)" != 0 ] || install_packages || true
    return 0
  fi
  if [ -n "${DOCKER_HOST:-}" ] && [ -z "${HETRL_DOCKERD_ARGS:-}" ]; then
    echo "engine: DOCKER_HOST is set, but no engine answers there; correct it, or unset it" >&2
    return 1
  fi
  install_packages
  if [ "$(id -u)" != 0 ]; then
    echo "engine: no engine answers; type: sudo systemctl start docker" >&2
    return 1
  fi
  # shellcheck disable=SC2086  (options are words)
  nohup setsid dockerd ${HETRL_DOCKERD_ARGS:-} >>"$log" 2>&1 </dev/null &
  local pid=$!
  echo "$pid $(started "$pid")" >"$state"
  for _ in $(seq 1 300); do
    if answers; then
      echo "engine: started (pid $pid, log $log)"
      return 0
    fi
    if [ ! -d "/proc/$pid" ]; then
      break
    fi
    sleep 0.2
  done
  echo "engine: dockerd does not come up; its last lines ($log):" >&2
  tail -n 5 "$log" >&2
  stop
  return 1
}

stop() {
  local pid
  if ! pid=$(ours); then
    rm -f "$state"
    echo "engine: none that we started"
    return 0
  fi
  kill -TERM "$pid"
  for _ in $(seq 1 150); do
    [ -d "/proc/$pid" ] || break
    sleep 0.2
  done
  [ ! -d "/proc/$pid" ] || kill -KILL "$pid"
  rm -f "$state"
  echo "engine: stopped (pid $pid)"
}

status() {
  if answers; then echo "engine: answers, version $(docker version --format '{{.Server.Version}}')"; else echo "engine: does not answer"; return 1; fi
}

case "${1:-}" in
  start | stop | status) "$1" ;;
  *) echo "usage: containers/engine.sh start|stop|status" >&2; exit 2 ;;
esac
