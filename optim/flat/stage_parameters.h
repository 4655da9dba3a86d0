// All parameters of one rank's stage: flat buffers per layer and per tied parameter, and what is needed to fill, save,
// update and measure them. During passes, pass_values.h manages the values and reduction_queue.h the gradients;
// together they implement ParameterStore for the executor.
//
// A tied parameter has one value on a rank but a gradient for each use. Each use is reduced over the replicas
// separately; then the uses are added in model order, first within a stage, then over the stages that hold the
// parameter. So one process and a pipeline add the same numbers in the same order.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/comm/rank_groups.h"
#include "core/model/layer.h"
#include "optim/flat/flat_gradients.h"
#include "optim/flat/flat_values.h"
#include "optim/flat/pass_values.h"
#include "optim/flat/reduction_queue.h"
#include "optim/flat/shard_groups.h"

namespace shardline {

// The part of a logical parameter that is in a range: consecutive elements of the parameter's local shape. Elements of
// a range that belong to no piece are padding.
struct TrainedPiece {
  const ParamSpec* spec = nullptr;
  int number = 0;  // the logical parameter's index in model order; counts tied parameters once
  int64_t begin = 0, offset = 0, length = 0;  // elements: position in the range, and in the flat local parameter
  bool counted = true;                        // false for copies of elements that another rank counts
};

// A range of values that one optimizer call updates: a segment of a flat buffer or a part of one.
struct TrainedRange {
  at::Tensor values, gradients;  // [elements]
  bool decays;
  std::vector<TrainedPiece> pieces = {};
  // For ranges on a device's host: see take_gradients and hand_on in optim/update/optimizer.h. Otherwise empty.
  std::function<void()> await_gradients = nullptr;  // waits until they are on the host
  std::function<void()> values_changed = nullptr;   // starts to copy them back
  // For values on a device that passes use in half precision: an update may also write the rounded values, and must
  // then call rounded_is_written. Otherwise undefined and empty.
  at::Tensor rounded = {};
  std::function<void()> rounded_is_written = nullptr;
};

// The trained-type values that this rank keeps between steps (FlatValues::own), including frozen ones.
struct KeptRange {
  at::Tensor values;  // [elements]
  std::vector<TrainedPiece> pieces;
};

// A trained logical parameter of the stage, even if this rank holds no part of it.
struct TrainedParameter {
  int number = 0;  // as in TrainedPiece
  const ParamSpec* spec = nullptr;
};

struct StageSetup {
  const ModelSpec& spec;
  const std::vector<int>& stage_of_layer;  // for each layer of the model
  const RankGroups& groups;
  Sharding sharding;
  at::TensorOptions values;    // dtype and device of the values for passes
  bool trains = true;          // false: no gradients are allocated
  HostLinkPtr host = nullptr;  // holds trained values and optimizer states; null: they are on the device
};

class StageParameters : public ParameterStore {
 public:
  // Collective over groups.world: creates communicators over the holders of each tied parameter and of each shard.
  explicit StageParameters(const StageSetup& setup);

  std::vector<Parameter*> layer_params(int layer);  // in the order of the layer's spec
  // The parameters stored on this rank, each once: a tied one at its first use here. Sharded values and gradients have
  // memory only while they are whole; see fill_values and visit_values.
  std::vector<Parameter*> stored();
  at::ScalarType trained_type() const;                     // fp32 for half precision, too
  at::Device device() const { return options_.device(); }  // of the values that passes use and communicators transfer
  // Whether this rank, of all that hold the parameter, is the one that writes it to files.
  bool writes(const Parameter& parameter) const;

  // Process all stored parameters, one buffer after another: `fill` sets the values; `see` is called with whole values.
  // These are the trained values: the fp32 masters for half precision. visit_values is collective over the ranks that
  // share the stage and waits for its collectives with `await`, because `see` may take long on some ranks.
  void fill_values(const std::function<void(Parameter&)>& fill);
  void visit_values(
      const std::function<void(const Parameter&)>& see,
      const std::function<void(Work&)>& await = [](Work& work) { work.wait(); });

  void begin_run(std::vector<int> acquired) override { pass_values_.begin_run(std::move(acquired)); }
  void acquire(int layer) override { pass_values_.acquire(layer); }
  void release(int layer) override { pass_values_.release(layer); }
  void open_gradients(int layer, bool deferred) override { reductions_.open(layer, deferred); }
  void close_gradients(int layer, bool deferred, bool last) override { reductions_.close(layer, deferred, last); }
  void settle_gradients() override { reductions_.settle(); }

  void zero_gradients();
  void finish_gradients();  // waits for all reductions, and adds the uses of tied parameters
  // Call it between finish_gradients and an update: starts to copy gradients to the host if ranges are updated there.
  void bring_gradients();
  std::vector<TrainedRange> trained_ranges();  // this rank's shards; valid while this object exists
  std::vector<KeptRange> kept_values();
  std::vector<TrainedParameter> trained_parameters() const;  // in the same order on all ranks of the stage
  // The ranks that share this stage's trained parameters.
  CommunicatorPtr part_holders() const { return shard_groups_.part_holders(); }
  bool states_are_on_host() const { return host_ != nullptr; }  // and updates run there, too
  void publish_values();  // after an update of all trained ranges: publishes the ranges that the update did not

  // After finish_gradients: the model's gradients in parts, each of which exactly one rank of the world returns.
  std::vector<at::Tensor> counted_gradients() const;
  const RankGroups& groups() const { return groups_; }

 private:
  struct Buffer {  // holds one layer's untied parameters, or a tied one
    FlatLayout layout;
    std::vector<FlatValues> values;  // by segment
    // By trainable segment; these come first. For a tied parameter, these are the gradients of its first use here.
    std::vector<FlatGradients> gradients;
  };
  struct LayerParams {
    Buffer buffer;
    std::vector<Parameter> own;
    std::vector<Parameter*> in_spec_order;
  };
  struct Use {
    int layer;
    std::vector<FlatGradients> gradients;
    Parameter parameter;
  };
  struct Tie {
    std::string name;
    std::optional<Buffer> buffer;            // if this stage holds it; without gradients
    std::vector<std::unique_ptr<Use>> uses;  // on this stage, in model order
    std::vector<int> stages;                 // the stages that hold it, ascending
    CommunicatorPtr holders;                 // over the stages that hold it, if there are several
  };
  void find_ties(const std::vector<int>& stage_of_layer);
  void build_layer(int layer);
  Buffer make_buffer(const std::vector<NamedParam>& params) const;
  std::vector<FlatGradients> make_gradients(const FlatLayout& layout, const HostLinkPtr& host) const;
  std::vector<Parameter> views(const Buffer& buffer, const std::vector<FlatGradients>& gradients) const;
  int number_of(const std::string& name) const;
  std::vector<TrainedPiece> pieces_of(const Buffer& buffer, size_t segment) const;
  void visit_buffers(const std::function<void(Buffer&, std::vector<Parameter*>, std::vector<FlatGradients>&)>& see);

  const ModelSpec& spec_;
  RankGroups groups_;
  Sharding sharding_;
  at::TensorOptions options_;
  bool trains_;
  HostLinkPtr host_;
  ShardGroups shard_groups_;
  std::vector<std::string> numbers_;  // logical parameters in model order
  std::vector<Tie> ties_;
  std::vector<std::unique_ptr<LayerParams>> layers_;  // by layer of the model; null on other stages
  PassValues pass_values_;
  ReductionQueue reductions_;
};

}  // namespace shardline
