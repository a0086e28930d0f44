#!/usr/bin/env bash
# Packs what is built for Debian: the build's target `deb` calls it with the build folder and cpack.
set -euo pipefail

if [ $# -ne 2 ]; then
  echo "deb.sh: expected the build folder and cpack; cmake --build build/release --target deb calls it" >&2
  exit 2
fi
build=$1 cpack=$2
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
for tool in dpkg-deb dpkg-shlibdeps; do
  if ! command -v "$tool" >/dev/null; then
    echo "deb.sh: $tool is missing, which finds what the programs need; apt-get install dpkg-dev" >&2
    exit 2
  fi
done

version=$(sed -n 's/^set(CPACK_PACKAGE_VERSION "\(.*\)")$/\1/p' "$build/CPackConfig.cmake")
contact=$(sed -n 's/^set(CPACK_PACKAGE_CONTACT "\(.*\)")$/\1/p' "$build/CPackConfig.cmake")
gzip -9nc >"$build/changelog.gz" <<TEXT
starling ($version) unstable; urgency=medium

  * /usr/share/doc/starling/CHANGELOG.md has what changed.

 -- $contact  $(date --utc -R -r CHANGELOG.md)
TEXT
rm -f "$build"/starling_*.deb "$build"/libstarling-dev_*.deb
# RPATHs are taken out after stripping, and the folders of a user with another umask are readable all the same.
umask 022
log=$(mktemp)
trap 'rm -f "$log"; rm -rf "$build/_CPack_Packages"' EXIT
if ! (cd "$build" && "$cpack" -G DEB) >"$log" 2>&1; then
  cat "$log" >&2
  exit 1
fi
for file in "$build"/starling_*.deb "$build"/libstarling-dev_*.deb; do
  printf 'deb: %s (%s MB)\n' "$file" "$(($(stat -c %s "$file") / 1000000))"
done
