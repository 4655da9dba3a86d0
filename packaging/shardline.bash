# Completion of shardline's commands, options and files.
_shardline() {
  local commands="train eval predict generate profile check plan info import flight doctor study report checkpoint serve pack help schema"
  local word=${COMP_WORDS[COMP_CWORD]}
  local command=${COMP_WORDS[1]} options=
  if [ "$COMP_CWORD" -eq 1 ]; then
    mapfile -t COMPREPLY < <(compgen -W "$commands --help --version" -- "$word")
    return
  fi
  if [ "$command" = checkpoint ] && [ "$COMP_CWORD" -eq 2 ]; then
    mapfile -t COMPREPLY < <(compgen -W "inspect verify merge" -- "$word")
    return
  fi
  case $command in
    train | eval) options="--set" ;;
    check) options="--set --steps" ;;
    import) options="--set --to --channel --hosts --ranks" ;;
    study) options="--cluster --at-once" ;;
    report) options="--output" ;;
    serve) options="--set --host --port --task --workers --queue-length --timeout --max-body --max-batch --max-batch-tokens" ;;
    predict | profile) options="--set --output" ;;
    generate) options="--set --prompt --prompts --max-new-tokens --temperature --top-k --top-p --seed --json" ;;
    plan) options="--set --json --svg --html --from-run --cluster --profile --nodes --precision --search --instructions" ;;
    info) options="--set --json" ;;
    doctor) options="--json" ;;
    checkpoint) options="--output" ;;
  esac
  case ${COMP_WORDS[COMP_CWORD - 1]} in
    --precision) options="fp32 fp16 bf16" && mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word") && return ;;
    --search) options="time cost memory" && mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word") && return ;;
  esac
  if [[ $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options --help" -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  fi
}
complete -o filenames -F _shardline shardline
