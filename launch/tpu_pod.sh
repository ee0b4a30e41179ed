#!/usr/bin/env bash
# Train on TPU VM slices of Google Cloud: one run with one process per worker.
#
#   launch/tpu_pod.sh [--dry-run] up      create or find the slices, install, run, follow the log
#   launch/tpu_pod.sh [--dry-run] create | install | run | logs | status | stop | delete
#   launch/tpu_pod.sh [--dry-run] keep    like up, repeated after each pre-emption and maintenance until the run ends
#
# --dry-run only prints the commands.
#
# To fill in, here or in the environment:
#   PROJECT, ZONE   of your Google Cloud account; needs `gcloud auth login` and the enabled TPU API
#   NAME            of the slice, or of the queued resource of several
#   ACCELERATOR     type and number of chips:   gcloud compute tpus accelerator-types list --zone ZONE
#   VERSION         image for that type:        gcloud compute tpus versions list --zone ZONE
#   SLICES          slices of that type, joined by the data-centre network: adds --mesh.slices
#   SPOT            1 for pre-emptible (cheaper) capacity
#   AUTOCHECKPOINT  1: before maintenance the platform sends SIGTERM and waits up to 5 minutes while the run saves. A
#                   preview: needs `gcloud components install alpha`. 0 for types that do not have it
#   SHARE           NFS share that all workers can mount, such as a Filestore instance: 10.0.0.2:/runs. Every
#                   worker writes its part of a checkpoint, so all must use the same run folder.
#   CONFIG, WORKDIR, OPTIONS   arguments of `mvcl train`; WORKDIR and data must be on the share, at /mnt/share, or
#                   WORKDIR is a gs:// path of a bucket that the slice's service account may write
#
# Runs the HEAD of this checkout. After a stop or pre-emption, `run` resumes from the newest checkpoint, on slices of
# any size and number that divide the batch.
set -euo pipefail

PROJECT=${PROJECT:-my-project}
ZONE=${ZONE:-us-east1-d}
NAME=${NAME:-mvcl}
ACCELERATOR=${ACCELERATOR:-v6e-64}
VERSION=${VERSION:-v2-alpha-tpuv6e}
SLICES=${SLICES:-1}
SPOT=${SPOT:-1}
AUTOCHECKPOINT=${AUTOCHECKPOINT:-1}
SHARE=${SHARE:-}
CONFIG=${CONFIG:-koromilas/cifar}
WORKDIR=${WORKDIR:-/mnt/share/runs/$NAME}
OPTIONS=${OPTIONS:-}
POLL_SECONDS=${POLL_SECONDS:-60}
SAVED=143 # exit code of a run stopped by SIGTERM or a notice of the platform: 128 + 15

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

several() { ((SLICES > 1)); }

# One slice is a TPU VM; several are the nodes of one queued resource, and commands name the node too.
tpu() { # VERB [ARGUMENT ...]
  local verb=$1 group=tpu-vm
  shift
  if several; then group=queued-resources; fi
  do_ gcloud compute tpus "$group" "$verb" "$@" --project="$PROJECT" --zone="$ZONE"
}

on() { # WHICH COMMAND: run a shell command on all workers, or on the first; fails if it fails on any
  local which=("--worker=$1")
  if several; then which+=("--node=$1"); fi
  tpu ssh "$NAME" "${which[@]}" --command="$2"
}

state() { # READY or ACTIVE, PREEMPTED, ...; empty if there is no slice
  local group=tpu-vm field=state
  if several; then
    group=queued-resources
    field=state.state
  fi
  gcloud compute tpus "$group" describe "$NAME" --project="$PROJECT" --zone="$ZONE" \
    --format="value($field)" 2>/dev/null || true
}

exists() { [[ $1 == READY || $1 == ACTIVE ]]; }

create() {
  if ! ((dry_run)); then
    case $(state) in
      READY | ACTIVE) echo "slice $NAME exists"; return ;;
      PREEMPTED | TERMINATED | STOPPED | SUSPENDED | FAILED) delete ;;
    esac
  fi
  local group=tpu-vm version=--version release=() options=()
  if several; then
    group=queued-resources
    version=--runtime-version
    options+=("--node-count=$SLICES" "--node-prefix=$NAME")
  fi
  if [[ $SPOT == 1 ]]; then options+=(--spot); fi
  if [[ $AUTOCHECKPOINT == 1 ]]; then
    release=(alpha) # only the alpha release has the option
    options+=(--autocheckpoint-enabled)
  fi
  do_ gcloud ${release[@]+"${release[@]}"} compute tpus "$group" create "$NAME" --project="$PROJECT" --zone="$ZONE" \
    --accelerator-type="$ACCELERATOR" "$version=$VERSION" ${options[@]+"${options[@]}"}
  if several && ! ((dry_run)); then
    local now
    until now=$(state) && [[ $now == ACTIVE ]]; do # a queued resource waits for capacity
      if [[ $now == FAILED || $now == SUSPENDED ]]; then
        echo "tpu_pod.sh: queued resource $NAME is $now; see: gcloud compute tpus queued-resources describe $NAME" >&2
        return 1
      fi
      sleep "$POLL_SECONDS"
    done
  fi
}

