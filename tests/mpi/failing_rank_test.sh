#!/bin/bash
# failing_rank_test.sh HOW EXPECTED COMMAND...: the job must fail in time and its last line must match EXPECTED.
how=$1 expected=$2
shift 2
output=$(timeout 60 "$@" "$how" 2>&1)
code=$?
last=$(printf '%s\n' "$output" | grep -v '^ *$' | tail -n 1)
if [ $code -eq 0 ] || [ $code -eq 124 ]; then
  printf '%s\nexit code %s\n' "$output" $code
  exit 1
fi
if ! [[ $last =~ $expected ]]; then
  printf '%s\nthe last line is not like: %s\n' "$output" "$expected"
  exit 1
fi
