#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# A file through two netcats whose sockets a preload library makes rsockets, compared at the end.
# usage: netcat.sh PRELOAD MEBIBYTES ADDRESS PORT
folder=$(mktemp -d "${TMPDIR:-.}/netcat.XXXXXX") || exit 1
mkfifo "$folder/input"
LD_PRELOAD=$1 nc.traditional -l -p "$4" < "$folder/input" > "$folder/copy" &
server=$!
exec 3> "$folder/input" # open, so that the server's input does not end
trap 'kill $server 2> /dev/null; rm -rf "$folder"' EXIT
head -c "$2M" /dev/urandom > "$folder/original"
for attempt in 1 2 3 4 5 6 7 8 9 10; do # until the server listens
	LD_PRELOAD=$1 nc.traditional -q 1 "$3" "$4" < "$folder/original" && break
	sleep 1
done
wait $server
cmp "$folder/original" "$folder/copy" && echo "the files are the same"
