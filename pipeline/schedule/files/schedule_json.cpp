#include <limits>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files/json_data.h"
#include "pipeline/schedule/schedule.h"

namespace shardline {
namespace {

using nlohmann::json;

constexpr Op kOps[] = {Op::forward,         Op::backward_input,  Op::backward_weight,
                       Op::send_activation, Op::recv_activation, Op::send_gradient,
                       Op::recv_gradient,   Op::end_gradients,   Op::settle_gradients};

int read_int(const JsonValue& value) {
  return value.integer(std::numeric_limits<int>::min());
}

Op read_op(const JsonValue& value) {
  const auto name = value.text();
  for (const Op op : kOps)
    if (name == to_string(op)) return op;
  value.fail("unknown instruction");
}

json write_instruction(const Instruction& instruction) {
  json object = {{"op", to_string(instruction.op)}, {"chunk", instruction.chunk}};
  if (instruction.microbatch != -1) object["microbatch"] = instruction.microbatch;
  if (instruction.peer != -1) object["peer"] = instruction.peer;
  return object;
}

Instruction read_instruction(const JsonValue& value) {
  value.require_keys_among({"op", "microbatch", "chunk", "peer"});
  Instruction instruction{read_op(value.at("op"))};
  instruction.chunk = read_int(value.at("chunk"));
  if (value.has("microbatch")) instruction.microbatch = read_int(value.at("microbatch"));
  if (value.has("peer")) instruction.peer = read_int(value.at("peer"));
  return instruction;
}

}  // namespace

void to_json(json& out, const Schedule& schedule) {
  json stages = json::array();
  for (const auto& list : schedule.instructions) {
    json instructions = json::array();
    for (const auto& instruction : list) instructions.push_back(write_instruction(instruction));
    stages.push_back(std::move(instructions));
  }
  out = json::object();
  out["name"] = schedule.name;
  out["stages"] = schedule.stages;
  out["microbatches"] = schedule.microbatches;
  out["stage_of_chunk"] = schedule.stage_of_chunk;
  out["instructions"] = std::move(stages);
  if (schedule.first_backward_chunk > 0) out["first_backward_chunk"] = schedule.first_backward_chunk;
}

Schedule schedule_from_json(const json& json, const std::string& file) try {
  const JsonValue value(json, file);
  value.require_keys_among(
      {"name", "stages", "microbatches", "stage_of_chunk", "instructions", "first_backward_chunk"});
  Schedule schedule;
  schedule.name = value.at("name").text();
  schedule.stages = read_int(value.at("stages"));
  schedule.microbatches = read_int(value.at("microbatches"));
  for (const auto& stage : value.at("stage_of_chunk").items()) schedule.stage_of_chunk.push_back(read_int(stage));
  for (const auto& list : value.at("instructions").items()) {
    auto& instructions = schedule.instructions.emplace_back();
    for (const auto& instruction : list.items()) instructions.push_back(read_instruction(instruction));
  }
  if (value.has("first_backward_chunk")) schedule.first_backward_chunk = read_int(value.at("first_backward_chunk"));
  return schedule;
} catch (const DataError& error) {
  throw ConfigError(error.what());
}

}  // namespace shardline
