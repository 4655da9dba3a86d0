// Schedules whose chunks go down the stages and up again.
#include <algorithm>
#include <array>
#include <queue>

#include "pipeline/schedule/kinds/list_scheduler.h"
#include "pipeline/schedule/kinds/schedule_generators.h"

namespace shardline {
namespace {

enum Leg { down, up };  // a stage's first and second chunk

// The cells of one stage; each call takes the next microbatch of a leg. Microbatches from `microbatches` on are slots
// that stay empty. With them, a pattern for many microbatches also works for fewer, since microbatches do not depend on
// each other.
class VStage {
 public:
  VStage(std::vector<Cell>& cells, int stage, int stages, int microbatches)
      : cells_(cells), chunk_{stage, 2 * stages - 1 - stage}, microbatches_(microbatches) {}

  void forward(Leg leg) { add(CellWork::forward, forwards_[leg]++, leg); }
  void backward(Leg leg) { add(CellWork::backward, backwards_[leg]++, leg); }
  void backward_input(Leg leg) {
    weights_[leg].push(backwards_[leg]);
    order_.push(leg);
    add(CellWork::backward_input, backwards_[leg]++, leg);
  }
  void backward_weight(Leg leg) {
    add(CellWork::backward_weight, weights_[leg].front(), leg);
    weights_[leg].pop();
  }
  void oldest_backward_weight() {
    backward_weight(order_.front());
    order_.pop();
  }

  int forwards(Leg leg) const { return forwards_[leg]; }
  bool has_weights(Leg leg) const { return !weights_[leg].empty(); }

 private:
  void add(CellWork work, int microbatch, Leg leg) {
    if (microbatch < microbatches_) cells_.push_back({work, microbatch, chunk_[leg]});
  }

  std::vector<Cell>& cells_;
  std::array<int, 2> chunk_;
  int microbatches_;
  std::array<int, 2> forwards_{}, backwards_{};
  std::array<std::queue<int>, 2> weights_;  // microbatches whose weight gradients are pending
  std::queue<Leg> order_;                   // the leg of each of them, oldest first
};

void zbv_stage(VStage list, int stage, int stages, int places) {
  const auto times = [](int count, auto&& what) {
    for (int i = 0; i < count; ++i) what();
  };
  // Until the first microbatch comes back up.
  times(2 * (stages - stage) - 1, [&] { list.forward(down); });
  times(stage, [&] { list.forward(up), list.forward(down); });
  // On stage 0, microbatches on the way up turn around at once, so that gradients come down one stage at a time.
  times(stages - stage, [&] { list.forward(up), list.backward_input(up), list.backward_weight(up); });
  while (list.forwards(up) < places) {
    if (list.forwards(down) < places) list.forward(down);
    list.backward_input(down), list.backward_weight(down);
    list.forward(up), list.backward_input(up), list.backward_weight(up);
  }
  // Input gradients come first, because other stages wait for them.
  times(stage, [&] { list.backward_input(down), list.backward_input(up); });
  times(stages - stage, [&] { list.backward_input(down), list.backward_weight(down); });
  for (const Leg leg : {up, down})
    while (list.has_weights(leg)) list.backward_weight(leg);
}

void dualpipev_stage(VStage list, int stage, int stages, int places) {
  const int above = stages - stage - 1;
  for (int i = 0; i < 2 * above; ++i) list.forward(down);
  for (int i = 0; i <= stage; ++i) list.forward(down), list.forward(up);
  for (int i = 0; i < above; ++i) list.backward_input(up), list.oldest_backward_weight(), list.forward(up);
  for (int i = 0; i < places - 2 * stages + stage + 1; ++i)
    list.forward(down), list.backward(up), list.forward(up), list.backward(down);
  for (int i = 0; i < above; ++i) list.backward(up), list.forward(up), list.backward(down);
  // In the second half of the drain weight gradients are deferred, so that input gradients are sent earlier.
  for (int i = 0; i < 2 * (stage + 1); ++i) {
    const Leg leg = i % 2 == 0 ? up : down;
    i > stage ? list.backward_input(leg) : list.backward(leg);
  }
  for (int i = 0; i < above; ++i) list.oldest_backward_weight(), list.backward_input(down);
  for (int i = 0; i <= stage; ++i) list.oldest_backward_weight();
}

Schedule v_schedule(const char* name, void (*pattern)(VStage, int, int, int), int stages, int microbatches, int places,
                    bool split, int active_microbatches) {
  check_sizes(name, stages, microbatches, active_microbatches);
  const auto stage_of_chunk = v_chunks(stages);
  CellLists cells(stages);
  for (int stage = 0; stage < stages; ++stage)
    pattern(VStage(cells[stage], stage, stages, microbatches), stage, stages, std::max(microbatches, places));
  if (active_microbatches > 0 && active_microbatches < most_active_microbatches(stage_of_chunk, cells))
    cells = list_schedule(stage_of_chunk, stages, microbatches,
                          {.backward = split ? ListRules::Backward::split : ListRules::Backward::whole,
                           .active_microbatches = active_microbatches});
  return build_schedule(name, stage_of_chunk, microbatches, cells);
}

}  // namespace

Schedule zbv(int stages, int microbatches, int active_microbatches) {
  return v_schedule("ZB-V", zbv_stage, stages, microbatches, 2 * stages - 1, true, active_microbatches);
}

Schedule dualpipev(int stages, int microbatches, int active_microbatches) {
  return v_schedule("DualPipeV", dualpipev_stage, stages, microbatches, 2 * stages, false, active_microbatches);
}

}  // namespace shardline
