#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# `verbatim run`: the environment, exit statuses, signals, streams and messages of the program that it
# becomes. usage: verbatim_run.sh PATH_OF_VERBATIM
set -u
verbatim=$(realpath "$1")
libdir=$(dirname "$verbatim")/lib
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
unset LD_LIBRARY_PATH VERBATIM_DEBUG

. "$(dirname "$0")/tap.sh"

# python3 -c "$ignore" PROGRAM...: with SIGCHLD ignored
ignore='import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execvp(sys.argv[1], sys.argv[1:])'
ignored='grep ^SigIgn /proc/self/status'

status() { "$@" >"$work/out" 2>"$work/err"; echo $?; }

check version "verbatim" "$("$verbatim" --version | cut -d' ' -f1)"
check help__is_on_stdout 0 "$(status "$verbatim" --help)"
check help__names_run 1 "$(grep -c '^  run ' "$work/out")"
check no_command 125 "$(status "$verbatim")"
check unknown_command 125 "$(status "$verbatim" nonsense)"
check run__without_program 125 "$(status "$verbatim" run)"
check run__unknown_option 125 "$(status "$verbatim" run --nonsense)"
check run__options_without_program 125 "$(status "$verbatim" run --debug --wire)"
check run__unknown_copy 125 "$(status "$verbatim" run --copy=magic true)"
check run__unknown_copy_message "verbatim: --copy takes one of mapped|process_vm|link" "$(cat "$work/err")"
check run__copy_without_value 125 "$(status "$verbatim" run --copy)"
check run__part_of_a_copy 125 "$(status "$verbatim" run --copy=process true)"
check run__surplus_value 125 "$(status "$verbatim" run --debug=1 true)"
check run__unknown_option_message "verbatim: run has no option '--nonsense'" \
	"$(status "$verbatim" run --debug --nonsense >/dev/null; cat "$work/err")"
check run__surplus_value_message "verbatim: --debug takes no value" \
	"$(status "$verbatim" run --debug=1 true >/dev/null; cat "$work/err")"
check run__value_that_is_missing "verbatim: --faults needs a value" \
	"$(status "$verbatim" run --faults >/dev/null; cat "$work/err")"
check run__beginning_of_several_options 125 "$(status "$verbatim" run --no true)"

