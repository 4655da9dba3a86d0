#include "tools/step_simulation.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "pipeline/schedule/schedule_simulation.h"

namespace shardline {
namespace {

// [begin, end, busy, [[op, chunk, mean seconds], ...]]
nlohmann::json summary(const std::vector<InstructionRecord>& records) {
  std::map<std::pair<Op, int>, std::pair<double, int>> sums;
  for (const auto& record : records) {
    if (!computes(record.instruction.op)) continue;
    auto& [seconds, count] = sums[{record.instruction.op, record.instruction.chunk}];
    seconds += record.end - record.start - record.waited;
    ++count;
  }
  nlohmann::json means = nlohmann::json::array();
  for (const auto& [key, sum] : sums)
    means.push_back({static_cast<int>(key.first), key.second, sum.first / sum.second});
  return {records.front().start, records.back().end, busy_seconds(records), means};
}

}  // namespace

MeasuredPipeline gather_pipeline(Communicator& world, const std::vector<InstructionRecord>& records) {
  MeasuredPipeline all;
  double begin = records.front().start, end = records.back().end;
  for (const auto& text : gather_strings(world, summary(records).dump())) {
    const auto of_rank = nlohmann::json::parse(text);
    begin = std::min(begin, of_rank[0].get<double>());
    end = std::max(end, of_rank[1].get<double>());
    all.busy.push_back(of_rank[2]);
    for (const auto& mean : of_rank[3]) {
      double& seconds = all.seconds_of[{static_cast<Op>(mean[0].get<int>()), mean[1]}];
      seconds = std::max(seconds, mean[2].get<double>());
    }
  }
  all.span = end - begin;
  return all;
}

double simulated_seconds(const Schedule& schedule, const MeasuredPipeline& measured) {
  return simulate(schedule, kUnboundedSends,
                  [&](int, const Instruction& instruction) {
                    const auto found = measured.seconds_of.find({instruction.op, instruction.chunk});
                    return found == measured.seconds_of.end() ? 0 : found->second;
                  })
      .makespan();
}

}  // namespace shardline
