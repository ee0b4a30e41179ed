#!/usr/bin/env bash
# Train on a TPU VM slice of Google Cloud: one run with one process per worker.
#
#   launch/tpu_pod.sh [--dry-run] up      create or find the slice, install, run, follow the log
#   launch/tpu_pod.sh [--dry-run] create | install | run | logs | status | stop | delete
#   launch/tpu_pod.sh [--dry-run] keep    like up, repeated after each pre-emption until the run ends
#
# --dry-run only prints the commands.
#
# To fill in, here or in the environment:
#   PROJECT, ZONE   of your Google Cloud account; needs `gcloud auth login` and the enabled TPU API
#   NAME            of the slice
#   ACCELERATOR     type and number of chips:   gcloud compute tpus accelerator-types list --zone ZONE
#   VERSION         image for that type:        gcloud compute tpus versions list --zone ZONE
#   SPOT            1 for pre-emptible (cheaper) capacity
#   SHARE           NFS share that all workers can mount, such as a Filestore instance: 10.0.0.2:/runs. Every
#                   worker writes its part of a checkpoint, so all must use the same run folder.
#   CONFIG, WORKDIR, OPTIONS   arguments of `mvcl train`; WORKDIR and data must be on the share, at /mnt/share
#
# Runs the HEAD of this checkout. After a stop or pre-emption, `run` resumes from the newest checkpoint, on a slice of
# any size that divides the batch.
set -euo pipefail

PROJECT=${PROJECT:-my-project}
ZONE=${ZONE:-us-east1-d}
NAME=${NAME:-mvcl}
ACCELERATOR=${ACCELERATOR:-v6e-64}
VERSION=${VERSION:-v2-alpha-tpuv6e}
SPOT=${SPOT:-1}
SHARE=${SHARE:-}
CONFIG=${CONFIG:-configs/koromilas/cifar.py}
WORKDIR=${WORKDIR:-/mnt/share/runs/$NAME}
OPTIONS=${OPTIONS:-}
POLL_SECONDS=${POLL_SECONDS:-60}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
dry_run=0

usage() {
  sed -n '2,/^set /p' "${BASH_SOURCE[0]}" | sed -e '/^set /d' -e 's/^# \{0,1\}//'
}

do_() { # print a command in a dry run, else run it
  if ((dry_run)); then
    printf '%q ' "$@"
    echo
  else
    "$@"
  fi
}

tpu() {
  local verb=$1
  shift
  do_ gcloud compute tpus tpu-vm "$verb" "$NAME" --project="$PROJECT" --zone="$ZONE" "$@"
}

on_all() { # run a shell command on all workers; fails if it fails on any
  tpu ssh --worker=all --command="$1"
}

state() { # READY, PREEMPTED, ...; empty if there is no slice
  gcloud compute tpus tpu-vm describe "$NAME" --project="$PROJECT" --zone="$ZONE" \
    --format='value(state)' 2>/dev/null || true
}

create() {
  if ! ((dry_run)); then
    case $(state) in
      READY) echo "slice $NAME exists"; return ;;
      PREEMPTED | TERMINATED | STOPPED) delete ;;
    esac
  fi
  local spot=()
  if [[ $SPOT == 1 ]]; then spot=(--spot); fi
  tpu create --accelerator-type="$ACCELERATOR" --version="$VERSION" ${spot[@]+"${spot[@]}"}
}

install() {
  local archive
  archive=$(mktemp -d)/mvcl.tar.gz
  do_ git -C "$here" archive --format=tar.gz --output="$archive" HEAD
  do_ gcloud compute tpus tpu-vm scp "$archive" "$NAME:mvcl.tar.gz" --worker=all --project="$PROJECT" --zone="$ZONE"
  rm -rf "$(dirname "$archive")"
  local mount=true
  if [[ -n $SHARE ]]; then
    mount="sudo apt-get -qq update && sudo apt-get -qq install -y nfs-common && sudo mkdir -p /mnt/share && \
{ mountpoint -q /mnt/share || sudo mount -o rw,hard $(printf '%q' "$SHARE") /mnt/share; }"
  fi
  # Ubuntu 22.04 images have Python 3.10; their package archive has 3.11.
  # constraints.txt pins all versions, so that all workers have the same.
  on_all "set -e; $mount; rm -rf mvcl; mkdir mvcl; tar -xzf mvcl.tar.gz -C mvcl; cd mvcl; \
if ! [ -x ~/venv/bin/pip ]; then \
PY=\$(command -v python3.13 || command -v python3.12 || command -v python3.11) || \
{ sudo apt-get -qq update && sudo apt-get -qq install -y python3.11 python3.11-venv; PY=python3.11; }; \
\$PY -m venv ~/venv; fi; \
~/venv/bin/pip install --quiet --constraint constraints.txt --editable '.[train,tpu]'"
}

