#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs samples of softdoca and looks at what comes of it.
#
#	samples.sh [-e TEXT]... [-x CODE] one COMMAND...
#	samples.sh [-e TEXT]... [-x CODE] [-y CODE] [-k SIGNAL] two READY FIRST... then SECOND...
#
# two: starts FIRST, waits until it prints READY, runs SECOND, then gives FIRST a newline, or the signal.
# COMMAND and SECOND must end with 0 or the CODE of -x, FIRST with 0 or that of -y. Each TEXT must be
# printed. They run in an empty folder, which is also where they meet other processes, and must leave
# nothing in it.
set -eu
lf='
'
expected= code=0 first_code=0 signal=
while getopts e:x:y:k: option; do
	case $option in
	e) expected="$expected$OPTARG$lf" ;;
	x) code=$OPTARG ;;
	y) first_code=$OPTARG ;;
	k) signal=$OPTARG ;;
	*) exit 2 ;;
	esac
done
shift $((OPTIND - 1))
mode=$1
shift

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/work"
cd "$dir/work"
export XDG_RUNTIME_DIR="$dir"

# The words before "then", as a program.
first() {
	total=$# before=1
	for word; do
		[ "$word" != then ] || before=
		[ -z "$before" ] || set -- "$@" "$word"
	done
	shift "$total"
	exec "$@"
}

# Copies FIRST's output to the log until it is ready. Fails where it ends before.
wait_until_ready() {
	while IFS= read -r line; do
		printf '%s\n' "$line" >>"$dir/log"
		case $line in *"$ready"*) return ;; esac
	done
	return 1
}

# A program to its end, which must be the expected one.
run() {
	"$@" >>"$dir/log" 2>&1 </dev/null && ended=0 || ended=$?
	[ $ended = "$code" ] || { echo "it ended with $ended, not $code"; failed=1; }
}

failed=0
if [ "$mode" = one ]; then
	run "$@"
else
	ready=$1
	shift
	mkfifo "$dir/in" "$dir/out"
	(first "$@") <"$dir/in" >"$dir/out" 2>&1 &
	pid=$!
	exec 3>"$dir/in" 4<"$dir/out"
	if wait_until_ready <&4; then
		while [ "$1" != then ]; do shift; done
		shift
		run "$@"
	else
		echo "the first never said: $ready"
		failed=1
	fi
	if [ "$signal" ]; then kill -s "$signal" $pid; else (echo >&3) || :; fi
	cat <&4 >>"$dir/log"
	wait $pid && ended=0 || ended=$?
	[ $ended = "$first_code" ] || { echo "the first ended with $ended, not $first_code"; failed=1; }
fi

cat "$dir/log"
while [ "$expected" ]; do
	text=${expected%%"$lf"*}
	expected=${expected#*"$lf"}
	grep -Fq -e "$text" "$dir/log" || { echo "nobody said: $text"; failed=1; }
done
left=$(ls -A)
[ -z "$left" ] || { echo "left behind: $left"; failed=1; }
exit $failed
