// The values of a stage's layers while passes go through them. Sharded weights are whole from acquire() to release();
// while a layer is used, the next one's are on their way.
#pragma once
#include <vector>

#include "optim/flat/flat_values.h"

namespace shardline {

class PassValues {
 public:
  PassValues(size_t layers, const Sharding& sharding)
      : layers_(layers), gathers_(sharding.level == Sharding::Level::weights), most_gathered_(sharding.most_gathered) {}

  // The values that a layer uses, its own and tied ones, which outlive this.
  void add_layer(int layer, std::vector<FlatValues*> values) { layers_[layer] = std::move(values); }

  // As ParameterStore promises it.
  void begin_run(std::vector<int> acquired);
  void acquire(int layer);
  void release(int layer);

 private:
  void start_gathering(int layer);
  int64_t gathered_elements(int layer) const;

  std::vector<std::vector<FlatValues*>> layers_;  // of the model
  bool gathers_;
  int64_t most_gathered_;      // as in Sharding
  std::vector<int> acquired_;  // of the run, and how far it is
  size_t next_ = 0;
};

}  // namespace shardline
