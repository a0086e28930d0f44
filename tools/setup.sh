#!/usr/bin/env bash
# Installs what the build needs on Debian 12: compilers, build tools, libraries. Nothing else is touched.
# Does nothing, and says so, when everything is there already.
set -euo pipefail

usage() {
  cat <<'TEXT'
Usage: tools/setup.sh [--check] [--engines] [--help]

Installs the Debian 12 packages that Starling is built with (needs root, or sudo).
  --engines  what tests/engines runs or asks: Slurm, Prometheus, podman, a base of Debian, lintian, systemd's word on
             units; shells and man, which the test `pages` asks where they are; clang, for the test `threads`
  --check   only say what is missing; exit code 1 if something is
TEXT
}

# What each library is for: docs/dependencies.md.
packages=(
  g++ cmake ninja-build ccache mold pkg-config python3 clang-format mypy openssl
  libcaf-dev libcapnp-dev capnproto libzmq3-dev cppzmq-dev libsodium-dev libssl-dev libcurl4-openssl-dev
  libtomlplusplus-dev libcli11-dev nlohmann-json3-dev libspdlog-dev libfmt-dev libxxhash-dev libdw-dev libpcre2-dev libutf8proc-dev
  doctest-dev
)
# Debian's Boost packages exclude one another: whichever is there stays, and what else is needed of Boost is
# of the same version.
packages+=(libboost-context-dev)
boost=/usr/include/boost/version.hpp
if [ -e "$boost" ]; then
  version=$(sed -n 's/^#define BOOST_LIB_VERSION "\([0-9]*\)_\([0-9]*\).*/\1.\2/p' "$boost")
  packages[-1]=libboost-context$version-dev
else
  packages+=(libboost-dev)
fi

check_only=false
for argument in "$@"; do
  case "$argument" in
    --check) check_only=true ;;
    --engines) packages=(slurm-wlm slurmctld slurmd slurm-client munge systemd prometheus
      podman buildah runc catatonit netavark aardvark-dns iptables mmdebstrap dpkg-dev lintian man-db zsh fish clang) ;;
    -h | --help) usage; exit 0 ;;
    *) echo "setup.sh: unknown argument '$argument'; --help lists them" >&2; exit 2 ;;
  esac
done

if ! command -v dpkg-query >/dev/null; then
  echo "setup.sh: this is not a Debian system (no dpkg-query); packages needed: ${packages[*]}" >&2
  exit 2
fi

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null || true)
  # One line per architecture that is known; one installed is enough.
  grep -qx installed <<<"$state" || missing+=("$package")
done

if [ ${#missing[@]} -eq 0 ]; then
  echo "setup: all ${#packages[@]} packages are there"
  exit 0
fi
if $check_only; then
  echo "setup: missing: ${missing[*]}"
  exit 1
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "setup.sh: ${#missing[@]} packages are missing and installing needs root or sudo; as root run:" >&2
    echo "  apt-get update && apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 2
  fi
  as_root=(sudo)
fi

echo "setup: installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
quietly() {  # its output is shown only if it fails
  if ! "$@" >"$log" 2>&1; then
    cat "$log" >&2
    echo "setup.sh: failed: $*" >&2
    exit 2
  fi
}
quietly "${as_root[@]}" apt-get update
quietly "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install -y --no-install-recommends "${missing[@]}"
echo "setup: installed ${#missing[@]} packages"
