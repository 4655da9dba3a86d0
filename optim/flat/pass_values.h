// The values of a stage's layers during passes. Sharded weights are whole from acquire() to release(); while one layer
// is in use, the next layer's are being gathered.
#pragma once
#include <vector>

#include "optim/flat/flat_values.h"

namespace shardline {

class PassValues {
 public:
  PassValues(size_t layers, const Sharding& sharding)
      : layers_(layers), gathers_(sharding.level == Sharding::Level::weights), most_gathered_(sharding.most_gathered) {}

  // Registers the values that a layer uses, its own and tied ones; they must outlive this object.
  void add_layer(int layer, std::vector<FlatValues*> values) { layers_[layer] = std::move(values); }

  // See ParameterStore.
  void begin_run(std::vector<int> acquired);
  void acquire(int layer);
  void release(int layer);

 private:
  void start_gathering(int layer);
  int64_t gathered_elements(int layer) const;

  std::vector<std::vector<FlatValues*>> layers_;  // by layer of the model
  bool gathers_;
  int64_t most_gathered_;      // as in Sharding
  std::vector<int> acquired_;  // for this run
  size_t next_ = 0;
};

}  // namespace shardline
