// Updates the parameters of a rank's stage. Optimizers work on flat ranges. Their state is as long as the values they
// update, so a rank with a part of a range keeps only that part of the state.
#pragma once
#include <memory>

#include "optim/flat/stage_parameters.h"
#include "optim/update/optimizer_options.h"

namespace shardline {

// The factor of gradients before an update: a number, or a tensor on an accelerator whose value the host has not read.
struct GradientFactor {
  GradientFactor(double known_) : known(known_) {}
  GradientFactor(at::Tensor on_device_) : on_device(std::move(on_device_)) {}
  double known = 1;      // the factor if on_device is undefined
  at::Tensor on_device;  // [], fp32
};

// A tensor of an optimizer's state, named as in torch.optim and transformers: "exp_avg". It belongs to one tensor of
// the model's file.
struct StateTensor {
  std::string name;
  size_t source = 0;  // in ParamSpec::sources
  // By element: has the shape of the file's tensor. Otherwise has the shape `shape`, and every rank of part_holders()
  // has all of it.
  bool by_element = true;
  std::vector<int64_t> shape = {};
  bool is_double = false;  // otherwise it has the type of the trained values
};
// The state that an optimizer keeps for a trained parameter.
std::vector<StateTensor> state_tensors(const OptimizerOptions& options, const ParamSpec& spec);

// A rank's part of a state tensor. `values` is the optimizer's own memory, which may be read and written between steps.
struct StatePart {
  StateTensor tensor;
  const ParamSpec* spec = nullptr;
  int number = 0;                  // the parameter's number, as in TrainedPiece
  int64_t offset = 0, length = 0;  // by element: as in TrainedPiece; only elements of the source belong to the state
  at::Tensor values;               // by element [length], else [elements of the shape]
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // This rank's parts of the state. The number of updates so far is part of it, too.
  virtual std::vector<StatePart> state() = 0;
  int64_t updates() const { return updates_; }
  void set_updates(int64_t updates) { updates_ = updates; }
  // Updates the values of all ranges from their gradients, which must be complete and may be clipped in place.
  // gradient_factor: multiplies the gradients first (clip_factor). All ranks that hold parts of a parameter take part.
  // Gradients of a range are not used before take_gradients, nor its values after hand_on.
  virtual void step(double learning_rate, const GradientFactor& gradient_factor) = 0;

 protected:
  int64_t updates_ = 0;  // calls of step()
};

// Appends the parts of a by-element state [elements of the range], one per piece.
void add_state_parts(const char* name, const TrainedRange& range, const at::Tensor& state,
                     std::vector<StatePart>& parts);

// The parameters must outlive the result. Throws ConfigError if this optimizer does not support their device.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, StageParameters& parameters);

// To be called before a range is updated: waits for its gradients, multiplies them by `factor`, then limits each
// element to +- max_value (0: no limit).
void take_gradients(const TrainedRange& range, const GradientFactor& factor, double max_value);
// To be called after the update.
void hand_on(const TrainedRange& range);

}  // namespace shardline
