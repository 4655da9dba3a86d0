// plan.json as a partition file: what is accepted gives every layer of the model a chunk of the schedule.
#include <optional>

#include "core/model/model_spec.h"
#include "engine/plan/partition_file.h"
#include "pipeline/schedule/kinds/schedule_generators.h"
#include "tests/fuzz/fuzz.h"

namespace shardline::partition_file_fuzz {

FUZZ_TARGET(partition_file) {
  static const ModelSpec model{.layers = {{.name = "wte"}, {.name = "h.0"}, {.name = "h.1"}, {.name = "head"}}};
  static const Schedule plain = one_forward_one_backward(2, 2, 0);
  static const Schedule chunked = interleaved_1f1b(2, 2, 2, 0);
  const std::string path = fuzz::file_with("plan.json", fuzz::text_of(data, size));
  bool accepted = false;
  for (const Schedule& schedule : {plain, chunked}) {
    std::vector<int> chunks;
    if (!fuzz::accepts(size, [&] { chunks = read_partition_file(path, model, schedule); })) continue;
    FUZZ_REQUIRE(chunks.size() == model.layers.size(), chunks.size(), " layers");
    for (const int chunk : chunks) FUZZ_REQUIRE(chunk >= 0 && chunk < schedule.chunks(), "chunk ", chunk);
    accepted = true;
  }
  return accepted;
}

}  // namespace shardline::partition_file_fuzz
