#!/usr/bin/env bash
# Runs the CUDA compiler as it is told; what ptxas says of the kernels' registers goes to OBJECT.ptxas, beside
# the object, and only errors are shown.
#   compile_kernels.sh COMPILER ARGUMENTS...
set -euo pipefail
object=
for ((i = 1; i < $#; i++)); do
  [[ ${!i} != -o ]] || { j=$((i + 1)) && object=${!j}; }
done
if [[ -z $object ]]; then exec "$@"; fi
if "$@" 2>"$object.ptxas"; then exit 0; fi
status=$?
grep -v '^ptxas info' "$object.ptxas" >&2 || true
exit $status
