#!/usr/bin/env bash
# Build the image of this checkout, run gke_jobset.yaml with it on a GKE cluster, follow the log, stop it.
#
#   launch/gke.sh [--dry-run] up | build | apply | logs | status | stop
#   launch/gke.sh render                  print the completed YAML
#
# --dry-run only prints the commands.
#
# To fill in, here or in the environment:
#   IMAGE         image name with registry and tag; the cluster must be able to pull it
#   NAME          of the run; --workdir is /share/runs/NAME
#   ACCELERATOR, TOPOLOGY, CHIPS   labels of the TPU node pool, and chips per host
#   HOSTS         chips of the topology / CHIPS
#   SLICES        slices of that topology, joined by the data-centre network: adds --mesh.slices
#   CLAIM         PersistentVolumeClaim, ReadWriteMany, for runs and data
#   CONFIG, OPTIONS   arguments of `mvcl train`
# kubectl must be configured for the cluster (`gcloud container clusters get-credentials`), and docker must be
# able to push to the registry.
set -euo pipefail

IMAGE=${IMAGE:-my-registry/mvcl:latest}
NAME=${NAME:-mvcl}
ACCELERATOR=${ACCELERATOR:-tpu-v6e-slice}
TOPOLOGY=${TOPOLOGY:-4x4}
CHIPS=${CHIPS:-4}
HOSTS=${HOSTS:-4}
SLICES=${SLICES:-1}
CLAIM=${CLAIM:-mvcl-share}
CONFIG=${CONFIG:-koromilas/cifar}
OPTIONS=${OPTIONS:-}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
dry_run=0

usage() {
  sed -n '2,/^set /p' "${BASH_SOURCE[0]}" | sed -e '/^set /d' -e 's/^# \{0,1\}//'
}

do_() {
  if ((dry_run)); then
    printf '%q ' "$@"
    echo
  else
    "$@"
  fi
}

quoted() { # as JSON strings, which are valid YAML
  local word separator=""
  printf '['
  for word in "$@"; do
    word=${word//\\/\\\\}
    printf '%s"%s"' "$separator" "${word//\"/\\\"}"
    separator=", "
  done
  printf ']'
}

render() {
  local options=() text
  if [[ -n $OPTIONS ]]; then read -r -a options <<<"$OPTIONS"; fi
  if ((SLICES > 1)); then options+=(--mesh.slices "$SLICES"); fi
  text=$(grep -v '^#' "$here/launch/gke_jobset.yaml")
  for field in NAME IMAGE ACCELERATOR TOPOLOGY CHIPS HOSTS SLICES CLAIM; do
    text=${text//"{$field}"/"${!field}"}
  done
  printf '%s\n' "${text//"{ARGS}"/"$(quoted train "$CONFIG" --workdir "/share/runs/$NAME" ${options[@]+"${options[@]}"})"}"
}

build() {
  do_ docker build --file "$here/launch/Dockerfile" --tag "$IMAGE" --build-arg EXTRA=tpu "$here"
  do_ docker push "$IMAGE"
}

apply() {
  if ((dry_run)); then
    echo "kubectl apply --filename - <<'YAML'"
    render
    echo YAML
  else
    render | kubectl apply --filename -
  fi
}

logs() { # only the first host of the first slice logs the run
  local first="jobset.sigs.k8s.io/jobset-name=$NAME,jobset.sigs.k8s.io/job-index=0"
  first+=",batch.kubernetes.io/job-completion-index=0"
  do_ kubectl wait pod --selector "$first" --for=jsonpath='{.status.phase}'=Running --timeout=30m
  do_ kubectl logs --selector "$first" --follow --tail=-1
}

status() {
  do_ kubectl get jobset "$NAME"
  do_ kubectl get pods --selector "jobset.sigs.k8s.io/jobset-name=$NAME" --output wide
}

stop() { # SIGTERM: the run saves a checkpoint first
  do_ kubectl delete jobset "$NAME"
}

up() {
  build
  apply
  logs
}

while (($#)); do
  case $1 in
    --dry-run) dry_run=1 ;;
    -h | --help) usage; exit 0 ;;
    render | build | apply | logs | status | stop | up) command=$1 ;;
    *) echo "gke.sh: unknown argument $1; see --help" >&2; exit 2 ;;
  esac
  shift
done
if [[ -z ${command:-} ]]; then
  usage >&2
  exit 2
fi
if [[ $IMAGE == my-registry/* && $command != render ]] && ! ((dry_run)); then
  echo "gke.sh: set IMAGE first; see the top of the file" >&2
  exit 2
fi
"$command"
