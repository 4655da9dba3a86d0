#include "optim/update/optimizer.h"

#include "core/error.h"
#include "optim/update/adafactor.h"
#include "optim/update/adam.h"
#include "optim/update/added_optimizer.h"
#include "optim/update/sgd.h"
#include "optim/update/tensor_factors.h"

namespace shardline {

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, StageParameters& parameters) {
  switch (options.kind) {
    case OptimizerOptions::Kind::adamw:
    case OptimizerOptions::Kind::adam:
      return std::make_unique<Adam>(parameters.trained_ranges(), options);
    case OptimizerOptions::Kind::sgd:
      return std::make_unique<Sgd>(parameters.trained_ranges(), options);
    case OptimizerOptions::Kind::adafactor:
      return std::make_unique<Adafactor>(parameters.trained_ranges(), parameters.trained_parameters(),
                                         PartHolders{.t = parameters.groups().coordinates.t,
                                                     .t_degree = parameters.groups().mesh.t(),
                                                     .communicator = parameters.part_holders(),
                                                     .device = parameters.device()},
                                         options);
    case OptimizerOptions::Kind::added:
      return std::make_unique<AddedOptimizer>(parameters.trained_ranges(), options);
  }
  throw InvariantError("unknown optimizer");
}

int64_t optimizer_state_bytes(const OptimizerOptions& options, const ParamSpec& spec, int64_t elements,
                              int64_t element_bytes) {
  switch (options.kind) {
    case OptimizerOptions::Kind::adamw:
    case OptimizerOptions::Kind::adam:
      return 2 * elements * element_bytes;
    case OptimizerOptions::Kind::sgd:
      return options.momentum == 0 ? 0 : elements * element_bytes;
    case OptimizerOptions::Kind::adafactor:
      return adafactor_state_bytes(spec, elements, element_bytes);
    case OptimizerOptions::Kind::added:
      return std::ssize(rule_of(options).states) * elements * element_bytes;
  }
  throw InvariantError("unknown optimizer");
}

std::vector<StateTensor> state_tensors(const OptimizerOptions& options, const ParamSpec& spec) {
  const auto of_each_source = [&](const std::vector<std::string>& names) {
    std::vector<StateTensor> tensors;
    for (size_t source = 0; source < spec.sources.size(); ++source)
      for (const auto& name : names) tensors.push_back({name, source});
    return tensors;
  };
  switch (options.kind) {
    case OptimizerOptions::Kind::adamw:
    case OptimizerOptions::Kind::adam:
      return of_each_source({kFirstMoment, kSecondMoment});
    case OptimizerOptions::Kind::sgd:
      return options.momentum == 0 ? std::vector<StateTensor>() : of_each_source({kMomentum});
    case OptimizerOptions::Kind::adafactor:
      return adafactor_state_tensors(spec);
    case OptimizerOptions::Kind::added:
      return of_each_source(rule_of(options).states);
  }
  throw InvariantError("unknown optimizer");
}

void add_state_parts(const char* name, const TrainedRange& range, const at::Tensor& state,
                     std::vector<StatePart>& parts) {
  for (const auto& piece : range.pieces)
    for (size_t source = 0; source < piece.spec->sources.size(); ++source)
      parts.push_back({.tensor = {name, source},
                       .spec = piece.spec,
                       .number = piece.number,
                       .offset = piece.offset,
                       .length = piece.length,
                       .values = state.narrow(0, piece.begin, piece.length)});
}

void take_gradients(const TrainedRange& range, const GradientFactor& factor, double max_value) {
  if (range.await_gradients) range.await_gradients();
  if (factor.on_device.defined())
    range.gradients.mul_(factor.on_device);
  else if (factor.known != 1)
    range.gradients.mul_(factor.known);
  if (max_value > 0) range.gradients.clamp_(-max_value, max_value);
}

void hand_on(const TrainedRange& range) {
  if (range.values_changed) range.values_changed();
}

}  // namespace shardline
