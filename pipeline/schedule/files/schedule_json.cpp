#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "pipeline/schedule/schedule.h"

namespace shardline {
namespace {

using nlohmann::json;

constexpr Op kLastOp = Op::settle_gradients;

[[noreturn]] void refuse(const std::string& at, const std::string& what) {
  throw ConfigError(cat("the schedule at ", at.empty() ? "/" : at, ": ", what));
}

std::string shown(const json& value) {
  return value.is_primitive() ? value.dump(-1, ' ', false, json::error_handler_t::replace) : value.type_name();
}

int read_int(const json& value, const std::string& at) {
  if (!value.is_number_integer()) refuse(at, cat("an integer is expected, got ", shown(value)));
  const auto number = value.get<int64_t>();
  if (number < std::numeric_limits<int>::min() || number > std::numeric_limits<int>::max() ||
      (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{std::numeric_limits<int>::max()}))
    refuse(at, cat(shown(value), " is out of range"));
  return static_cast<int>(number);
}

std::string read_string(const json& value, const std::string& at) {
  if (!value.is_string()) refuse(at, cat("a string is expected, got ", shown(value)));
  return value.get<std::string>();
}

const json& read_array(const json& value, const std::string& at) {
  if (!value.is_array()) refuse(at, "an array is expected");
  return value;
}

// Every key of the object is one of `keys`.
void require_object(const json& value, const std::string& at, std::initializer_list<const char*> keys) {
  if (!value.is_object()) refuse(at, "an object is expected");
  for (const auto& item : value.items())
    if (std::find(keys.begin(), keys.end(), item.key()) == keys.end())
      refuse(at, cat("unknown key \"", item.key(), '"'));
}

const json& member(const json& object, const std::string& at, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) refuse(at, cat("the key \"", key, "\" is missing"));
  return *found;
}

Op read_op(const json& value, const std::string& at) {
  const auto name = read_string(value, at);
  for (int op = 0; op <= static_cast<int>(kLastOp); ++op)
    if (name == to_string(static_cast<Op>(op))) return static_cast<Op>(op);
  refuse(at, cat("unknown instruction \"", name, '"'));
}

json write_instruction(const Instruction& instruction) {
  json object = {{"op", to_string(instruction.op)}, {"chunk", instruction.chunk}};
  if (instruction.microbatch != -1) object["microbatch"] = instruction.microbatch;
  if (instruction.peer != -1) object["peer"] = instruction.peer;
  return object;
}

Instruction read_instruction(const json& object, const std::string& at) {
  require_object(object, at, {"op", "microbatch", "chunk", "peer"});
  Instruction instruction{read_op(member(object, at, "op"), at + "/op")};
  instruction.chunk = read_int(member(object, at, "chunk"), at + "/chunk");
  if (object.contains("microbatch")) instruction.microbatch = read_int(object["microbatch"], at + "/microbatch");
  if (object.contains("peer")) instruction.peer = read_int(object["peer"], at + "/peer");
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
}

Schedule schedule_from_json(const json& in) {
  require_object(in, "", {"name", "stages", "microbatches", "stage_of_chunk", "instructions"});
  Schedule schedule;
  schedule.name = read_string(member(in, "", "name"), "/name");
  schedule.stages = read_int(member(in, "", "stages"), "/stages");
  schedule.microbatches = read_int(member(in, "", "microbatches"), "/microbatches");
  for (const auto& stage : read_array(member(in, "", "stage_of_chunk"), "/stage_of_chunk"))
    schedule.stage_of_chunk.push_back(read_int(stage, cat("/stage_of_chunk/", schedule.stage_of_chunk.size())));
  for (const auto& list : read_array(member(in, "", "instructions"), "/instructions")) {
    const auto at = cat("/instructions/", schedule.instructions.size());
    auto& instructions = schedule.instructions.emplace_back();
    for (const auto& instruction : read_array(list, at))
      instructions.push_back(read_instruction(instruction, cat(at, '/', instructions.size())));
  }
  return schedule;
}

}  // namespace shardline
