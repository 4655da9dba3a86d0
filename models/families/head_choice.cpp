#include "models/families/head_choice.h"

#include "core/enum_array.h"

namespace shardline {

const char* task_name(HeadChoice::Kind kind) {
  static constexpr EnumArray<HeadChoice::Kind, const char*, 5> names = {
      "causal-lm", "masked-lm", "sequence-classification", "token-classification", "question-answering"};
  return names[kind];
}

}  // namespace shardline