install() {
  local archive all=(--worker=all) extras=tpu mount=true
  if several; then all+=(--node=all); fi
  archive=$(mktemp -d)/mvcl.tar.gz
  do_ git -C "$here" archive --format=tar.gz --output="$archive" HEAD
  tpu scp "$archive" "$NAME:mvcl.tar.gz" "${all[@]}"
  rm -rf "$(dirname "$archive")"
  if [[ $WORKDIR == gs:* ]]; then extras+=,bucket; fi
  if [[ -n $SHARE ]]; then
    mount="sudo apt-get -qq update && sudo apt-get -qq install -y nfs-common && sudo mkdir -p /mnt/share && \
{ mountpoint -q /mnt/share || sudo mount -o rw,hard $(printf '%q' "$SHARE") /mnt/share; }"
  fi
  # Ubuntu 22.04 images have Python 3.10; their package archive has 3.11.
  # constraints.txt pins all versions, so that all workers have the same.
  on all "set -e; $mount; rm -rf mvcl; mkdir mvcl; tar -xzf mvcl.tar.gz -C mvcl; cd mvcl; \
if ! [ -x ~/venv/bin/pip ]; then \
PY=\$(command -v python3.13 || command -v python3.12 || command -v python3.11) || \
{ sudo apt-get -qq update && sudo apt-get -qq install -y python3.11 python3.11-venv; PY=python3.11; }; \
\$PY -m venv ~/venv; fi; \
~/venv/bin/pip install --quiet --constraint constraints.txt --editable '.[$extras]'"
}

run() {
  local options=() command data=""
  if [[ -n $OPTIONS ]]; then read -r -a options <<<"$OPTIONS"; fi
  if several; then options+=(--mesh.slices "$SLICES"); fi
  if [[ -n $SHARE || $WORKDIR == /mnt/share/* ]]; then
    data="export TFDS_DATA_DIR=\${TFDS_DATA_DIR:-/mnt/share/data}; "
  fi
  command=$(printf '%q ' train "$CONFIG" --workdir "$WORKDIR" ${options[@]+"${options[@]}"})
  # jax finds the other workers in the TPU's metadata. mvcl.pid has the process number, mvcl.exit the exit code.
  on all "cd mvcl; rm -f ~/mvcl.exit ~/mvcl.pid ~/mvcl.stopped; ${data}\
nohup setsid sh -c '~/venv/bin/mvcl $command & echo \$! > ~/mvcl.pid; wait \$!; echo \$? > ~/mvcl.exit' \
> ~/mvcl.log 2>&1 < /dev/null & until [ -s ~/mvcl.pid ]; do sleep 0.2; done; echo started"
}

logs() {
  # Only worker 0 logs the run; `status` shows the others. The exit code is that of its process; a process that has
  # left none ended with its machine, so the run can go on as after SIGTERM.
  # shellcheck disable=SC2016 # expanded by the worker's shell
  on 0 'touch ~/mvcl.log; tail -n +1 -F ~/mvcl.log & t=$!;
while [ ! -f ~/mvcl.exit ] && grep -q mvcl "/proc/$(cat ~/mvcl.pid)/cmdline" 2>/dev/null; do sleep 2; done;
sleep 1; kill $t; [ -f ~/mvcl.exit ] || echo 143 > ~/mvcl.exit; exit "$(cat ~/mvcl.exit)"'
}

status() {
  # shellcheck disable=SC2016 # expanded by the worker's shell
  on all 'hostname; if [ -f ~/mvcl.exit ]; then echo "ended with exit code $(cat ~/mvcl.exit)"; else echo running; fi;
tail -n 3 ~/mvcl.log'
}

stop() { # SIGTERM: all processes save a checkpoint of the same step first; `keep` does not resume the run
  # shellcheck disable=SC2016 # expanded by the worker's shell
  on all 'touch ~/mvcl.stopped; [ ! -f ~/mvcl.exit ] && kill -TERM "$(cat ~/mvcl.pid)" || echo "no run here"'
}

delete() {
  local force=()
  if several; then force=(--force); fi # with its nodes
  tpu delete "$NAME" --quiet ${force[@]+"${force[@]}"}
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
    echo "# repeated every $POLL_SECONDS seconds after a pre-emption or maintenance, until the run has ended"
    return
  fi
  local code
  while true; do
    code=0
    # In a separate shell: -e has no effect inside `||`.
    "${BASH_SOURCE[0]}" up || code=$?
    while ((code == 255)) && exists "$(state)"; do # ssh's code for a lost connection
      sleep "$POLL_SECONDS"
      code=0
      "${BASH_SOURCE[0]}" logs || code=$?
    done
    if exists "$(state)"; then
      # The slice is there, so the run itself ended, unless the platform has stopped it, and not `stop`.
      if ((code != SAVED)) || on 0 'test -f ~/mvcl.stopped'; then
        return "$code"
      fi
      echo "the platform has stopped the run; starting it again in $POLL_SECONDS seconds" >&2
    else
      echo "slice $NAME no longer exists; creating it again in $POLL_SECONDS seconds" >&2
    fi
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
