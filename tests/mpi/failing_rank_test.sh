#!/bin/bash
# failing_rank_test.sh HOW EXPECTED COMMAND...: the job must fail in time, its last line must match EXPECTED, and it must
# leave no shared memory behind.
how=$1 expected=$2
shift 2
export OMPI_MCA_btl_vader_backing_directory=$(mktemp -d)  # for Open MPI's own shared memory; ours has no name
output=$(timeout 60 "$@" "$how" 2>&1)
code=$?
last=$(printf '%s\n' "$output" | grep -v -e '^ *$' -e 'PMIX ERROR' -e '^\[warn\] Epoll ' | tail -n 1)
left=$(ls -A "$OMPI_MCA_btl_vader_backing_directory")
rm -rf "$OMPI_MCA_btl_vader_backing_directory"
# With --enable-recovery (kill_alone), mpirun returns 0.
if { [ $code -eq 0 ] && [ "$how" != kill_alone ]; } || [ $code -eq 124 ]; then
  printf '%s\nexit code %s\n' "$output" $code
  exit 1
fi
if ! [[ $last =~ $expected ]]; then
  printf '%s\nthe last line is not like: %s\n' "$output" "$expected"
  exit 1
fi
if [ -n "$left" ]; then
  printf 'left behind: %s\n' "$left"
  exit 1
fi
