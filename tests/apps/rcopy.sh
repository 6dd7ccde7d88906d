#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Copies a file of random bytes with rcopy to its server, which writes it beside the original, and compares
# the two. usage: rcopy.sh MEBIBYTES ADDRESS PORT
folder=$(mktemp -d "${TMPDIR:-.}/rcopy.XXXXXX") || exit 1
trap 'rm -rf "$folder"' EXIT
head -c "$1M" /dev/urandom > "$folder/original"
rcopy "$folder/original" "$2:$folder/copy" -p "$3" || exit 1
cmp "$folder/original" "$folder/copy" && echo "the files are the same"
