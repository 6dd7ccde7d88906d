#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# redis-server with redis-benchmark and redis-cli, whose sockets a preload library makes rsockets: counts and
# values are checked, and that no connection of theirs was one of TCP. At the end a client without the library
# reads over TCP what was written. usage: redis.sh PRELOAD ADDRESS PORT
preload=$1 address=$2 port=$3
folder=$(mktemp -d "${TMPDIR:-.}/redis.XXXXXX") || exit 1
LD_PRELOAD=$preload redis-server --bind "$address" --port "$port" --save '' --dir "$folder" --daemonize no --protected-mode no > "$folder/log" &
server=$!
trap 'kill $server 2> /dev/null; wait $server; rm -rf "$folder"' EXIT

fail() { echo "$*"; tail -5 "$folder/log"; exit 1; }
cli() { LD_PRELOAD=$preload redis-cli -h "$address" -p "$port" "$@"; }
bench() { LD_PRELOAD=$preload redis-benchmark -h "$address" -p "$port" -q "$@" || fail "redis-benchmark $*"; }
has_tcp() { grep -qiE "^ *[0-9]+: [0-9A-F]+:$(printf %04X "$port") [0-9A-F:]+ 01 " /proc/net/tcp; }

for attempt in {1..50}; do
	[[ $(cli ping 2> /dev/null) == PONG ]] && break
	sleep 0.2
done
bench -t incr -n 20000 -c 20 > "$folder/bench" &
while kill -0 $! 2> /dev/null; do
	has_tcp && fail "there is a connection over TCP"
	sleep 0.1
done
wait $! || fail "redis-benchmark failed"
[[ $(cli get counter:__rand_int__) == 20000 ]] || fail "the counter is $(cli get counter:__rand_int__)"
bench -t set,get,lpush,lpop,mset -n 10000 -c 50 -P 16 -d 500
head -c 3000000 /dev/urandom | base64 > "$folder/value"
cli -x set large < "$folder/value" > /dev/null
cli --raw get large | head -c "$(stat -c %s "$folder/value")" | cmp - "$folder/value" || fail "a large value differs"
redis-cli -h "$address" -p "$port" --raw get large | head -c "$(stat -c %s "$folder/value")" | cmp - "$folder/value" || fail "over TCP it differs"
echo "all values are right"
