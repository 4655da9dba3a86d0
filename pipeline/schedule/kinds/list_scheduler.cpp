#include "pipeline/schedule/kinds/list_scheduler.h"

#include <optional>
#include <queue>

namespace shardline {
namespace {

using Backward = ListRules::Backward;

class ListScheduler {
 public:
  ListScheduler(const std::vector<int>& stage_of_chunk, int stages, int microbatches, const ListRules& rules)
      : chunks_(stage_of_chunk.size()),
        microbatches_(microbatches),
        rules_(rules),
        stages_(stages),
        forward_(stage_of_chunk.size()),
        backward_(stage_of_chunk.size()) {
    for (int chunk = 0; chunk < chunks_; ++chunk) stages_[stage_of_chunk[chunk]].chunks.push_back(chunk);
  }

  CellLists run() {
    const size_t per_pair = rules_.backward == Backward::none ? 1 : rules_.backward == Backward::whole ? 2 : 3;
    const size_t cells = per_pair * chunks_ * microbatches_;
    CellLists lists(stages_.size());
    size_t placed = 0;
    for (int now = 0; placed < cells; ++now)
      for (size_t stage = 0; stage < stages_.size(); ++stage) {
        if (stages_[stage].busy_until > now) continue;
        const auto cell = best(stages_[stage], now);
        if (!cell) continue;
        lists[stage].push_back(*cell);
        place(stages_[stage], *cell, now);
        ++placed;
      }
    return lists;
  }

 private:
  struct Stage {
    std::vector<int> chunks;  // ascending
    int busy_until = 0;
    int active = 0;
    std::queue<Cell> weights;  // deferred weight gradients, in the order of their input gradients
  };
  using Ends = std::vector<int>;  // for microbatches 0, 1, .. of a chunk

  static bool ended(const Ends& ends, int microbatch, int now) {
    return std::ssize(ends) > microbatch && ends[microbatch] <= now;
  }

  std::optional<Cell> best(const Stage& stage, int now) const {
    const auto next = [](CellWork work, const std::vector<Ends>& ends, int chunk) {
      const int microbatch = ends[chunk].size();
      return Cell{work, microbatch, chunk};
    };
    for (auto chunk = stage.chunks.rbegin(); chunk != stage.chunks.rend(); ++chunk)
      if (can_backward(*chunk, now))
        return next(rules_.backward == Backward::split ? CellWork::backward_input : CellWork::backward, backward_,
                    *chunk);
    for (auto chunk = stage.chunks.rbegin(); chunk != stage.chunks.rend(); ++chunk)
      if (can_forward(stage, *chunk, now)) return next(CellWork::forward, forward_, *chunk);
    if (!stage.weights.empty()) return stage.weights.front();
    return {};
  }

  bool can_backward(int chunk, int now) const {
    const int microbatch = std::ssize(backward_[chunk]);
    if (rules_.backward == Backward::none || microbatch == microbatches_) return false;
    return ended(chunk + 1 < chunks_ ? backward_[chunk + 1] : forward_[chunk], microbatch, now);
  }

  bool can_forward(const Stage& stage, int chunk, int now) const {
    const int microbatch = std::ssize(forward_[chunk]);
    if (microbatch == microbatches_) return false;
    const bool enters = chunk == stage.chunks.front() && rules_.backward != Backward::none;
    if (enters && stage.active == rules_.active_microbatches) return false;
    return chunk == 0 || ended(forward_[chunk - 1], microbatch, now);
  }

  void place(Stage& stage, const Cell& cell, int now) {
    stage.busy_until = now + (cell.work == CellWork::backward ? 2 : 1);
    const bool first_chunk = cell.chunk == stage.chunks.front();
    if (cell.work == CellWork::forward) forward_[cell.chunk].push_back(stage.busy_until);
    if (cell.work == CellWork::backward || cell.work == CellWork::backward_input)
      backward_[cell.chunk].push_back(stage.busy_until);
    if (cell.work == CellWork::backward_input)
      stage.weights.push({CellWork::backward_weight, cell.microbatch, cell.chunk});
    if (cell.work == CellWork::backward_weight) stage.weights.pop();
    if (first_chunk && cell.work == CellWork::forward) ++stage.active;
    if (first_chunk && (cell.work == CellWork::backward || cell.work == CellWork::backward_weight)) --stage.active;
  }

  int chunks_, microbatches_;
  ListRules rules_;
  std::vector<Stage> stages_;
  std::vector<Ends> forward_, backward_;  // by chunk
};

}  // namespace

CellLists list_schedule(const std::vector<int>& stage_of_chunk, int stages, int microbatches, const ListRules& rules) {
  return ListScheduler(stage_of_chunk, stages, microbatches, rules).run();
}

}  // namespace shardline
