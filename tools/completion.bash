# SPDX-License-Identifier: BSD-2-Clause
# Completion of verbatim(1) in bash.

_verbatim_filter="--qp= --opcode= --direction= --snap= --packets= --buffer="

_verbatim_pids() {
	verbatim ps --timeout=0.2 2>/dev/null | awk '$1 ~ /^[0-9]+$/ { print $1 }'
}

# After `verbatim run` and its options a command line of its own begins.
_verbatim_run() {
	local at=2
	while ((at < COMP_CWORD)) && [[ ${COMP_WORDS[at]} == -* ]]; do
		if [[ ${COMP_WORDS[at]} == -- ]]; then
			((at++))
			break
		fi
		# "=" is a word of its own there
		case ${COMP_WORDS[at]} in
		--copy | --faults | --capture | --qp | --opcode | --direction | --snap | --packets | --buffer) [[ ${COMP_WORDS[at + 1]} == = ]] && ((at++)); ((at++)) ;;
		esac
		((at++))
	done
	if ((at < COMP_CWORD)); then
		declare -F _command_offset >/dev/null && _command_offset $at
		return
	fi
	local before=${COMP_WORDS[COMP_CWORD - 1]}
	[[ $before == = ]] && before=${COMP_WORDS[COMP_CWORD - 2]}
	case $before in
	--copy) mapfile -t COMPREPLY < <(compgen -W "mapped process_vm link" -- "${cur#=}") ;;
	--faults) mapfile -t COMPREPLY < <(compgen -W "drop delay duplicate reorder corrupt freeze stall fail complete rnr link event lose refuse vanish seed=" -- "${cur#=}") ;;
	--capture) mapfile -t COMPREPLY < <(compgen -f -- "${cur#=}") ;;
	--direction) mapfile -t COMPREPLY < <(compgen -W "in out both" -- "${cur#=}") ;;
	--opcode) mapfile -t COMPREPLY < <(compgen -W "send write read atomic flush ack cnp" -- "${cur#=}") ;;
	*)
		if [[ $cur == -* && $before != -- ]]; then
			mapfile -t COMPREPLY < <(compgen -W "--debug --check --wire --copy= --infiniband --no-gso --ignore-icrc --no-sysfs --sockets --faults= --capture= $_verbatim_filter" -- "$cur")
			[[ ${COMPREPLY[*]} == *= ]] && compopt -o nospace 2>/dev/null
		else
			mapfile -t COMPREPLY < <(compgen -c -- "$cur")
		fi
		;;
	esac
}

_verbatim() {
	local cur=${COMP_WORDS[COMP_CWORD]} words
	COMPREPLY=()
	if ((COMP_CWORD == 1)); then
		mapfile -t COMPREPLY < <(compgen -W "run ps show stats capture faults doctor --help --version" -- "$cur")
		return
	fi
	case ${COMP_WORDS[1]} in
	run) _verbatim_run; return ;;
	ps | stats) words="--json --watch --watch= --timeout= $(_verbatim_pids)" ;;
	show) words="--json --watch --watch= --timeout= devices qps cqs srqs mrs ids $(_verbatim_pids)" ;;
	capture)
		words="--pid= --seconds= --quiet $_verbatim_filter"
		[[ $cur == -* ]] || { mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return; }
		;;
	faults) words="--words drop delay duplicate reorder corrupt freeze stall fail complete rnr link event lose refuse vanish seed=" ;;
	doctor) words=--json; [[ $cur == -* ]] || { mapfile -t COMPREPLY < <(compgen -c -- "$cur"); return; } ;;
	*) return ;;
	esac
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}

complete -F _verbatim verbatim
