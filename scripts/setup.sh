#!/usr/bin/env bash
# Sets up a fresh Debian or Ubuntu machine: `setup.sh` for running the pipeline, `setup.sh dev` also for its tests.
# Idempotent. It creates .venv from a lock file and installs TeX with apt when it is missing; it asks for sudo only then.
set -euo pipefail
cd "$(dirname "$0")/.."
kind=${1:-driver}
case $kind in driver | dev) ;; *) echo "usage: $0 [dev]" >&2; exit 2 ;; esac
say() { printf '\033[1m==> %s\033[0m\n' "$*"; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
  { echo "error: $python is missing or older than 3.11; set PYTHON to a newer one" >&2; exit 1; }

packages=()
"$python" -c 'import ensurepip, venv' 2>/dev/null || packages+=(python3-venv)
command -v git >/dev/null || packages+=(git)
if ! { command -v latexmk && command -v kpsewhich && kpsewhich pgfplots.sty siunitx.sty microtype.sty lmodern.sty; } >/dev/null 2>&1; then
  packages+=(latexmk lmodern texlive-latex-recommended texlive-latex-extra texlive-pictures texlive-science)
fi
if [ "$kind" = dev ]; then
  command -v pdftotext >/dev/null || packages+=(poppler-utils)
fi
command -v bwrap >/dev/null || packages+=(bubblewrap)
if [ ${#packages[@]} -gt 0 ]; then
  command -v apt-get >/dev/null || { echo "error: please install: ${packages[*]}" >&2; exit 1; }
  say "system packages: ${packages[*]}"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
fi

say "Python environment .venv ($kind)"
[ -x .venv/bin/python ] || "$python" -m venv .venv
[ -x .venv/bin/uv ] || .venv/bin/python -m pip install -q --disable-pip-version-check "uv>=0.9"
PYTHONPATH=src .venv/bin/python -m ddtree.envs "$kind"
say "ready: .venv/bin/snakemake --cores 8 report/ddtree.pdf"
