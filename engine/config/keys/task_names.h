// The tasks that a config may name: those of shardline, and those that a program has added (engine/tasks/task.h).
#pragma once
#include <map>
#include <string>
#include <vector>

#include "models/families/head_choice.h"

namespace shardline {

// What rules need to know of a task.
struct TaskTraits {
  HeadChoice::Kind head;
  std::vector<std::string> metrics;  // names of those that evaluations may have besides the loss, without "eval_"
  std::vector<std::string> added_metrics = {};  // the same of those that a program has added to the task
};

// By name. A task that has a head of its own is called as HeadChoice's task_name calls that.
std::map<std::string, TaskTraits>& task_traits();
// Of a name that is in it, as that of a config is.
const TaskTraits& traits_of(const std::string& task);

inline constexpr const char* kCausalLm = "causal-lm";
inline constexpr const char* kMaskedLm = "masked-lm";
inline constexpr const char* kSequenceClassification = "sequence-classification";
inline constexpr const char* kTokenClassification = "token-classification";
inline constexpr const char* kQuestionAnswering = "question-answering";

}  // namespace shardline
