#include "pipeline/schedule/schedule_builder.h"

#include <algorithm>
#include <map>

#include "core/error.h"

namespace shardline {
namespace {

bool makes_gradients(CellWork work) {
  return work == CellWork::backward || work == CellWork::backward_weight;
}

// The messages from one stage to another, in the order in which the receiver takes them.
struct ReceiveOrder {
  std::vector<Instruction> receives;
  int received = 0;
};

class Builder {
 public:
  Builder(Schedule& schedule, const CellLists& cells) : schedule_(schedule), cells_(cells) {}

  void build() {
    check_count();
    place_in_channel_.assign(size_t{2} * schedule_.microbatches * schedule_.stage_of_chunk.size(), -1);
    for (int stage = 0; stage < schedule_.stages; ++stage)
      for (const auto& cell : cells_[stage]) announce(stage, cell);
    schedule_.instructions.resize(cells_.size());
    for (int stage = 0; stage < schedule_.stages; ++stage) write(stage);
  }

 private:
  bool is_chunk(int chunk) const { return chunk >= 0 && chunk < schedule_.chunks(); }
  int stage_of(int chunk) const { return schedule_.stage_of_chunk[chunk]; }
  bool is_elsewhere(int stage, int chunk) const { return is_chunk(chunk) && stage_of(chunk) != stage; }
  static int next_chunk(const Cell& cell) { return cell.work == CellWork::forward ? cell.chunk + 1 : cell.chunk - 1; }
  static int previous_chunk(const Cell& cell) {
    return cell.work == CellWork::forward ? cell.chunk - 1 : cell.chunk + 1;
  }
  int& place_in_channel(Op receive, int microbatch, int chunk) {
    const int kind = receive == Op::recv_activation ? 0 : schedule_.chunks();
    return place_in_channel_[size_t(kind + chunk) * schedule_.microbatches + microbatch];
  }

  // Tables have an entry for each pair of microbatch and chunk, so a file must have at least that many cells.
  void check_count() const {
    int64_t count = 0;
    for (const auto& list : cells_) count += std::ssize(list);
    if (schedule_.microbatches < 1 || count < int64_t{schedule_.microbatches} * schedule_.chunks())
      throw ConfigError(cat("schedule \"", schedule_.name, "\": ", count, " cells are too few for ",
                            schedule_.microbatches, " microbatches through ", schedule_.chunks(), " chunks"));
  }

  // Adds the message that the cell will send to the order of its receiver.
  void announce(int stage, const Cell& cell) {
    if (cell.microbatch < 0 || cell.microbatch >= schedule_.microbatches || !is_chunk(cell.chunk))
      throw ConfigError(cat("schedule \"", schedule_.name, "\": stage ", stage, " has a cell for microbatch ",
                            cell.microbatch, " and chunk ", cell.chunk, ", but there are only ", schedule_.microbatches,
                            " microbatches and ", schedule_.chunks(), " chunks"));
    const int next = next_chunk(cell);
    if (cell.work == CellWork::backward_weight || !is_elsewhere(stage, next)) return;
    const Op op = cell.work == CellWork::forward ? Op::recv_activation : Op::recv_gradient;
    auto& receives = channels_[{stage, stage_of(next)}].receives;
    place_in_channel(op, cell.microbatch, next) = receives.size();
    receives.push_back({op, cell.microbatch, next, stage});
  }

  void write(int stage) {
    for (const auto& cell : cells_[stage]) {
      receive(stage, cell);
      compute(stage, cell);
      send(stage, cell);
    }
  }

  void receive(int stage, const Cell& cell) {
    const int previous = previous_chunk(cell);
    if (cell.work == CellWork::backward_weight || !is_elsewhere(stage, previous)) return;
    const Op op = cell.work == CellWork::forward ? Op::recv_activation : Op::recv_gradient;
    // -1: no stage sends it; the checker reports this.
    const int last = place_in_channel(op, cell.microbatch, cell.chunk);
    auto& channel = channels_[{stage_of(previous), stage}];
    while (channel.received <= last) list(stage).push_back(channel.receives[channel.received++]);
  }

  void compute(int stage, const Cell& cell) {
    if (cell.work == CellWork::forward) list(stage).push_back({Op::forward, cell.microbatch, cell.chunk});
    if (cell.work == CellWork::backward || cell.work == CellWork::backward_input)
      list(stage).push_back({Op::backward_input, cell.microbatch, cell.chunk});
    if (makes_gradients(cell.work)) list(stage).push_back({Op::backward_weight, cell.microbatch, cell.chunk});
  }

  void send(int stage, const Cell& cell) {
    const int next = next_chunk(cell);
    if (cell.work == CellWork::backward_weight || !is_elsewhere(stage, next)) return;
    const Op op = cell.work == CellWork::forward ? Op::send_activation : Op::send_gradient;
    list(stage).push_back({op, cell.microbatch, cell.chunk, stage_of(next)});
  }

  std::vector<Instruction>& list(int stage) { return schedule_.instructions[stage]; }

  Schedule& schedule_;
  const CellLists& cells_;
  std::map<std::pair<int, int>, ReceiveOrder> channels_;  // by sender and receiver
  std::vector<int> place_in_channel_;                     // by kind, chunk and microbatch of a receive; -1: not sent
};

}  // namespace

Schedule build_schedule(const std::string& name, const std::vector<int>& stage_of_chunk, int microbatches,
                        const CellLists& cells) {
  const int stages = cells.size();
  Schedule schedule{name, stages, microbatches, stage_of_chunk, {}};
  Builder(schedule, cells).build();
  return with_reductions(std::move(schedule), false);
}

std::vector<int> round_robin_chunks(int stages, int chunks_per_stage) {
  std::vector<int> stage_of_chunk;
  for (int chunk = 0; chunk < stages * chunks_per_stage; ++chunk) stage_of_chunk.push_back(chunk % stages);
  return stage_of_chunk;
}

std::vector<int> v_chunks(int stages) {
  std::vector<int> stage_of_chunk;
  for (int chunk = 0; chunk < 2 * stages; ++chunk)
    stage_of_chunk.push_back(chunk < stages ? chunk : 2 * stages - 1 - chunk);
  return stage_of_chunk;
}

int most_active_microbatches(const std::vector<int>& stage_of_chunk, const CellLists& cells) {
  int most = 0;
  for (int stage = 0; stage < std::ssize(cells); ++stage) {
    const auto first = std::find(stage_of_chunk.begin(), stage_of_chunk.end(), stage) - stage_of_chunk.begin();
    int active = 0;
    for (const auto& cell : cells[stage]) {
      if (cell.chunk != first) continue;
      active += cell.work == CellWork::forward;
      most = std::max(most, active);
      active -= makes_gradients(cell.work);
    }
  }
  return most;
}

void check_sizes(const std::string& schedule, int stages, int microbatches, int active_microbatches) {
  if (stages < 1) throw ConfigError(cat("smp_options.pipeline_parallel_degree must be at least 1; got ", stages, "."));
  if (microbatches < 1) throw ConfigError(cat("smp_options.microbatches must be at least 1; got ", microbatches, "."));
  if (active_microbatches < 0)
    throw ConfigError(cat("smp_options.active_microbatches is ", active_microbatches, ", but the schedule \"", schedule,
                          "\" keeps at least 1 microbatch active. Set it to 1 or more, or leave it out for what the "
                          "schedule can use."));
}

}  // namespace shardline
