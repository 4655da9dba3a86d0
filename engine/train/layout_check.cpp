#include "engine/train/layout_check.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/comm/long_work.h"
#include "core/error.h"
#include "optim/flat/whole_gradients.h"

namespace shardline {
namespace {

using Tensors = std::map<std::string, at::Tensor>;

constexpr double kGradientLimit = 1e-10, kNormLimit = 1e-10, kLossLimit = 1e-12, kChangeLimit = 1e-8;
constexpr double kRounding = 1e-12;  // up to this share of the largest gradient, a gradient is zero except for rounding

// This rank's slices of the values, in host memory.
Tensors values_of(StageParameters& parameters) {
  Tensors values;
  parameters.visit_values([&](const Parameter& parameter) { values[parameter.name] = parameter.value.cpu().clone(); });
  return values;
}

// Calls see(name, whole tensor in double) on the first rank for every parameter that has a slice on some rank.
// Collective over the world.
void visit_whole(StageParameters& parameters, const ModelSpec& spec, const Tensors& slices,
                 const std::function<void(const std::string&, const at::Tensor&)>& see) {
  const RankGroups& groups = parameters.groups();
  for (const auto& layer : spec.layers)
    for (const auto& param : layer.params) {
      if (!param.tied_to.empty()) continue;
      const std::string name = layer.full_name(param);
      const at::Tensor whole = at::zeros(param.shape, at::kDouble);
      const auto found = slices.find(name);
      if (found != slices.end() && parameters.writes({name, &param, {}, {}})) {
        const Range range = param.split(groups.coordinates.t, groups.mesh.t());
        (param.split_dim < 0 ? whole : whole.narrow(param.split_dim, range.begin, range.length)).copy_(found->second);
      }
      groups.world->all_reduce(whole, {.what = "comparison with one process"})->wait();
      if (groups.world->rank() == 0) see(name, whole);
    }
}

double largest_of(const at::Tensor& tensor) {
  return tensor.numel() > 0 ? tensor.abs().max().item<double>() : 0;
}

// NaN is larger than any number.
void raise(LayoutDifference& difference, double value, const std::string& where) {
  if (value <= difference.largest || std::isnan(difference.largest)) return;
  difference.largest = value;
  difference.where = where;
}

// The elements whose change can be compared: all, unless gradients that are zero in exact arithmetic (such as those of
// attention's key biases) are rounding, which optimizers like AdamW turn into steps of any size. Undefined: all.
at::Tensor comparable(const at::Tensor& gradient, const at::Tensor& expected, double zero) {
  const at::Tensor is_zero = expected.abs() <= zero;
  const at::Tensor is_rounding = is_zero & ((expected != 0) | (gradient != 0));
  return is_rounding.any().item<bool>() ? ~is_zero : at::Tensor();
}

class Comparison {
 public:
  Comparison(const CheckedRun& layout, const CheckedRun* one_process, const ModelSpec& spec, Communicator& world)
      : layout_(layout), one_(one_process), spec_(spec), world_(world) {}

  std::vector<LayoutDifference> run(int64_t steps) {
    compare_gradients();
    const Tensors before = one_ ? values_of(one_->trainer.parameters()) : Tensors();
    for (int64_t step = 1; step <= steps; ++step) train(step);
    compare_changes(before);
    return one_ ? std::vector{gradient_, norm_, loss_, change_} : std::vector<LayoutDifference>();
  }

 private:
  // The work of the first rank, during which the others wait.
  template <class Work>
  void alone(const Work& work) {
    LongWork waiting(world_, "training in one process");
    if (one_) work();
    waiting.finish();
  }

  void compare_gradients() {
    layout_.trainer.accumulate_gradients(layout_.data, 1);
    Tensors expected;
    double largest = 0;
    alone([&] {
      one_->trainer.accumulate_gradients(one_->data, 1);
      expected = whole_gradients(one_->trainer.parameters(), spec_);
      for (const auto& [name, gradient] : expected) largest = std::max(largest, largest_of(gradient));
    });
    const Tensors mine = whole_gradients(layout_.trainer.parameters(), spec_);
    visit_whole(layout_.trainer.parameters(), spec_, mine, [&](const std::string& name, const at::Tensor& gradient) {
      const auto found = expected.find(name);
      if (found == expected.end()) return;  // frozen
      const at::Tensor same_shape = gradient.reshape(found->second.sizes());
      const double own = largest_of(found->second);
      const double scale = own > kRounding * largest ? own : largest;
      const double difference = largest_of(same_shape - found->second);
      raise(gradient_, difference == 0 ? 0 : difference / scale, name);
      if (const auto counted = comparable(same_shape, found->second, kRounding * largest); counted.defined())
        compared_.emplace(name, counted);
    });
  }

  void train(int64_t step) {
    const StepMetrics layout = layout_.trainer.train_step(layout_.data, step);
    alone([&] {
      const StepMetrics one = one_->trainer.train_step(one_->data, step);
      const auto relative = [](double a, double b) { return a == b ? 0 : std::abs(a - b) / std::abs(b); };
      const std::string where = cat("step ", step);
      raise(norm_, relative(layout.grad_norm, one.grad_norm), where);
      raise(loss_, relative(layout.loss, one.loss), where);
    });
  }

  void compare_changes(const Tensors& before) {
    const Tensors after = one_ ? values_of(one_->trainer.parameters()) : Tensors();
    const Tensors mine = values_of(layout_.trainer.parameters());
    visit_whole(layout_.trainer.parameters(), spec_, mine, [&](const std::string& name, const at::Tensor& value) {
      // The layout may have turned a dimension that it divides into several dimensions.
      const at::Tensor& expected = after.at(name);
      const auto counted = compared_.find(name);
      const auto size_of = [&](const at::Tensor& change) {
        return (counted == compared_.end() ? change : change * counted->second).norm().item<double>();
      };
      const double difference = size_of(value.reshape(expected.sizes()) - expected);
      const double change = size_of(expected - before.at(name));
      raise(change_, difference == 0 ? 0 : difference / change, name);
    });
  }

  const CheckedRun& layout_;
  const CheckedRun* const one_;  // null on all ranks but the first
  const ModelSpec& spec_;
  Communicator& world_;
  Tensors compared_;  // by parameter: its elements whose change is compared, if not all are
  LayoutDifference gradient_{.what = "gradient", .limit = kGradientLimit};
  LayoutDifference norm_{.what = "gradient norm", .limit = kNormLimit};
  LayoutDifference loss_{.what = "loss", .limit = kLossLimit};
  LayoutDifference change_{.what = "change", .limit = kChangeLimit};
};

}  // namespace

std::vector<LayoutDifference> compare_with_one_process(const CheckedRun& layout, const CheckedRun* one_process,
                                                       const ModelSpec& spec, int64_t steps, Communicator& world) {
  SL_ASSERT(!one_process == (world.rank() > 0), "the first rank has the run of one process");
  return Comparison(layout, one_process, spec, world).run(steps);
}

}  // namespace shardline
