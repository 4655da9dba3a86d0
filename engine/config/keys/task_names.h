// The tasks that a config may name: those of shardline, and those that a program has added (engine/tasks/task.h).
#pragma once
#include <map>
#include <string>
#include <vector>

#include "models/families/head_choice.h"

namespace shardline {

// The properties of a task that rules need.
struct TaskTraits {
  HeadChoice::Kind head;
  std::vector<std::string> metrics;  // names of the metrics that evaluations may have besides the loss, without "eval_"
  std::vector<std::string> added_metrics = {};  // the same for metrics that a program has added to the task
};

std::map<std::string, TaskTraits>& task_traits();  // by name
// A config's names of tasks by the names that the Hugging Face hub gives them, where these differ.
const std::map<std::string, std::string>& tasks_by_hub_name();
// The traits of a task that exists, such as the one of a config that has been read.
const TaskTraits& traits_of(const std::string& task);

}  // namespace shardline
