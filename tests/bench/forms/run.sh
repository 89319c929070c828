#!/bin/sh
# Builds form_probe and runs it: run.sh FOLDER [SECONDS_A_CASE [PART...]]
cd "$(dirname "$0")" || exit
src=../../../native/src
out=$1
shift
cc -std=gnu11 -O2 -g -Wall -Wextra -I../../../native -I$src -I$src/providers -o "$out/form_probe" \
	form_probe.c $src/providers/cuda_api.c -lpthread -ldl || exit
"$out/form_probe" "$@"
