#!/bin/bash
# The man page has no mistakes that mandoc knows. Usage: manual.sh PAGE
set -euo pipefail
command -v mandoc >/dev/null || { echo "skipped: mandoc is not installed"; exit 77; }
mandoc -T lint -W warning "$1"
