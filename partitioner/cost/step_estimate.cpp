#include "partitioner/cost/step_estimate.h"

#include <algorithm>

#include "core/error.h"
#include "partitioner/cut/assign.h"
#include "partitioner/memory/away.h"

namespace shardline {
namespace {

using Kind = Collective::Kind;

class Step {
 public:
  Step(const Workload& workload, const Machines& machines, const Layout& layout, const std::vector<int>& stage_of_chunk,
       const std::vector<int>& chunk_of_layer, const std::vector<LayerPrice>& prices)
      : workload_(workload),
        machines_(machines),
        layout_(layout),
        measured_(machines.profile.get()),
        pricing_(pricing_for(workload, machines)),
        prices_(prices),
        stage_of_chunk_(stage_of_chunk),
        layers_(stage_of_chunk.size()),
        chunks_(stage_of_chunk.size()),
        elements_(layout.pipeline),
        owned_(elements_) {
    for (size_t layer = 0; layer < chunk_of_layer.size(); ++layer) {
      const size_t chunk = chunk_of_layer[layer];
      layers_[chunk].push_back(layer);
      chunks_[chunk] += prices[layer];
      const size_t stage = stage_of_chunk[chunk];
      elements_[stage] += elements(layer);
      owned_[stage] += elements(layer) - shared(layer) * (1 - 1.0 / layout.sharding.degree);
    }
  }

  StepEstimate estimate(const Schedule& schedule, const MeshSpans& spans) const {
    const auto messages = message_seconds(spans);
    const auto kinds = kinds_of_passes(schedule);
    const auto simulation = simulate(
        schedule, kUnboundedSends, [&](int, const Instruction& instruction) { return seconds(instruction, kinds); },
        [&](int from, int to) { return messages[from][to]; });
    SL_ASSERT(simulation.finished(schedule), "the schedule ", schedule.name, " hangs");

    StepEstimate step;
    step.pipeline_seconds = simulation.makespan();
    double reduced = 0;
    for (int stage = 0; stage < layout_.pipeline; ++stage)
      reduced = std::max(reduced, reduction_end(schedule, simulation, stage, spans));
    step.optimizer_seconds = clear_seconds() + optimizer_seconds();
    step.reduction_seconds =
        std::max(0.0, reduced - step.pipeline_seconds) + tied_seconds(spans) + gathering_seconds(spans);
    step.seconds = step.pipeline_seconds + step.reduction_seconds + step.optimizer_seconds;
    step.bubble_fraction = 1 - busy(simulation) / (layout_.pipeline * step.seconds);
    step.samples_per_second = workload_.global_batch / step.seconds;
    step.tokens_per_second = step.samples_per_second * workload_.sequence_length;
    step.utilization =
        model_flops(workload_) / (step.seconds * layout_.world() * machines_.cluster.peak(workload_.precision()));
    const int nodes = machines_.cluster.nodes_of(layout_.world());
    step.hourly_cost = nodes * machines_.cluster.hourly_price.value_or(0);
    return step;
  }

 private:
  double elements(size_t layer) const {
    return local_parameters(workload_.spec.layers[layer], layout_.tensor, Counted::trained);
  }
  double gradient_bytes(double elements) const { return elements * workload_.software.gradient_bytes; }

  double shared(size_t layer) const {
    return shared_parameters(layout_, workload_.spec.layers[layer], Counted::trained);
  }

  struct PassKind {
    bool joint = false;  // the weight gradient follows immediately
    bool away = false;   // the schedule leaves time for offloading
  };
  using PassKinds = std::vector<std::vector<PassKind>>;  // by chunk and microbatch

  template <class Kinds>
  static auto& kind_of(Kinds& kinds, const Instruction& at) {
    return kinds[at.chunk][at.microbatch];
  }

  PassKinds kinds_of_passes(const Schedule& schedule) const {
    PassKinds kinds(chunks_.size(), std::vector<PassKind>(schedule.microbatches));
    for (const auto& list : schedule.instructions) {
      const auto away = away_between(layout_, list);
      for (size_t i = 0; i < list.size(); ++i)
        if (list[i].op == Op::backward_input) kind_of(kinds, list[i]) = {weights_follow(list, i), away[i]};
    }
    return kinds;
  }

  double seconds(const Instruction& instruction, const PassKinds& kinds) const {
    const auto& chunk = chunks_[instruction.chunk];
    switch (instruction.op) {
      case Op::forward:
        return chunk.forward + (kind_of(kinds, instruction).away ? chunk.forward_moving : 0);
      case Op::backward_input:
        return chunk.backward_input + (kind_of(kinds, instruction).away ? chunk.backward_moving : 0);
      case Op::backward_weight:
        return chunk.backward_weight - (kind_of(kinds, instruction).joint ? chunk.joint_saving : 0);
      default:
        return 0;
    }
  }

