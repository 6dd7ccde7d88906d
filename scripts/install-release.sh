#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Unpacks a release of verbatim, a file or a URL, into a folder that is made for it, and tells what
# this machine allows. A SHA256SUMS beside the archive that names it has to be right.
# usage: install-release.sh ARCHIVE FOLDER
set -eu
archive=$1 folder=$2
fail() {
	echo "install-release.sh: $1" >&2
	exit 1
}
case $archive in
http://* | https://*)
	place=${archive%%[?#]*}
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	curl -fsSL -o "$work/${place##*/}" "$archive" || fail "$archive cannot be downloaded"
	curl -fsSL -o "$work/SHA256SUMS" "${place%/*}/SHA256SUMS" 2>"$work/said" || {
		[ $? -eq 22 ] || fail "whether there is a SHA256SUMS beside $archive cannot be told: $(cat "$work/said")"
		rm -f "$work/SHA256SUMS" # the server has none
	}
	archive=$work/${place##*/}
	;;
esac
sums=$(dirname "$archive")/SHA256SUMS
wanted=
[ ! -e "$sums" ] || wanted=$(sed -n "s/ [ *]$(basename "$archive")\$//p" "$sums")
if [ -n "$wanted" ]; then
	sum=$(sha256sum <"$archive")
	[ "${sum%% *}" = "$wanted" ] || fail "$1 is not what SHA256SUMS beside it says"
fi
mkdir -p "$folder"
tar -xzf "$archive" -C "$folder" --strip-components=1
"$folder/bin/verbatim" --version
"$folder/bin/verbatim" doctor || true # it says what is missing; tests decide whether they need it
