# Completion of shardline's commands, options, config keys and files.
# Sections with a dot and keys outside of sections, or the keys of the section in the word. Each ends with $2.
_shardline_keys() {
  local section=${1%%.*}
  if [[ $1 == *.* ]]; then
    "${COMP_WORDS[0]}" help "$section" 2>/dev/null | sed -n "s/^  \([a-z_0-9]*\): .*/$section.\1$2/p"
  else
    "${COMP_WORDS[0]}" help 2>/dev/null |
      sed -n -e 's/^  \([a-z_]*\)  *[0-9]* keys\. .*/\1./p' -e "s/\$/$2/; s/, /$2 /g; s/^  top level .*: //p"
  fi
}
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
  if [ "$command" = help ] && [ "$COMP_CWORD" -eq 2 ]; then
    mapfile -t COMPREPLY < <(compgen -W "$commands $(_shardline_keys "$word" "")" -- "$word")
    [[ ${COMPREPLY[0]} != *. ]] || compopt -o nospace 2>/dev/null
    return
  fi
  case ${COMP_WORDS[COMP_CWORD - 1]} in
    --set)
      mapfile -t COMPREPLY < <(compgen -W "$(_shardline_keys "$word" =)" -- "$word")
      compopt -o nospace 2>/dev/null
      return
      ;;
    --cluster)
      mapfile -t COMPREPLY < <(compgen -f -- "$word")
      [ "$command" != plan ] || mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -W local -- "$word")
      return
      ;;
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
