#!/usr/bin/env bash
# A tree that was moved with its build folder is configured anew, without errors: configure_test.sh SOURCE
set -euo pipefail
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir -p "$work/first/tools/dev"
cp "$source/CMakePresets.json" "$work/first/"
cp "$source/tools/dev/configure.sh" "$work/first/tools/dev/"
printf 'cmake_minimum_required(VERSION 3.25)\nproject(moved LANGUAGES NONE)\nadd_custom_target(starling)\n' >"$work/first/CMakeLists.txt"
said=$("$work/first/tools/dev/configure.sh" release 2>&1) || { echo "$said"; exit 1; }
[[ $said != *anew* ]] || { echo "configured anew at first: $said"; exit 1; }
said=$("$work/first/tools/dev/configure.sh" release 2>&1)
[[ $said != *anew* ]] || { echo "configured anew without a reason: $said"; exit 1; }
mv "$work/first" "$work/second"
if (cd "$work/second" && cmake --preset release) >/dev/null 2>&1; then
  echo "CMake takes a moved tree by itself: tools/dev/configure.sh is not needed any more"
  exit 1
fi
said=$("$work/second/tools/dev/configure.sh" release 2>&1) || { echo "$said"; exit 1; }
[[ $said == *"was made for $work/first"* ]] || { echo "not told: $said"; exit 1; }
cmake --build "$work/second/build/release" --target starling >/dev/null
