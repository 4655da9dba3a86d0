// The reductions of the gradients of a stage's layers, from the microbatches that add to them to complete sums: tracks
// which gradients are open and which reductions over the replicas are in progress. Ranks that share a layer start and
// wait for its reductions in the same order.
#pragma once
#include <deque>
#include <string>
#include <vector>

#include "optim/flat/flat_gradients.h"

namespace shardline {

class ReductionQueue {
 public:
  ReductionQueue(size_t layers, const Sharding& sharding) : layers_(layers), sharding_(sharding) {}

  // Registers the gradients that a layer adds to; they must outlive this object. `name` identifies their reductions in
  // records.
  void add_layer(int layer, const std::string& name, const std::vector<FlatGradients*>& gradients);

  // See ParameterStore. At most one layer's whole gradients are being reduced while another layer computes its own.
  void open(int layer, bool deferred);
  void close(int layer, bool deferred, bool last);
  void settle();  // waits for the reductions of all microbatches
  void finish();  // waits for all reductions

 private:
  struct LayerGradients {
    std::string name;
    std::vector<FlatGradients*> by_deferred[2];
  };
  struct Reduction {
    int layer;
    FlatGradients* gradients;
    WorkPtr work;
    bool of_microbatch, last;
  };

  void complete_oldest();
  void start_step_reduction(int layer, FlatGradients& gradients);

  std::vector<LayerGradients> layers_;  // by layer of the model
  Sharding sharding_;
  std::deque<Reduction> under_way_;
  int last_closed_ = -1;
};

}  // namespace shardline