if [[ -e $libdir/libibverbs.so.1 ]]; then
	check run__library_path "$libdir" "$("$verbatim" run sh -c 'echo $LD_LIBRARY_PATH')"
	check run__library_path_kept_behind "$libdir:/a:/b" \
		"$(LD_LIBRARY_PATH=/a:/b "$verbatim" run sh -c 'echo $LD_LIBRARY_PATH')"
	check run__library_path_empty "$libdir" "$(LD_LIBRARY_PATH='' "$verbatim" run sh -c 'echo $LD_LIBRARY_PATH')"
	check run__through_link "$libdir" \
		"$(ln -s "$verbatim" "$work/link"; "$work/link" run sh -c 'echo $LD_LIBRARY_PATH')"
	check run__preload_kept_behind "$libdir/libverbatim-answers.so:/no/such.so" \
		"$(LD_PRELOAD=/no/such.so "$verbatim" run sh -c 'echo $LD_PRELOAD' 2>/dev/null)"
	check run__asan_is_told "verify_asan_link_order=0:a=1" "$(ASAN_OPTIONS=a=1 "$verbatim" run sh -c 'echo $ASAN_OPTIONS')"
	check run__device_file 0 "$(status "$verbatim" run python3 -c \
		'import os, stat; p = "/dev/infiniband/uverbs0"; assert stat.S_ISCHR(os.stat(p).st_mode) and os.access(p, os.R_OK | os.W_OK)')"
	check run__other_files_stay_missing 0 "$(status "$verbatim" run python3 -c \
		'import os; assert not any(map(os.path.exists, ("/dev/infiniband/uverbs", "/dev/infiniband/uverbs0x", "/dev/infiniband/x")))')"
	check run__arguments 'a b|-x|--|*' "$("$verbatim" run printf '%s|%s|%s|%s' 'a b' -x -- '*')"
	check run__options "1 off process_vm infiniband off ignore" "$("$verbatim" run --debug --wire --copy=process_vm --infiniband --no-gso --ignore-icrc -- \
		sh -c 'echo $VERBATIM_DEBUG $VERBATIM_LOCAL $VERBATIM_COPY $VERBATIM_LINK $VERBATIM_GSO $VERBATIM_ICRC')"
	check run__option_with_value_behind link "$("$verbatim" run --copy link sh -c 'echo $VERBATIM_COPY')"
	check run__options_end_at_program "--wire" "$("$verbatim" run --debug echo --wire)"
	check run__options_unused "unset" "$("$verbatim" run sh -c 'echo ${VERBATIM_DEBUG-unset}')"
	preload=$libdir/libverbatim-answers.so
	libm=$(ldconfig -p | sed -n 's,.*libm\.so\.6 .*=> ,,p' | head -n 1)
	check run__preloads "$preload verify_asan_link_order=0" "$(unset LD_PRELOAD ASAN_OPTIONS
		"$verbatim" run sh -c 'echo $LD_PRELOAD $ASAN_OPTIONS')"
	check run__preloads_before_others "$preload:$libm verify_asan_link_order=1" \
		"$(ASAN_OPTIONS=verify_asan_link_order=1 LD_PRELOAD=$libm \
			"$verbatim" run sh -c 'echo $LD_PRELOAD $ASAN_OPTIONS')"
	check run__option_no_sysfs off "$(unset LD_PRELOAD; "$verbatim" run --no-sysfs sh -c 'echo $LD_PRELOAD$VERBATIM_SYSFS')"
	check run__beginning_of_one_option 1 "$("$verbatim" run --deb sh -c 'echo $VERBATIM_DEBUG')"
	check run__double_dash hello "$("$verbatim" run -- echo hello)"
	check run__stdin through "$(echo through | "$verbatim" run cat)"
	# What a file holds counts, wherever the program goes, and though a pipe can be read once.
	faults='fail ibv_reg_mr ENOMEM'
	echo "$faults" >"$work/faults"
	check run__faults_of_a_file "$faults" "$(cd "$work"; "$verbatim" run --faults=@faults sh -c 'cd /; echo $VERBATIM_FAULTS')"
	check run__faults_of_a_pipe "$faults" "$("$verbatim" run --faults=@<(echo "$faults") sh -c 'echo $VERBATIM_FAULTS')"
	check run__ignored_children_stay_ignored "$(python3 -c "$ignore" sh -c "$ignored")" \
		"$(python3 -c "$ignore" "$verbatim" run sh -c "$ignored")"
	check run__closed_input_stays_closed 1 "$("$verbatim" run cat <&- 2>/dev/null; echo $?)"
	check run__exit_status 42 "$(status "$verbatim" run sh -c 'exit 42')"
	check run__nothing_printed "" "$(status "$verbatim" run true >/dev/null; cat "$work/out" "$work/err")"
	check run__killed_by_signal 143 "$("$verbatim" run sh -c 'kill -TERM $$' 2>/dev/null; echo $?)"
	"$verbatim" run sh -c 'echo $$; exec sleep 60' >"$work/pid" &
	child=$!
	while [[ ! -s $work/pid ]]; do sleep 0.02; done
	check run__same_process "$child" "$(cat "$work/pid")"
	kill -9 "$child"
	wait "$child" 2>/dev/null

	printf '#!/bin/sh\necho "script $1 $LD_LIBRARY_PATH"\n' >"$work/script"
	printf 'echo "bare $1"\n' >"$work/bare"
	printf 'not for you\n' >"$work/plain"
	chmod 755 "$work/script" "$work/bare"
	check run__script "script x $libdir" "$("$verbatim" run "$work/script" x)"
	check run__script_by_path "script x $libdir" "$(PATH=$work:$PATH "$verbatim" run script x)"
	check run__script_without_interpreter_line "bare x" "$("$verbatim" run "$work/bare" x)"
	check run__python "$libdir" \
		"$("$verbatim" run /usr/bin/env python3 -c 'import os; print(os.environ["LD_LIBRARY_PATH"])')"
	check run__sockets "$libdir/libverbatim-sockets.so:$preload" \
		"$(unset LD_PRELOAD; "$verbatim" run --sockets /usr/bin/env python3 -c 'import os; print(os.environ["LD_PRELOAD"])')"
	check run__not_found 127 "$(status "$verbatim" run no-such-program)"
	check run__not_found_message "verbatim: 'no-such-program': No such file or directory" "$(cat "$work/err")"
	check run__not_executable 126 "$(status "$verbatim" run "$work/plain")"
	check run__not_executable_message "verbatim: '$work/plain': Permission denied" "$(cat "$work/err")"
	check run__folder 126 "$(status "$verbatim" run "$work")"
	mkfifo "$work/pipe"
	chmod 755 "$work/pipe"
	check run__pipe 126 "$(status timeout 60 "$verbatim" run "$work/pipe")"

	cp "$(type -P true)" "$work/raised"
	if [[ $(id -u) == 0 ]] && chown 65534 "$work/raised" && chmod 4755 "$work/raised"; then
		check run__set_id_is_silent "0 " "$(status "$verbatim" run "$work/raised") $(cat "$work/err")"
		export VERBATIM_DEBUG=1
		check run__set_id_warns 1 "$(status "$verbatim" run "$work/raised" >/dev/null
			grep -c "$work/raised raises privileges" "$work/err")"
	else
		skip run__set_id_warns "only root can make a file that runs as another user"
	fi
