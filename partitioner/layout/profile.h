// Measured times of a model's layers and of the links between its ranks. `shardline profile` measures them once; plans
// and later runs use them as long as the conditions in `valid_for` hold.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/model/model_spec.h"

namespace shardline {

// Calls of one op with one set of input shapes.
struct TracedOp {
  std::string name;                          // "shardline::linear_forward", "aten::copy_"
  std::vector<std::vector<int64_t>> shapes;  // shapes of its tensors; [] for other arguments
  int64_t calls = 0;
  double flops = 0;  // FLOPs of the matrix products of all calls
  bool operator==(const TracedOp&) const = default;
};

// One microbatch through one layer on one rank, including its communication over T. Seconds are medians.
struct LayerMeasurement {
  std::string name;  // name of the first layer of its kind
  std::string kind;  // see layer_kind
  double forward_seconds = 0;
  double backward_seconds = 0;         // input and weight gradients in one pass
  double backward_input_seconds = 0;   // weight gradients are postponed ...
  double backward_weight_seconds = 0;  // ... to this pass
  double recompute_core_seconds = 0;   // extra time of a backward that recomputes the attention core
  double forward_flops = 0, backward_flops = 0;
  int64_t kept_bytes = 0;    // between forward and backward: its input and what its ops save
  int64_t border_bytes = 0;  // sent to the next layer
  int64_t parameters = 0;    // elements on this rank
  std::vector<TracedOp> forward_ops, backward_ops;
  bool operator==(const LayerMeasurement&) const = default;
};

// Median seconds of an operation for ascending sizes in bytes. Sizes are those of the whole tensor: before a reduction,
// after a gather, or of a message.
struct LinkMeasurement {
  std::string group;      // "tp", "rdp", "pp"
  std::string operation;  // "all_reduce", "all_gather", "reduce_scatter", "send"
  int ranks = 1;          // ranks in the group
  std::vector<int64_t> bytes;
  std::vector<double> seconds;
  double hidden = 0;  // fraction of the time that does not prolong an overlapping computation; 0 to 1
  bool operator==(const LinkMeasurement&) const = default;
};

// The device of one rank, measured while all ranks of the host are busy.
struct DeviceMeasurement {
  double memory_bytes = 0;             // for one rank
  std::string precision = "fp32";      // the run's: "fp32" (also for float64), "fp16" or "bf16"
  double flops_per_second = 0;         // in a large matrix product in that precision
  double memory_bytes_per_second = 0;  // bytes read and written by a sweep over more memory than fits in caches
  double launch_seconds = 0;           // the time of an op on a tiny tensor
  bool operator==(const DeviceMeasurement&) const = default;
};

struct Profile {
  // The conditions under which another run may use the profile: "device", "torch", "microbatch_size", ...
  std::map<std::string, std::string> valid_for;
  DeviceMeasurement device;
  std::vector<LayerMeasurement> layers;
  std::vector<LinkMeasurement> links;
  // Seconds per element on a rank. Per gradient: every use of a tied parameter counts; per stored value: only one does.
  double clear_seconds_per_gradient = 0;    // before a step, including reading the batch
  double join_seconds_per_gradient = 0;     // for each further use of a tied parameter on the same rank
  double optimizer_seconds_per_stored = 0;  // norm, clipping and update
  bool operator==(const Profile&) const = default;
};

// How `needed` differs from valid_for: "device: Xeon, not EPYC; ..."; empty: the profile applies.
std::string mismatch(const Profile& profile, const std::map<std::string, std::string>& needed);

// Interpolates between measured sizes. Larger sizes use the rate of the largest, smaller ones the time of the
// smallest.
double link_seconds(const LinkMeasurement& link, double bytes);

// Look up measurements in the profile; null if there is none.
const LayerMeasurement* find_layer(const Profile& profile, const LayerSpec& layer);
const LinkMeasurement* find_link(const Profile& profile, const std::string& group, const std::string& operation,
                                 int ranks);

void write_profile(const Profile& profile, const std::string& path);  // throws RunError
Profile read_profile(const std::string& path);                        // throws a DataError that names the place

}  // namespace shardline
