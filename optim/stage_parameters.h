// All parameters of one rank's stage: one flat buffer per layer and one per tied parameter, with the reduction of their
// gradients. Implements the executor's view of the owner of parameters.
//
// A tied parameter has one value on a rank but a gradient per use. Each use is reduced over the replicas by itself,
// then the uses are added in model order, first those of a stage, then over the stages that hold the parameter; so one
// process and a pipeline add the same numbers in the same order.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "core/rank_groups.h"
#include "optim/flat_buffer.h"

namespace shardline {

// A part of a logical parameter that stands in a range: its elements one after the other as the parameter's local shape
// has them. What of a range is in no piece is padding.
struct TrainedPiece {
  const ParamSpec* spec = nullptr;
  int number = 0;                             // of the logical parameter, see LogicalGradient
  int64_t begin = 0, offset = 0, length = 0;  // elements: where in the range, and in the flat local parameter
  bool counted = true;  // copies that other ranks hold do not enter sums over ranks; this one does
};

// A range of values that one optimizer call updates: a segment of a flat buffer, or a part of one, cut anywhere.
struct TrainedRange {
  at::Tensor values, gradients;  // [elements]
  bool decays;
  std::vector<TrainedPiece> pieces = {};
};

// A logical parameter of the stage that is trained, whether or not this rank holds a part of it.
struct TrainedParameter {
  int number = 0;  // see LogicalGradient
  const ParamSpec* spec = nullptr;
};

// A logical parameter on this rank. `number` counts the model's parameters in model order, tied ones once.
struct LogicalGradient {
  int number;
  const Parameter* parameter;
  bool counted;  // this rank's part enters the global norm here (replicated and tied parameters are counted once)
};

class StageParameters : public ParameterStore {
 public:
  // layers: the layers of this rank's stage, ascending; stage_of_layer: for all layers of the model. Collective over
  // groups.world (tied parameters get a communicator over their holders). trains = false: no gradients are allocated.
  StageParameters(const ModelSpec& spec, const std::vector<int>& stage_of_layer, const RankGroups& groups,
                  at::ScalarType dtype, at::Device device, bool trains);

  std::vector<Parameter*> layer_params(int layer);  // in the order of the layer's spec
  // Every parameter stored on this rank once, tied ones at their first use here: for reading and writing files.
  std::vector<Parameter*> stored();
  bool writes(const Parameter& parameter) const;  // this rank is the one of its holders that writes it to a file

  void zero_gradients();
  void acquire(int) override {}
  void release(int) override {}
  void gradients_ready(int layer) override;  // starts the reduction over the ranks that share the layer
  void finish_gradients();                   // waits for all, and joins the uses of tied parameters

  std::vector<TrainedRange> trained_ranges() const;
  std::vector<TrainedParameter> trained_parameters() const;  // in the same order on all ranks of the stage
  std::vector<LogicalGradient> logical_gradients() const;    // after finish_gradients
  int logical_count() const { return static_cast<int>(numbers_.size()); }
  const RankGroups& groups() const { return groups_; }

 private:
  struct LayerParams {
    std::optional<FlatBuffer> buffer;  // of its untied parameters
    at::Tensor gradients;
    std::vector<Parameter> own;
    std::vector<Parameter*> in_spec_order;
  };
  struct Use {
    int layer;
    at::Tensor gradients;  // of the whole buffer
    Parameter parameter;
  };
  struct Tie {
    std::string name;
    std::optional<FlatBuffer> buffer;        // where this stage holds it
    std::vector<std::unique_ptr<Use>> uses;  // of this stage, in model order
    std::vector<int> stages;                 // that hold it, ascending
    CommunicatorPtr holders;                 // of this stage's copy, when there are several
  };

  void find_ties(const std::vector<int>& stage_of_layer);
  void build_layer(int layer);
  int number_of(const std::string& name) const;
  bool is_split(const ParamSpec& spec) const;
  std::vector<TrainedPiece> pieces_in(const FlatBuffer& buffer, const Segment& segment) const;
  void reduce(const at::Tensor& gradients, const Segment& segment, const std::string& what);

  const ModelSpec& spec_;
  RankGroups groups_;
  at::ScalarType dtype_;
  at::Device device_;
  bool trains_;
  std::vector<std::string> numbers_;  // logical parameters in model order
  std::vector<Tie> ties_;
  std::vector<std::unique_ptr<LayerParams>> layers_;  // by layer of the model; null on other stages
  std::vector<WorkPtr> pending_;
  std::vector<std::string> layer_names_;
};

}  // namespace shardline