else
	skip run "no library in $libdir yet"
fi

mkdir "$work/alone"
cp "$verbatim" "$work/alone/"
check run__without_libraries 125 "$(status "$work/alone/verbatim" run true)"
# Where this build's `make install` would put them, seen from the command.
installed=$(grep -ao '\.\./lib[^[:cntrl:]]*/verbatim' "$verbatim" | head -n 1)
mkdir -p "$work/usr/bin/$installed"
cp "$verbatim" "$work/usr/bin/"
touch "$work/usr/bin/$installed/libibverbs.so.1"
check run__installed "$(realpath "$work/usr/bin/$installed")" \
	"$("$work/usr/bin/verbatim" run /bin/sh -c 'echo $LD_LIBRARY_PATH')"

# A man(1) that says what it was asked.
printf '#!/bin/sh\necho "$@"\n' >"$work/alone/man"
chmod +x "$work/alone/man"
asked_man() { PATH=$work/alone:$PATH "$1" man "${@:2}"; }
check man__pages_of_a_build_tree "-M $(realpath "$(dirname "$verbatim")/man") 3 ibv_post_send" "$(asked_man "$verbatim" 3 ibv_post_send)"
check man__without_words "-M $(realpath "$(dirname "$verbatim")/man") 7 verbatim" "$(asked_man "$verbatim")"
mkdir -p "$work/usr/share/verbatim/man/man3"
touch "$work/usr/share/verbatim/man/man3/ibv_post_send.3"
check man__installed "-M $work/usr/share/verbatim/man rping" "$(asked_man "$work/usr/bin/verbatim" rping)"
check man__without_pages 125 "$(status "$work/alone/verbatim" man rping)"
check man__is_not_there 127 "$(PATH=/nowhere status "$verbatim" man rping)"
check man__is_not_there_and_nobody_listens 127 "$(PATH=/nowhere "$verbatim" man rping 2>&-; echo $?)"

echo "1..$count"
exit $failed
