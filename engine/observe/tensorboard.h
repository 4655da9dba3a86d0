// Scalars in TensorBoard's event format, encoded without a library: a record is a length, its checksum, a protobuf
// message and its checksum (masked CRC-32C, little endian).
//
// Tags are those of Hugging Face's Trainer: a step's numbers under train/ (train/loss, train/grad_norm,
// train/learning_rate, ...), an evaluation's eval_loss as eval/loss.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/observe/append_file.h"
#include "engine/observe/metrics.h"

namespace shardline {

class TensorBoardWriter {
 public:
  // Seconds since 1970.
  using Clock = std::function<double()>;

  // Creates a new file events.out.tfevents.* in `directory`, which is created if necessary. Throws RunError, as do the
  // writes.
  explicit TensorBoardWriter(const std::string& directory, Clock clock = system_seconds);

  void add(const StepMetrics& metrics);
  void add(const EvaluationMetrics& metrics);

  const std::string& path() const { return file_.path(); }
  static double system_seconds();

 private:
  Clock clock_;
  AppendFile file_;
};

// Removes the records of later steps from a file, and an incomplete record of a killed run. Throws RunError.
void keep_events_until(const std::string& path, int64_t step);

using Scalars = std::vector<std::pair<std::string, double>>;  // tag, value (stored as fp32)

// Complete records with framing: the first of a file, and one with scalars.
std::string tensorboard_version_record(double wall_time);
std::string tensorboard_record(double wall_time, int64_t step, const Scalars& scalars);

uint32_t crc32c(std::string_view bytes);

}  // namespace shardline
