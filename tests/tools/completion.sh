#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# What bash offers behind `verbatim ...`.
# usage: completion.sh SCRIPT PATH_OF_VERBATIM
set -u
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
install -m 755 /dev/null "$work/only-this-program"
PATH=$(dirname "$(realpath "$2")"):$PATH:$work
source "$1"

_verbatim_pids() { echo 4711; }

count=0 failed=0
# offers NAME EXPECTED WORD...: the last word is the one that is completed
offers() {
	local name=$1 expected=$2
	shift 2
	COMP_WORDS=(verbatim "$@") COMP_CWORD=$# COMPREPLY=()
	_verbatim 2>/dev/null
	count=$((count + 1))
	if [[ $expected == "${COMPREPLY[*]}" ]]; then
		echo "ok $count - $name"
	else
		echo "not ok $count - $name"
		echo "# expected: $expected"
		echo "# found:    ${COMPREPLY[*]}"
		failed=1
	fi
}

offers commands "run ps show stats top capture timeline faults man doctor lab --help --version" ""
offers command "show" sh
offers kinds "mrs" show m
offers kind_after_another "qps" show --json q
offers options "--json" ps --j
offers options_with_letters "--iterations=" top --it
offers run_options "--debug" run --de
offers run_copy "process_vm" run --copy = pr
offers run_opcode "read" run --opcode = re
offers capture_filter "--snap=" capture --sn
offers run_program_behind_a_page "only-this-program" run --timeline = x.html only-this
offers run_program_behind_latency "only-this-program" run --latency only-this
offers run_program_behind_a_picture "only-this-program" run --latency = x.svg only-this
offers run_program_behind_a_file "only-this-program" run --capture = x.pcapng only-this
offers run_program "only-this-program" run --wire -- only-this
offers run_program_at_once "only-this-program" run only-this
offers run_program_of_its_own "" run rping -
offers run_check "fatal" run --check = fa
offers capture_direction "both" capture --direction = bo
offers capture_value_after_a_space "write" capture --opcode wr
offers program_behind_check "only-this-program" run --check only-this
offers program_behind_a_setting "only-this-program" run --check = fatal only-this
offers pids "4711" top 4
offers top_delay "" top --delay = ""
offers top_delay_by_its_letter "" top -d ""
offers top_iterations "" top --iterations ""
offers help_of_a_command "stats" --help st
offers lab_commands "exec" lab ex
offers lab_program "only-this-program" lab exec h1 only-this
offers lab_program_behind_options "only-this-program" lab exec --name = other h1 only-this
cd "$work" || exit 99
offers lab_run_file "only-this-program" lab run --json only-this
offers lab_topology "star" lab up --topology = st
offers lab_topology_file "only-this-program" lab up --topology = only-this
offers nothing "" nonsense x

# Each command that the program has is offered, and each option that a command has; a pattern of words that
# its text gives, as values.
for command in $(verbatim --help | sed -n 's/^  \([a-z]*\) .*/\1/p'); do
	offers "command__$command" "$command" "$command"
	options=$(verbatim "$command" --help | grep -o -e '^  --[^ ]*')
	for option in $options; do
		word=${option%%[=\[]*}
		case $option in
		*\[=*) expected="$word $word=" ;;
		*=*) expected=$word= ;;
		*) expected=$word ;;
		esac
		offers "option__${command}__$word" "$expected" "$command" "$word"
	done
done
for verb in $(verbatim lab --help | sed -n 's/^  lab \([a-z]*\) .*/\1/p'); do
	offers "lab__$verb" "$verb" lab "$verb"
	for option in $(verbatim lab "$verb" --help | sed -n 's/^  \(--[a-z]*=*\).*/\1/p'); do
		offers "option__lab_${verb}__$option" "$option" lab "$verb" "${option%=}"
	done
done
for word in $(verbatim faults | sed -n 's/^  \([a-z]*\) .*/\1/p' | sort -u); do
	offers "fault__$word" "$word" run --faults = "$word"
done
echo "1..$count"
exit $failed