  // The time of a message from stage to stage, for the largest border at the end of a chunk.
  std::vector<std::vector<double>> message_seconds(const MeshSpans& spans) const {
    const WorkShape shape = layout_.work_shape(workload_);
    int64_t largest = 0;
    for (size_t chunk = 0; chunk + 1 < layers_.size(); ++chunk)
      if (!layers_[chunk].empty())
        largest = std::max(largest, border_bytes(workload_.spec.layers[layers_[chunk].back()], shape));
    const double bytes = largest;
    const bool scattered = workload_.software.scatter_gather && layout_.tensor > 1 && !shape.sequence_parallel;
    const double gather = scattered ? pricing_.collective(Kind::all_gather, bytes, spans.tensor) : 0;
    const size_t stages = layout_.pipeline;
    std::vector<std::vector<double>> seconds(stages, std::vector<double>(stages));
    for (size_t a = 0; a < stages; ++a)
      for (size_t b = 0; b < stages; ++b)
        if (a != b)
          seconds[a][b] = pricing_.message(scattered ? bytes / layout_.tensor : bytes, spans.near[a][b]) + gather;
    return seconds;
  }

  // The reduction of one layer's gradients that remains after the last microbatch has added to them.
  double reduction_seconds(size_t layer, const MeshSpans& spans) const {
    const auto reduced = [&](Kind kind, double count, const GroupSpan& ranks) {
      return count == 0 ? 0 : pricing_.collective(kind, gradient_bytes(count), ranks);
    };
    const double own_rows = parameters_of_own_rows(workload_.spec.layers[layer]);
    const double dealt = std::max(0.0, shared(layer) - own_rows), whole = elements(layer) - own_rows - dealt;
    return reduced(Kind::all_reduce, own_rows, spans.holders) + reduced(Kind::all_reduce, whole, spans.replicas) +
           (layout_.sharded() == Sharding::Level::optimizer ? reduced(Kind::reduce_scatter, dealt, spans.shards) : 0) +
           reduced(Kind::all_reduce, dealt / layout_.sharding.degree, spans.shard_copies);
  }

