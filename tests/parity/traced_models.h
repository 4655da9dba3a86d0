// Traced modules with different structures, used as the models of points: "traced nested", "traced skips", "traced
// pairs" (an encoder and a decoder), "traced shared", "traced conv"; and "traced " with the name of a task, an encoder
// for it.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/parity/point.h"

namespace shardline::parity {

bool is_traced(const Point& point);

const std::vector<std::string>& traced_models();  // without those encoders
std::vector<std::string> traced_encoders();
// The task of a model, as Point::task.
std::string task_of_traced(const std::string& model);

// model.config of the point.
nlohmann::json traced_config(const Point& point);

}  // namespace shardline::parity
