#include "models/traced/program_head.h"

namespace shardline {

ProgramUse::Predicts predicts_of(HeadChoice::Kind kind) {
  using Predicts = ProgramUse::Predicts;
  switch (kind) {
    case HeadChoice::Kind::causal_lm:
      return Predicts::next_row;
    case HeadChoice::Kind::masked_lm:
      return Predicts::masked_row;
    case HeadChoice::Kind::token_classification:
      return Predicts::row;
    case HeadChoice::Kind::question_answering:
      return Predicts::span;
    case HeadChoice::Kind::seq2seq_lm:
      return Predicts::target_row;
    case HeadChoice::Kind::sequence_classification:
      break;
  }
  return Predicts::segment;
}

}  // namespace shardline