run() {
  local options=()
  if [[ -n $OPTIONS ]]; then read -r -a options <<<"$OPTIONS"; fi
  local command
  command=$(printf '%q ' train "$CONFIG" --workdir "$WORKDIR" ${options[@]+"${options[@]}"})
  # jax finds the other workers in the TPU's metadata. mvcl.pid has the process number, mvcl.exit the exit code.
  on_all "cd mvcl; rm -f ~/mvcl.exit; export TFDS_DATA_DIR=\${TFDS_DATA_DIR:-/mnt/share/data}; \
nohup setsid sh -c '~/venv/bin/mvcl $command & echo \$! > ~/mvcl.pid; wait \$!; echo \$? > ~/mvcl.exit' \
> ~/mvcl.log 2>&1 < /dev/null & sleep 1; echo started"
}

logs() {
  # Only worker 0 logs the run; `status` shows the others. The exit code is that of its process.
  # shellcheck disable=SC2016 # expanded by the worker's shell
  tpu ssh --worker=0 --command='touch ~/mvcl.log; tail -n +1 -F ~/mvcl.log & t=$!;
while [ ! -f ~/mvcl.exit ]; do sleep 2; done; sleep 1; kill $t; exit "$(cat ~/mvcl.exit)"'
}

status() {
  # shellcheck disable=SC2016 # expanded by the worker's shell
  on_all 'hostname; if [ -f ~/mvcl.exit ]; then echo "ended with exit code $(cat ~/mvcl.exit)"; else echo running; fi;
tail -n 3 ~/mvcl.log'
}

stop() { # SIGTERM: all processes save a checkpoint of the same step first
  # shellcheck disable=SC2016 # expanded by the worker's shell
  on_all '[ ! -f ~/mvcl.exit ] && kill -TERM "$(cat ~/mvcl.pid)" || echo "no run here"'
}

delete() {
  tpu delete --quiet
}

up() {
  create
  install
  run
  logs
}

keep() {
  if ((dry_run)); then
    up
    echo "# repeated every $POLL_SECONDS seconds while the slice is not READY, until the run has ended"
    return
  fi
  local code
  while true; do
    code=0
    # In a separate shell: -e has no effect inside `||`.
    "${BASH_SOURCE[0]}" up || code=$?
    while ((code == 255)) && [[ $(state) == READY ]]; do # ssh's code for a lost connection
      sleep "$POLL_SECONDS"
      code=0
      "${BASH_SOURCE[0]}" logs || code=$?
    done
    if [[ $(state) == READY ]]; then # the slice exists, so the run itself ended
      return "$code"
    fi
    echo "slice $NAME no longer exists; creating it again in $POLL_SECONDS seconds" >&2
    sleep "$POLL_SECONDS"
  done
}

while (($#)); do
  case $1 in
    --dry-run) dry_run=1 ;;
    -h | --help) usage; exit 0 ;;
    create | install | run | logs | status | stop | delete | up | keep) command=$1 ;;
    *) echo "tpu_pod.sh: unknown argument $1; see --help" >&2; exit 2 ;;
  esac
  shift
done
if [[ -z ${command:-} ]]; then
  usage >&2
  exit 2
fi
if [[ $PROJECT == my-project ]] && ! ((dry_run)); then
  echo "tpu_pod.sh: set PROJECT, ZONE and NAME first; see the top of the file" >&2
  exit 2
fi
"$command"
