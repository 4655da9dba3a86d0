#include "pipeline/schedule/files/schedule_file.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "core/error.h"
#include "core/files/json_data.h"
#include "core/files/json_reader.h"
#include "pipeline/schedule/schedule_builder.h"
#include "pipeline/schedule/schedule_simulation.h"

namespace shardline {
namespace {

using nlohmann::json;

constexpr int kMost = 1 << 20;  // microbatches or chunks: larger numbers are typos

// Removes the digits at the front of `text` and returns their number; -1 if there are none.
int take_number(std::string_view& text) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0 || number >= kMost) return -1;
  text.remove_prefix(end - text.data());
  return number;
}

Cell read_cell(std::string_view text, int stage, const std::string& where) {
  const auto refuse = [&, all = text](const char* what) {
    throw ConfigError(
        cat(where, ": \"", std::string(all), "\" ", what,
            "; a cell is F, B or W, followed by the microbatch and, if a stage has several chunks, a slash and "
            "the chunk: F0 or W12/3"));
  };
  const auto kind = std::string_view("FBW").find(text.empty() ? ' ' : text.front());
  if (kind == std::string_view::npos) refuse("does not begin with F, B or W");
  text.remove_prefix(1);
  Cell cell{std::array{CellWork::forward, CellWork::backward_input, CellWork::backward_weight}[kind], take_number(text),
            stage};
  if (cell.microbatch < 0) refuse("has no microbatch");
  if (!text.empty() && text.front() == '/') {
    text.remove_prefix(1);
    cell.chunk = take_number(text);
    if (cell.chunk < 0) refuse("has no chunk after its slash");
  }
  if (!text.empty()) refuse("has extra characters after its numbers");
  return cell;
}

// Turns backward cells without a weight cell into whole backwards.
void join_whole_backwards(CellLists& cells) {
  for (auto& list : cells) {
    std::set<std::pair<int, int>> split;
    for (const auto& cell : list)
      if (cell.work == CellWork::backward_weight) split.insert({cell.microbatch, cell.chunk});
    for (auto& cell : list)
      if (cell.work == CellWork::backward_input && !split.contains({cell.microbatch, cell.chunk}))
        cell.work = CellWork::backward;
  }
}

// The stage of each chunk: the one that has its cells.
std::vector<int> stages_of_chunks(const CellLists& cells, const std::string& name) {
  std::map<int, int> stage_of;
  for (int stage = 0; stage < std::ssize(cells); ++stage)
    for (const auto& cell : cells[stage])
      if (const int other = stage_of.emplace(cell.chunk, stage).first->second; other != stage)
        throw ConfigError(cat(name, ": chunk ", cell.chunk, " has cells on the stages ", other, " and ", stage,
                              "; put them on one stage"));
  std::vector<int> stages;
  for (const auto& [chunk, stage] : stage_of) {
    if (chunk != std::ssize(stages))
      throw ConfigError(cat(name, ": chunk ", stages.size(),
                            " has no cells, but a later chunk does; number the chunks without gaps"));
    stages.push_back(stage);
  }
  return stages;
}

Schedule built(const std::string& name, CellLists cells) {
  join_whole_backwards(cells);
  int microbatches = 0;
  for (const auto& list : cells)
    for (const auto& cell : list) microbatches = std::max(microbatches, cell.microbatch + 1);
  if (microbatches == 0) throw ConfigError(cat(name, ": there are no cells; write a row of cells for each stage"));
  return build_schedule(name, stages_of_chunks(cells, name), microbatches, cells);
}

Schedule from_rows(const json& rows, const std::string& name) try {
  CellLists cells;
  for (const auto& row : JsonValue(rows, name).items()) {
    const int stage = std::ssize(cells);
    auto& list = cells.emplace_back();
    for (const auto& cell : row.items()) list.push_back(read_cell(cell.text(), stage, cell.where()));
  }
  return built(name, cells);
} catch (const DataError& error) {
  throw ConfigError(error.what());
}

// If the lists have no messages, only the order of the work matters; lists with messages are left unchanged.
Schedule with_messages(const Schedule& schedule) {
  CellLists cells;
  for (int stage = 0; stage < std::ssize(schedule.instructions); ++stage) {
    auto& list = cells.emplace_back();
    for (const auto& instruction : schedule.instructions[stage]) {
      if (is_send(instruction.op) || is_receive(instruction.op)) return schedule;
      if (instruction.chunk < 0 || instruction.chunk >= schedule.chunks() ||
          schedule.stage_of_chunk[instruction.chunk] != stage)
        return schedule;  // the checker reports this
      const auto [op, microbatch, chunk, peer] = instruction;
      if (op == Op::forward) list.push_back({CellWork::forward, microbatch, chunk});
      if (op == Op::backward_input) list.push_back({CellWork::backward_input, microbatch, chunk});
      if (op != Op::backward_weight) continue;
      const bool whole = !list.empty() && list.back() == Cell{CellWork::backward_input, microbatch, chunk};
      if (whole) list.pop_back();
      list.push_back({whole ? CellWork::backward : CellWork::backward_weight, microbatch, chunk});
    }
  }
  return build_schedule(schedule.name, schedule.stage_of_chunk, schedule.microbatches, cells);
}

}  // namespace

Schedule schedule_from_cells(const std::string& text, const std::string& name) {
  CellLists cells;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    line.erase(std::min(line.find('#'), line.size()));
    std::replace_if(
        line.begin(), line.end(), [](char c) { return c == ',' || c == ';' || c == '\r'; }, ' ');
    std::istringstream words(line);
    std::vector<std::string> row;
    for (std::string word; words >> word;) row.push_back(word);
    if (row.empty()) continue;
    if (row.size() >= 2 && row[0] == "stage") row.erase(row.begin(), row.begin() + 2);
    const int stage = cells.size();
    auto& list = cells.emplace_back();
    for (const auto& word : row)
      if (word != ".") list.push_back(read_cell(word, stage, cat(name, ", line ", number)));
  }
  return built(name, cells);
}

Schedule read_schedule_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) throw ConfigError(cat("the schedule ", path, " cannot be read; smp_options.pipeline names it"));
  if (path.ends_with(".csv")) return schedule_from_cells(text, path);
  const JsonDocument document = parse_json(text, path);
  if (!document.problems.empty()) throw ConfigError(document.problems.front());
  if (document.value.is_array()) return from_rows(document.value, path);
  auto schedule = schedule_from_json(document.value, path);
  schedule.name = path;
  return with_reductions(with_messages(schedule), false);
}

}  // namespace shardline
