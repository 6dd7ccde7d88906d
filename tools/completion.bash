# SPDX-License-Identifier: BSD-2-Clause
# Completion of verbatim(1) in bash. Options are those that `verbatim COMMAND --help` names.

_verbatim_checks="send-buffer lkey rkey deregistered receive-buffer no-receive cq-room unsignaled unpolled lost-send unacked-event unasked-event peer \
completion threads call fatal"
_verbatim_faults="drop delay duplicate reorder corrupt freeze stall fail complete rnr link event lose refuse vanish seed="

_verbatim_options() { # of a command, which may have two words
	"${COMP_WORDS[0]}" "$@" --help 2>/dev/null | sed -n -e 's/^  -., /  /' -e 's/^  \(--[a-z-]*=\).*/\1/p' -e 's/^  \(--[a-z-]*\)\[=.*/\1\n\1=/p' -e 's/^  \(--[a-z-]*\) .*/\1/p'
}

_verbatim_pids() {
	"${COMP_WORDS[0]}" ps --timeout=0.2 2>/dev/null | awk '$1 ~ /^[0-9]+$/ { print $1 }'
}

# Offers those of the words that begin as what is typed does.
_verbatim_offer() {
	mapfile -t COMPREPLY < <(compgen -W "$1" -- "${cur#=}")
	[[ ${COMPREPLY[*]} == *= ]] && compopt -o nospace 2>/dev/null
	return 0
}

# True if an option's value is typed; "=" is a word of its own.
_verbatim_value() {
	local before=${COMP_WORDS[COMP_CWORD - 1]}
	[[ $cur == = || $before == = ]] && local has_equals=1
	[[ $before == = ]] && before=${COMP_WORDS[COMP_CWORD - 2]}
	case $before${has_equals-} in
	--copy*) _verbatim_offer "mapped process_vm link" ;;
	--check1) _verbatim_offer "$_verbatim_checks" ;;
	--faults*) _verbatim_offer "$_verbatim_faults" ;;
	--capture* | --junit* | --timeline* | --latency1) mapfile -t COMPREPLY < <(compgen -f -- "${cur#=}") ;;
	--topology*)
		_verbatim_offer "star line leaf-spine:"
		mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "${cur#=}")
		;;
	--name*) _verbatim_offer "$(_verbatim_labs)" ;;
	--direction*) _verbatim_offer "in out both" ;;
	--opcode*) _verbatim_offer "send write read atomic flush ack cnp" ;;
	--pid*) _verbatim_offer "$(_verbatim_pids)" ;;
	--qp* | --snap* | --packets* | --buffer* | --seconds* | --timeout* | --watch1 | --hosts* | --mtu* | --seed*) ;;
	--delay* | --iterations* | -d | -n) ;;
	*) return 1 ;;
	esac
}

# After `verbatim run` and its options a command line of its own begins.
_verbatim_run() {
	local at=2
	while ((at < COMP_CWORD)) && [[ ${COMP_WORDS[at]} == -* ]]; do
		if [[ ${COMP_WORDS[at]} == -- ]]; then
			((at++))
			break
		fi
		case ${COMP_WORDS[at]} in
		--check | --latency) [[ ${COMP_WORDS[at + 1]} == = ]] && ((at += 2)) ;;
		--copy | --faults | --capture | --timeline | --qp | --opcode | --direction | --snap | --packets | --buffer)
			[[ ${COMP_WORDS[at + 1]} == = ]] && ((at++))
			((at++))
			;;
		esac
		((at++))
	done
	if ((at < COMP_CWORD)); then
		declare -F _command_offset >/dev/null && _command_offset $at
	elif ((COMP_CWORD > 2)) && _verbatim_value; then
		return
	elif [[ $cur == -* && ${COMP_WORDS[COMP_CWORD - 1]} != -- ]]; then
		_verbatim_offer "$(_verbatim_options run)"
	else
		mapfile -t COMPREPLY < <(compgen -c -- "$cur")
	fi
}

_verbatim_labs() {
	"${COMP_WORDS[0]}" lab ls 2>/dev/null | awk '{ print $1 }' | sort -u
}

_verbatim_hosts() {
	"${COMP_WORDS[0]}" lab ls 2>/dev/null | awk '{ print $2 }' | sort -u
}

# A command of `verbatim lab`, its options, a host, and a command line of its own.
_verbatim_lab() {
	local verb=${COMP_WORDS[2]} at=3
	if ((COMP_CWORD == 2)); then
		_verbatim_offer "up run exec shell ssh ls link host down --help"
		return
	fi
	while ((at < COMP_CWORD)) && [[ ${COMP_WORDS[at]} == -* || ${COMP_WORDS[at]} == = || ${COMP_WORDS[at - 1]} == = ]]; do
		((at++))
	done
	if [[ $cur == -* ]] && ((at == COMP_CWORD)); then
		_verbatim_offer "$(_verbatim_options lab "$verb")"
	elif [[ $verb == link ]]; then
		((at == COMP_CWORD)) && _verbatim_offer "set ls"
	elif [[ $verb == host ]]; then
		_verbatim_offer "$( ((at == COMP_CWORD)) && echo kill start pause resume || _verbatim_hosts)"
	elif [[ $verb == run ]]; then
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
	elif [[ $verb != exec && $verb != shell && $verb != ssh ]]; then
		return
	elif ((at == COMP_CWORD)); then
		_verbatim_offer "$(_verbatim_hosts)"
	elif [[ $verb == exec ]] && ((at + 1 < COMP_CWORD)); then
		declare -F _command_offset >/dev/null && _command_offset $((at + 1))
	elif [[ $verb == exec ]]; then
		mapfile -t COMPREPLY < <(compgen -c -- "$cur")
	fi
}

_verbatim() {
	local cur=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]}
	COMPREPLY=()
	if ((COMP_CWORD == 1)); then
		_verbatim_offer "run ps show stats top capture timeline faults man doctor lab --help --version"
		return
	fi
	[[ $command == run ]] || ! _verbatim_value || return 0
	case $command${cur:0:1} in
	run*) _verbatim_run ;;
	lab*) _verbatim_lab ;;
	*-) _verbatim_offer "$(_verbatim_options "$command")" ;;
	ps* | stats* | top*) _verbatim_offer "$(_verbatim_pids)" ;;
	show*) _verbatim_offer "devices ports pds qps cqs srqs mrs ids $(_verbatim_pids)" ;;
	capture* | timeline*) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
	faults*) _verbatim_offer "$_verbatim_faults" ;;
	doctor*) mapfile -t COMPREPLY < <(compgen -c -- "$cur") ;;
	--help*) _verbatim_offer "run ps show stats top capture timeline faults man doctor lab" ;;
	esac
}

complete -F _verbatim verbatim
