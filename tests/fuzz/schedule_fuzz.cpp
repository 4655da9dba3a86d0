// Schedule files: *.json if the input begins with a bracket, otherwise *.csv. A schedule that the checker also
// accepts is written and read back unchanged, and can be drawn.
#include <nlohmann/json.hpp>
#include <optional>

#include "pipeline/schedule/checker.h"
#include "pipeline/schedule/files/schedule_file.h"
#include "pipeline/schedule/pictures/schedule_grid.h"
#include "tests/fuzz/fuzz.h"

namespace shardline::schedule_fuzz {

FUZZ_TARGET(schedule) {
  const std::string text = fuzz::text_of(data, size);
  const bool is_json = text.starts_with('[') || text.starts_with('{');
  const std::string path = fuzz::file_with(is_json ? "schedule.json" : "schedule.csv", text);
  std::optional<Schedule> schedule;
  if (!fuzz::accepts(size, [&] { schedule = read_schedule_file(path); })) return false;
  FUZZ_REQUIRE(schedule->name == path, schedule->name);
  const nlohmann::json written = *schedule;
  FUZZ_REQUIRE(schedule_from_json(written, "written") == *schedule, "the schedule changes when it is written");
  if (!fuzz::accepts(size, [&] { check_schedule(*schedule); })) return false;
  FUZZ_REQUIRE(std::ssize(schedule->instructions) == schedule->stages, schedule->stages);
  const std::string grid = text_grid(*schedule);
  FUZZ_REQUIRE(!grid.empty(), "nothing is drawn");
  const double share = bubble_fraction(*schedule);
  FUZZ_REQUIRE(share >= 0 && share < 1, share);
  return true;
}

}  // namespace shardline::schedule_fuzz
