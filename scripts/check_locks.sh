#!/usr/bin/env bash
# Resolves every lock (or those named: `check_locks.sh sglang-0.5.23`) against the package index without installing it,
# hashes included, and checks that each package of a requirements.in is pinned by its lock.
set -euo pipefail
cd "$(dirname "$0")/.."
uv=.venv/bin/uv
[ -x "$uv" ] || { echo "error: $uv is missing; run scripts/setup.sh" >&2; exit 2; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$uv" venv -q --python "${PYTHON:-.venv/bin/python}" "$scratch/env"

[ $# -gt 0 ] || set -- $(cd envs && ls -d */ | tr -d /)
failed=0
for name in "$@"; do
  folder=envs/$name
  [ -f "$folder/requirements.lock" ] || { echo "error: $folder/requirements.lock does not exist" >&2; exit 2; }
  for wanted in $(sed -n 's/^\([A-Za-z0-9][A-Za-z0-9._-]*\).*/\1/p' "$folder/requirements.in" | tr 'A-Z._' 'a-z--'); do
    grep -q "^$wanted==" "$folder/requirements.lock" || { echo "$name: $wanted is not in the lock" >&2; failed=1; }
  done
  if "$uv" pip install -q --dry-run --require-hashes --python "$scratch/env/bin/python" -r "$folder/requirements.lock" \
    2>"$scratch/said"; then
    echo "$name: $(grep -c '^[a-z0-9].*==' "$folder/requirements.lock") packages resolve"
  else
    sed "s/^/$name: /" "$scratch/said" >&2
    failed=1
  fi
done
exit $failed
