#include "core/comm/communicator.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>

#include "core/comm/clock.h"
#include "core/device/stream_wait.h"
#include "core/memory/tensor_data.h"

namespace shardline {
namespace {

thread_local double waited = 0;
thread_local int waits_in_progress = 0;

at::Tensor bytes_of(const std::string& text) {
  at::Tensor bytes = at::empty({std::ssize(text)}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  return bytes;
}

std::string text_of(const at::Tensor& bytes) {
  return std::string(data_of<char>(bytes), bytes.nbytes());
}

}  // namespace

void Work::wait() {
  TimePoint since = TimePoint::min();
  const TimePoint now = std::chrono::steady_clock::now();
  if (waiting_since_.compare_exchange_strong(since, now)) since = now;
  if (waits_in_progress > 0 || waits_on_stream()) return await(since);  // a wait may be nested in another Work's wait
  const double begin = steady_seconds();
  ++waits_in_progress;
  try {
    await(since);
  } catch (...) {
    --waits_in_progress;
    throw;
  }
  --waits_in_progress;
  waited += steady_seconds() - begin;
}

double waited_seconds() {
  return waited + stream_waited_seconds();
}

// A dry run transfers nothing, so the result is zero except for this rank's own part.

at::Tensor gather_to_all(Communicator& comm, const at::Tensor& local) {
  std::vector<int64_t> sizes = local.sizes().vec();
  sizes.insert(sizes.begin(), comm.size());
  at::Tensor all = at::zeros(sizes, local.options().requires_grad(false));
  all[comm.rank()].copy_(local.detach());
  comm.all_gather(all, local.detach().contiguous(), {.what = "gather_to_all"})->wait();
  return all;
}

std::vector<std::string> gather_strings(Communicator& comm, const std::string& local) {
  const at::Tensor length = at::zeros({1}, at::kLong);
  length.mutable_data_ptr<int64_t>()[0] = local.size();
  const at::Tensor lengths = gather_to_all(comm, length);
  const int64_t* length_of = lengths.const_data_ptr<int64_t>();
  const int64_t longest = *std::max_element(length_of, length_of + comm.size());
  const at::Tensor padded = at::zeros({longest}, at::kByte);
  std::memcpy(padded.mutable_data_ptr(), local.data(), local.size());
  const at::Tensor all = gather_to_all(comm, padded);
  std::vector<std::string> texts;
  for (int rank = 0; rank < comm.size(); ++rank)
    texts.emplace_back(data_of<char>(all) + rank * longest, length_of[rank]);
  return texts;
}

std::string broadcast_string(Communicator& comm, const std::string& value, int root) {
  const at::Tensor length = at::zeros({1}, at::kLong);
  if (comm.rank() == root) length.mutable_data_ptr<int64_t>()[0] = value.size();
  comm.broadcast(length, root, {.what = "broadcast_string"})->wait();
  const int64_t bytes = length.const_data_ptr<int64_t>()[0];
  const at::Tensor text = comm.rank() == root ? bytes_of(value) : at::zeros({bytes}, at::kByte);
  comm.broadcast(text, root, {.what = "broadcast_string"})->wait();
  return text_of(text);
}

void gather_on_first(Communicator& comm, const std::string& local, const TakeText& take) {
  const CommOptions options{.what = "gather_on_first"};
  const at::Tensor length = at::zeros({1}, at::kLong);
  if (comm.rank() != 0) {
    length.mutable_data_ptr<int64_t>()[0] = local.size();
    comm.send(length, 0, options)->wait();
    comm.send(bytes_of(local), 0, options)->wait();
    return;
  }
  take(0, local);
  for (int rank = 1; rank < comm.size(); ++rank) {
    comm.recv(length, rank, options)->wait();
    const at::Tensor bytes = at::zeros(length.const_data_ptr<int64_t>()[0], at::kByte);
    comm.recv(bytes, rank, options)->wait();
    take(rank, text_of(bytes));
  }
}

}  // namespace shardline
