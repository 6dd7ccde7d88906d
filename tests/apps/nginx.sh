#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# nginx with curl and wrk, whose sockets a preload library makes rsockets: files are compared, errors counted,
# and none of wrk's connections may be one of TCP. A curl without the library is served too. usage: nginx.sh
# PRELOAD ADDRESS PORT DIRECTIVE=VALUE
preload=$1 address=$2 port=$3
folder=$(realpath "$(mktemp -d "${TMPDIR:-.}/nginx.XXXXXX")") || exit 1
mkdir "$folder/html" "$folder/logs"
chmod 755 "$folder" "$folder/html"
head -c 1000 /dev/urandom > "$folder/html/small"
head -c 20000000 /dev/urandom > "$folder/html/large"
cat > "$folder/conf" <<-END
	${4/=/ }; daemon off; pid logs/pid; error_log logs/error; user root;
	events { worker_connections 512; }
	http {
		access_log logs/answers; sendfile on; keepalive_requests 1000000;
		client_body_temp_path logs/1; proxy_temp_path logs/2; fastcgi_temp_path logs/3; uwsgi_temp_path logs/4; scgi_temp_path logs/5;
		server { listen $address:$port; root html; }
	}
END
LD_PRELOAD=$preload /usr/sbin/nginx -p "$folder" -c conf 2> "$folder/out" &
server=$!
trap 'kill $server 2> /dev/null; wait $server; rm -rf "$folder"' EXIT

fail() { echo "$*"; cat "$folder/out" "$folder/logs/error"; exit 1; }
get() { LD_PRELOAD=$preload curl -sf "http://$address:$port/$1"; }
has_tcp() { grep -qiE "^ *[0-9]+: [0-9A-F]+:$(printf %04X "$port") [0-9A-F:]+ 01 " /proc/net/tcp; }
answers() { wc -l < "$folder/logs/answers"; }
# On a busy machine an answer may take long.
read -r busy _ < /proc/loadavg
patience=$((30 * (1 + ${busy%.*} / $(nproc))))
# Has wrk ask for two seconds, and until it has had so many answers. usage: load ANSWERS OPTION... URL
load() {
	local wanted=$1 before start=$SECONDS
	before=$(answers)
	shift
	LD_PRELOAD=$preload wrk -t 2 -d $patience --timeout ${patience}s "$@" > "$folder/wrk" &
	while kill -0 $! 2> /dev/null; do
		has_tcp && fail "there is a connection over TCP"
		if [ $SECONDS -gt $((start + 2)) ] && [ $(($(answers) - before)) -ge "$wanted" ]; then
			kill -INT $! 2> /dev/null
		fi
		sleep 0.1
	done
	cat "$folder/wrk"
	[ $(($(answers) - before)) -ge "$wanted" ] || fail "wrk $* had too few answers in $patience s"
	grep -E "Socket errors|Non-2xx" "$folder/wrk" && fail "wrk $* had errors"
}

for attempt in {1..50}; do
	get small > /dev/null && break
	sleep 0.2
done
for i in {1..6}; do
	get large | cmp - "$folder/html/large" &
	clients+=($!)
done
for client in "${clients[@]}"; do
	wait "$client" || fail "a file differs"
done
load 100 -c 20 "http://$address:$port/small"
load 8 -c 4 "http://$address:$port/large"
curl -sf "http://$address:$port/large" | cmp - "$folder/html/large" || fail "over TCP the file differs"
echo "all answers are right"
