#!/usr/bin/env bash
# The Python package beside another project's of the same name, as `pip install starling` brings it: python_test.sh SOURCE
set -euo pipefail
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

import() {  # SUMMARY: of the distribution `starling` that is installed; the error's last line
  rm -rf "$work"/*
  mkdir "$work/starling-0.0.6.dist-info"
  printf 'Metadata-Version: 2.1\nName: starling\nVersion: 0.0.6\nSummary: %s\n' "$1" >"$work/starling-0.0.6.dist-info/METADATA"
  PYTHONPATH=$source/tools/python:$work python3 -c 'import starling' 2>&1 | tail -n 1 || true
}

said=$(import 'A toolkit of somebody else')
[[ $said == "ImportError: the package \`starling\` of the index is installed, another project's, "*"pip uninstall starling"* ]] ||
  { echo "not told: $said"; exit 1; }
said=$(import 'Elastic training of PyTorch models: an older wheel')
[[ $said != *"another project"* ]] || { echo "its own name is refused: $said"; exit 1; }
name=$(sed -n 's/^name = "\(.*\)"$/\1/p' "$source/tools/python/pyproject.toml")
[[ $name != starling ]] || { echo "the distribution has another project's name"; exit 1; }
# What the documents tell people to install is what the wheel is called.
if grep -rnE 'pip install ([^`]* )?starling( |$)' "$source/README.md" "$source/docs" "$source/examples" "$source/tools"/*.sh; then
  echo "another project's package is told to be installed"
  exit 1
fi
