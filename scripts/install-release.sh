#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Unpacks a release of verbatim, a file or a URL, into a folder that is made for it, and tells what
# this machine allows.
# usage: install-release.sh ARCHIVE FOLDER
set -eu
archive=$1 folder=$2
mkdir -p "$folder"
case $archive in
http://* | https://*)
	packed=$(mktemp)
	trap 'rm -f "$packed"' EXIT
	curl -fsSL -o "$packed" "$archive"
	archive=$packed
	;;
esac
tar -xzf "$archive" -C "$folder" --strip-components=1
"$folder/bin/verbatim" --version
"$folder/bin/verbatim" doctor || true # it says what is missing; tests decide whether they need it