  // Only one reduction runs at a time. A layer's reduction begins when its last weight gradient is complete, in
  // descending layer order. The fraction of a reduction that is not hidden prolongs the overlapping computation.
  double reduction_end(const Schedule& schedule, const Simulation& simulation, int stage,
                       const MeshSpans& spans) const {
    const auto& list = schedule.instructions[stage];
    const auto& intervals = simulation.intervals[stage];
    if (intervals.empty()) return 0;
    const double taken = 1 - pricing_.hidden_share(Kind::all_reduce, spans.replicas);
    double end = workload_.software.overlap_reduction ? 0 : intervals.back().end, delay = 0;
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i].op != Op::backward_weight || list[i].microbatch != schedule.microbatches - 1) continue;
      const size_t chunk = list[i].chunk;
      const bool joint = i > 0 && weights_follow(list, i - 1);  // then layers finish one by one over both halves
      double now = joint ? intervals[i - 1].start : intervals[i].start;
      const double length = intervals[i].end - now;
      for (size_t j = layers_[chunk].size(); j-- > 0;) {
        const size_t layer = layers_[chunk][j];
        const double part = length * share_of_layer(layer, chunk, joint);
        delay += taken * std::clamp(end - now - delay, 0.0, part);
        now += part;
        end = std::max(end, now + delay) + reduction_seconds(layer, spans);
      }
    }
    return std::max(end, intervals.back().end + delay);
  }

  // A layer's fraction of a chunk's backward, or of its weight-gradient half.
  double share_of_layer(size_t layer, size_t chunk, bool joint) const {
    const auto seconds = [&](const LayerPrice& price) { return joint ? price.backward() : price.backward_weight; };
    const double all = seconds(chunks_[chunk]);
    return all > 0 ? seconds(prices_[layer]) / all : 0;
  }

  // The uses of a tied parameter are added once per step. Within one stage, this takes so little time that it is
  // counted only if it was measured.
  double tied_seconds(const MeshSpans& spans) const {
    double seconds = 0;
    for (size_t chunk = 0; chunk < layers_.size(); ++chunk)
      for (const size_t layer : layers_[chunk])
        for (const auto& param : workload_.spec.layers[layer].params)
          if (!param.tied_to.empty() && param.trainable) seconds += tied_seconds(param, stage_of_chunk_[chunk], spans);
    return seconds;
  }
  double tied_seconds(const ParamSpec& param, int stage, const MeshSpans& spans) const {
    const int other = stage_holding(param.tied_to);
    const double elements = elements_of(param);
    if (other == stage) return measured_ ? elements * measured_->join_seconds_per_gradient : 0;
    const bool near = spans.near[stage][other];
    return pricing_.collective(Kind::all_reduce, gradient_bytes(elements), {2, near ? 2 : 1, Group::pp});
  }
  int stage_holding(const std::string& parameter) const {
    for (size_t chunk = 0; chunk < layers_.size(); ++chunk)
      for (const size_t layer : layers_[chunk])
        for (const auto& param : workload_.spec.layers[layer].params)
          if (workload_.spec.layers[layer].full_name(param) == parameter) return stage_of_chunk_[chunk];
    SL_ASSERT(false, "no layer holds ", parameter);
    return -1;
  }

  double elements_of(const ParamSpec& param) const {
    double elements = 1;
    for (const int64_t size : param.local_shape(0, layout_.tensor)) elements *= size;
    return elements;
  }

  // The trained parameters of the stage that has the most.
  double largest_stage() const { return *std::max_element(elements_.begin(), elements_.end()); }

  // As above, but counts a tied parameter once if a stage uses it twice.
  double largest_stored() const {
    auto stored = elements_;
    for (size_t chunk = 0; chunk < layers_.size(); ++chunk)
      for (const size_t layer : layers_[chunk])
        for (const auto& param : workload_.spec.layers[layer].params)
          if (!param.tied_to.empty() && param.trainable && stage_holding(param.tied_to) == stage_of_chunk_[chunk])
            stored[stage_of_chunk_[chunk]] -= elements_of(param);
    return *std::max_element(stored.begin(), stored.end());
  }

  // Gradients are cleared before the first forward. Only the first stage's time counts, because the others wait for it.
  double clear_seconds() const {
    const double held = (layout_.sharded() < Sharding::Level::gradients ? elements_ : owned_)[stage_of_chunk_[0]];
    return measured_ ? measured_->clear_seconds_per_gradient * held : pricing_.sweep(gradient_bytes(held));
  }

  double optimizer_seconds() const {
    const double most = *std::max_element(owned_.begin(), owned_.end());
    if (measured_) return measured_->optimizer_seconds_per_stored * largest_stored() * most / largest_stage();
    return update_seconds(workload_, layout_, pricing_, most);
  }

  double gathering_seconds(const MeshSpans& spans) const {
    if (layout_.sharded() != Sharding::Level::optimizer && layout_.sharded() != Sharding::Level::gradients) return 0;
    return pricing_.gathering(largest_stage() * width_of(workload_.types.values), spans.shards,
                              workload_.software.gather_way);
  }

  double busy(const Simulation& simulation) const {
    double sum = 0;
    for (const auto& stage : simulation.intervals)
      for (const auto& interval : stage) sum += interval.end - interval.start;
    return sum;
  }

  const Workload& workload_;
  const Machines& machines_;
  const Layout& layout_;
  const Profile* measured_;  // may be null
  const Pricing pricing_;
  const std::vector<LayerPrice>& prices_;
  const std::vector<int>& stage_of_chunk_;
  std::vector<std::vector<size_t>> layers_;  // by chunk
  std::vector<LayerPrice> chunks_;
  std::vector<double> elements_, owned_;  // by stage: trained parameters, and those that one rank updates
};

}  // namespace

StepEstimate estimate_step(const Workload& workload, const Machines& machines, const Layout& layout,
                           const Schedule& schedule, const std::vector<int>& chunk_of_layer,
                           const std::vector<LayerPrice>& prices, const MeshSpans& spans) {
  const Step step(workload, machines, layout, schedule.stage_of_chunk, chunk_of_layer, prices);
  const int first = first_backward_chunk(workload.spec, chunk_of_layer);
  return first > 0 ? step.estimate(without_backward_before(schedule, first), spans) : step.estimate(schedule, spans);
}

StepEstimate estimate_step(const Workload& workload, const Machines& machines, const Layout& layout) {
  const auto spans = mesh_spans(layout.mesh(), machines.cluster.devices_per_node, layout.sharding.degree);
  const auto prices = layer_prices(workload, machines, layout, spans);
  const auto schedule = training_schedule(layout);
  std::vector<double> costs;
  for (const auto& price : prices) costs.push_back(price.whole());
  return estimate_step(workload, machines, layout, schedule, assign_chunks(costs, schedule.stage_of_chunk), prices,
                       spans);
}

}  // namespace shardline
