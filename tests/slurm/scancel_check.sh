#!/usr/bin/env bash
# Runs jobs on a real Slurm of one node, which it starts, and cancels or signals them: each saves a checkpoint. Not part
# of the default tests: it needs root, and installs Debian's packages munge, slurmctld, slurmd and slurm-client if they
# are missing.
#
#   sudo tests/slurm/scancel_check.sh build/tools/shardline
set -euo pipefail

program=$(realpath "${1:?usage: scancel_check.sh PROGRAM}")
root=$(cd "$(dirname "$0")/../.." && pwd)
for package in munge slurmctld slurmd slurm-client; do
  dpkg -s "$package" > /dev/null 2>&1 ||
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$package"
done

dir=$(mktemp -d /tmp/shardline-slurm-XXXXXX)
chmod 755 "$dir"
daemons=()
stop_all() {
  [ "${#daemons[@]}" = 0 ] || kill "${daemons[@]}" 2> /dev/null || true
  wait
  rm -rf "$dir"
}
trap stop_all EXIT
fail() {
  echo "FAILED: $1"
  tail -n 20 "$dir"/*.log "$dir"/*/slurm.out 2> /dev/null || true
  exit 1
}
wait_for() { # what, command...
  local what=$1
  shift
  for _ in $(seq 600); do
    if "$@" > /dev/null 2>&1; then return; fi
    sleep 0.1
  done
  fail "waited 60 s for $what"
}

# ---- a cluster of this machine
host=$(hostname -s)
mkdir "$dir/state" "$dir/spool"
dd if=/dev/urandom of="$dir/munge.key" bs=128 count=1 status=none
chmod 400 "$dir/munge.key"
cat > "$dir/slurm.conf" << CONF
ClusterName=one
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort=26817
SlurmdPort=26818
AuthType=auth/munge
AuthInfo=socket=$dir/munge.socket
CredType=cred/munge
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
MpiDefault=none
ReturnToService=2
KillWait=30
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
export SLURM_CONF=$dir/slurm.conf
munged --foreground --force --key-file="$dir/munge.key" --socket="$dir/munge.socket" --pid-file="$dir/munge.pid" \
  --log-file="$dir/munge.log" --seed-file="$dir/munge.seed" > "$dir/munged.log" 2>&1 &
daemons+=($!)
wait_for "munge" test -S "$dir/munge.socket"
slurmctld -D -f "$SLURM_CONF" > "$dir/slurmctld.log" 2>&1 &
daemons+=($!)
slurmd -D -f "$SLURM_CONF" > "$dir/slurmd.log" 2>&1 &
daemons+=($!)
wait_for "the node" sh -c 'sinfo -h -o %T | grep -q idle'
sinfo --version

# ---- jobs
head -c 4000 "$root/configs/data/quickstart.txt" > "$dir/text.txt"
steps() { [ "$(wc -l < "$1/out/metrics.jsonl")" -ge 5 ]; }
has_ended() { [ -z "$(squeue -h -j "$1")" ]; }
submit() { # name -> job
  mkdir "$dir/$1"
  cat > "$dir/$1/config.json" << CONFIG
{"model": {"config": {"model_type": "gpt2", "vocab_size": 256, "n_positions": 32, "n_embd": 16, "n_layer": 2,
                      "n_head": 2}},
 "data": {"train": "$dir/text.txt", "tokenizer": "bytes", "sequence_length": 16},
 "training": {"global_batch_size": 8, "max_steps": 1000000, "save_steps": 1000000, "use_cpu": true},
 "smp_options": {"pipeline_parallel_degree": 2, "microbatches": 2},
 "runtime": {"communicator": "mpi", "threads_per_rank": 1},
 "mpi_options": {"max_restarts": 3},
 "output_dir": "out"}
CONFIG
  printf '#!/bin/sh\ncd %s\nexec %s train config.json\n' "$dir/$1" "$program" > "$dir/$1/job.sh"
  sbatch --parsable --time=10 -n 2 -o "$dir/$1/slurm.out" "$dir/$1/job.sh"
}
check() { # name, the state that Slurm then shows, and how the job is asked to stop
  local name=$1 says=$2 job
  shift 2
  job=$(submit "$name")
  wait_for "the first steps of job $job" steps "$dir/$name"
  scancel "$@" "$job"
  wait_for "the end of job $job" has_ended "$job"
  echo "scancel $* $job: $(scontrol show job "$job" | grep -oE '(JobState|ExitCode)=[^ ]+' | tr '\n' ' ')"
  scontrol show job "$job" | grep -qE "$says" || fail "$name: not $says"
  grep -E 'stopped by a signal after step [0-9]+ of 1000000 and saved out/checkpoint-' "$dir/$name/slurm.out" ||
    fail "$name: no checkpoint"
  "$program" checkpoint verify "$dir/$name/out"
}
check cancelled JobState=CANCELLED
check signalled ExitCode=3:0 --signal=USR1 --batch
check all-processes ExitCode=3:0 --signal=TERM --full
echo "passed: 3 jobs on Slurm stopped and saved"
