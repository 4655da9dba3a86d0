#include "engine/observe/tensorboard.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <filesystem>
#include <limits>

#include "core/error.h"
#include "core/files/disk_file.h"
#include "core/files/regular_file.h"

namespace shardline {
namespace {

// ---- numbers and protobuf's wire format

template <class Unsigned>
void append_little_endian(std::string& out, Unsigned value) {
  for (size_t byte = 0; byte < sizeof(Unsigned); ++byte) out += value >> (8 * byte) & 0xff;
}

void append_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += value | 0x80;
  out += value;
}

enum WireType { varint = 0, fixed64 = 1, delimited = 2, fixed32 = 5 };

void append_key(std::string& out, int field, WireType type) {
  append_varint(out, field << 3 | type);
}

void append_bytes(std::string& out, int field, std::string_view bytes) {
  append_key(out, field, delimited);
  append_varint(out, bytes.size());
  out += bytes;
}

// ---- tensorflow.Event {1 wall_time, 2 step, 3 file_version, 5 summary {1 value {1 tag, 2 simple_value}}}

std::string event(double wall_time, int64_t step) {
  std::string out;
  append_key(out, 1, fixed64);
  append_little_endian(out, std::bit_cast<uint64_t>(wall_time));
  if (step != 0) {  // zeros are left out, as in protobuf
    append_key(out, 2, varint);
    append_varint(out, step);
  }
  return out;
}

std::string summary(const Scalars& scalars) {
  std::string out;
  for (const auto& [tag, scalar] : scalars) {
    std::string value;
    append_bytes(value, 1, tag);
    append_key(value, 2, fixed32);
    const float simple_value = scalar;
    append_little_endian(value, std::bit_cast<uint32_t>(simple_value));
    append_bytes(out, 1, value);
  }
  return out;
}

// ---- records

uint32_t masked_checksum(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xa282ead8u;
}

std::string record(std::string_view message) {
  std::string out;
  append_little_endian<uint64_t>(out, message.size());
  append_little_endian(out, masked_checksum(out));
  out += message;
  append_little_endian(out, masked_checksum(message));
  return out;
}

uint64_t little_endian(std::string_view bytes) {
  uint64_t value = 0;
  int shift = 0;
  for (const unsigned char byte : bytes) {
    value |= uint64_t{byte} << shift;
    shift += 8;
  }
  return value;
}

// The step of an event, whose fields are in the order in which protobuf writes them.
int64_t step_of(std::string_view event) {
  constexpr size_t kTime = 9;  // the key and the value of wall_time
  if (event.size() <= kTime || event[kTime] != (2 << 3 | varint)) return 0;
  uint64_t step = 0;
  for (size_t i = kTime + 1, shift = 0; i < event.size() && shift < 64; ++i, shift += 7) {
    step |= uint64_t{event[i] & 0x7fu} << shift;
    if (!(event[i] & 0x80)) break;
  }
  return step;
}

std::string event_file(const std::string& directory, double wall_time) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) throw RunError(cat("cannot create ", directory, ": ", error.message()));
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host = {"unknown"};
  const int64_t seconds = wall_time;
  return cat(directory, "/events.out.tfevents.", seconds, ".", host.data(), ".", ::getpid());
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static const std::array<uint32_t, 256> remainders = [] {  // by the Castagnoli polynomial, bits reversed
    std::array<uint32_t, 256> out{};
    for (uint32_t byte = 0; byte < out.size(); ++byte) {
      uint32_t remainder = byte;
      for (int bit = 0; bit < 8; ++bit) remainder = remainder >> 1 ^ (remainder & 1 ? 0x82f63b78u : 0);
      out[byte] = remainder;
    }
    return out;
  }();
  uint32_t crc = ~0u;
  for (const unsigned char byte : bytes) crc = crc >> 8 ^ remainders[(crc ^ byte) & 0xff];
  return ~crc;
}

std::string tensorboard_version_record(double wall_time) {
  std::string message = event(wall_time, 0);
  append_bytes(message, 3, "brain.Event:2");
  return record(message);
}

std::string tensorboard_record(double wall_time, int64_t step, const Scalars& scalars) {
  std::string message = event(wall_time, step);
  append_bytes(message, 5, summary(scalars));
  return record(message);
}

void keep_events_until(const std::string& path, int64_t step) {
  const std::string bytes = read_regular_file(path, std::numeric_limits<int64_t>::max());
  constexpr size_t kHead = 12, kTail = 4;  // length and its checksum; the message's checksum
  std::string kept;
  for (std::string_view rest = bytes; rest.size() >= kHead + kTail;) {
    const uint64_t length = little_endian(rest.substr(0, 8));
    if (length > rest.size() - kHead - kTail) break;
    const auto whole = rest.substr(0, kHead + length + kTail);
    if (step_of(whole.substr(kHead, length)) <= step) kept += whole;
    rest.remove_prefix(whole.size());
  }
  write_file(path, kept);
}

TensorBoardWriter::TensorBoardWriter(const std::string& directory, Clock clock)
    : clock_(std::move(clock)), file_(event_file(directory, clock_())) {
  file_.write(tensorboard_version_record(clock_()));
}

void TensorBoardWriter::add(const StepMetrics& metrics) {
  Scalars scalars = {{"train/loss", metrics.loss},
                     {"train/grad_norm", metrics.grad_norm},
                     {"train/learning_rate", metrics.learning_rate},
                     {"train/epoch", metrics.epoch},
                     {"train/step_seconds", metrics.step_seconds},
                     {"train/tokens_per_second", metrics.tokens_per_second},
                     {"train/samples_per_second", metrics.samples_per_second},
                     {"train/bubble_fraction", metrics.bubble_fraction},
                     {"train/exposed_communication_fraction", metrics.exposed_communication_fraction},
                     {"train/peak_memory_bytes", largest_resident(metrics)}};
  if (metrics.loss_scale) scalars.emplace_back("train/loss_scale", metrics.loss_scale->scale);
  file_.write(tensorboard_record(clock_(), metrics.step, scalars));
}

void TensorBoardWriter::add(const EvaluationMetrics& metrics) {
  Scalars scalars;
  for (const auto& [name, value] : metrics.values) {
    const bool prefixed = name.starts_with("eval_");
    scalars.emplace_back("eval/" + (prefixed ? name.substr(5) : name), value);
  }
  file_.write(tensorboard_record(clock_(), metrics.step, scalars));
}

double TensorBoardWriter::system_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace shardline
