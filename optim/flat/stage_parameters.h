// All parameters of one rank's stage: flat buffers per layer and per tied parameter, and what filling, saving, updating
// and measuring them needs to know. While passes go, pass_values.h has the values and gradient_reductions.h the
// gradients; together they are the executor's view of the owner of parameters.
//
// A tied parameter has one value on a rank but a gradient per use. Each use is reduced over the replicas by itself,
// then the uses are added in model order, first those of a stage, then over the stages that hold the parameter; so one
// process and a pipeline add the same numbers in the same order.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/comm/rank_groups.h"
#include "core/model/layer.h"
#include "optim/flat/flat_gradients.h"
#include "optim/flat/flat_values.h"
#include "optim/flat/gradient_reductions.h"
#include "optim/flat/pass_values.h"
#include "optim/flat/shard_groups.h"

namespace shardline {

// A part of a logical parameter that lies in a range: its elements one after the other as the parameter's local shape
// has them. What of a range is in no piece is padding.
struct TrainedPiece {
  const ParamSpec* spec = nullptr;
  int number = 0;                             // of the logical parameter, in model order, tied ones once
  int64_t begin = 0, offset = 0, length = 0;  // elements: where in the range, and in the flat local parameter
  bool counted = true;  // copies that other ranks hold do not enter sums over ranks; this one does
};

// A range of values that one optimizer call updates: a segment of a flat buffer, or a part of one, cut anywhere.
struct TrainedRange {
  at::Tensor values, gradients;  // [elements]
  bool decays;
  std::vector<TrainedPiece> pieces = {};
  // If both are on the host of a device: see take_gradients and hand_on in optim/update/optimizer.h. Empty elsewhere.
  std::function<void()> await_gradients = nullptr;  // until then they are on their way
  std::function<void()> values_changed = nullptr;   // they may be on their way back
};

// A logical parameter of the stage that is trained, whether or not this rank holds a part of it.
struct TrainedParameter {
  int number = 0;  // as in TrainedPiece
  const ParamSpec* spec = nullptr;
};

struct StageSetup {
  const ModelSpec& spec;
  const std::vector<int>& stage_of_layer;  // for all layers of the model
  const RankGroups& groups;
  Sharding sharding;
  at::TensorOptions values;    // dtype and device of what passes see
  bool trains = true;          // false: no gradients are allocated
  HostLinkPtr host = nullptr;  // the host that holds trained values and optimizer states; null: on the device
};

class StageParameters : public ParameterStore {
 public:
  // Collective over groups.world (tied parameters get a communicator over their holders, shards one over theirs).
  explicit StageParameters(const StageSetup& setup);

  std::vector<Parameter*> layer_params(int layer);  // in the order of the layer's spec
  // Every parameter stored on this rank once, tied ones at their first use here. Values and gradients of sharded ones
  // have memory only while they are whole; see fill_values and visit_values.
  std::vector<Parameter*> stored();
  at::ScalarType trained_type() const;  // of the values that are trained: fp32, also for half precision
  at::Device device() const { return options_.device(); }  // of what passes see and communicators carry
  bool writes(const Parameter& parameter) const;  // this rank is the one of its holders that writes it to a file

  // For all that is stored, one buffer after the other: `fill` sets the values; `see` is shown whole values. Values are
  // those that are trained: the fp32 masters of half precision. visit_values is collective over the ranks that share
  // the stage, and leaves it to `await` how to wait for its collectives, for `see` may take long on some ranks.
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
  void finish_gradients();  // waits for all reductions, and joins the uses of tied parameters
  // After that, before an update: gradients are being copied to the host, if ranges are there.
  void bring_gradients();
  std::vector<TrainedRange> trained_ranges();                // of this rank's shards; to be used while this lives
  std::vector<TrainedParameter> trained_parameters() const;  // in the same order on all ranks of the stage
  // The ranks among which the parts of this stage's trained parameters are dealt out.
  CommunicatorPtr part_holders() const { return shard_groups_.part_holders(); }
  void publish_values();  // after an update of all trained ranges: what they did not hand on themselves

  // After finish_gradients: the gradients of the model in parts, each on one rank of the world only.
  std::vector<at::Tensor> counted_gradients() const;
  const RankGroups& groups() const { return groups_; }

 private:
  struct Buffer {  // of one layer's untied parameters, or of a tied one
    FlatLayout layout;
    std::vector<FlatValues> values;        // by segment
    std::vector<FlatGradients> gradients;  // of the trainable segments, which come first; of a tie's first use
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
    std::optional<Buffer> buffer;            // where this stage holds it; without gradients
    std::vector<std::unique_ptr<Use>> uses;  // of this stage, in model order
    std::vector<int> stages;                 // that hold it, ascending
    CommunicatorPtr holders;                 // of this stage's copy, when there are several
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
  GradientReductions reductions_;
};

}  // namespace shardline
