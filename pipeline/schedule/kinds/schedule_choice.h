// The only place that makes a schedule from the choices in a config.
#pragma once
#include <compare>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "pipeline/schedule/schedule.h"

namespace shardline {

enum class ScheduleKind { interleaved, simple, interleaved_1f1b, zb_h1, zb_h2, zbv, dualpipev, file };

// The source of a schedule: a generator, or a file.
struct ScheduleSource {
  ScheduleKind kind = ScheduleKind::interleaved;
  std::string path = "";  // the schedule's file

  ScheduleSource() = default;
  // One of schedule_names(), or a path that ends with .csv or .json; throws ConfigError for any other text.
  ScheduleSource(const std::string& text);  // NOLINT(google-explicit-constructor): "zb_h1" is a source
  ScheduleSource(const char* text) : ScheduleSource(std::string(text)) {}
  bool is_file() const { return kind == ScheduleKind::file; }
  auto operator<=>(const ScheduleSource&) const = default;
};

std::string to_string(const ScheduleSource& source);  // parsing the text gives an equal source
std::ostream& operator<<(std::ostream& out, const ScheduleSource& source);
void to_json(nlohmann::json& json, const ScheduleSource& source);
void from_json(const nlohmann::json& json, ScheduleSource& source);

// The maximum number of microbatches into which a config may cut an accumulation step.
inline constexpr int kMostMicrobatches = 65536;

// Chunks per stage that this kind requires; 0: the layout or the file determines them.
int own_chunks_per_stage(ScheduleKind kind);

struct ScheduleChoice {
  ScheduleSource pipeline;
  int stages = 1;
  int microbatches = 1;
  int chunks_per_stage = 1;     // v; used by interleaved_1f1b only
  int active_microbatches = 0;  // 0: as many as the schedule needs
};

const std::vector<std::string>& schedule_names();

// Throws ConfigError if the schedule does not support this v, if the limit is below its minimum (1, or the number that
// a file keeps active), and for mistakes in a file. The result passes check_schedule.
Schedule make_schedule(const ScheduleChoice& choice);

}  // namespace shardline
