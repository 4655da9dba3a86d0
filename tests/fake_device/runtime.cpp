#include "tests/fake_device/runtime.h"

#include <ATen/ops/equal.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "core/device/accelerator.h"
#include "core/error.h"

namespace shardline::fake {
namespace {

Runtime* the_runtime = nullptr;  // never deleted, because tensors may outlive everything else

// all_hosts: what all threads together know; a new thread starts with it. ended_hosts: what threads knew when they
// ended; a thread that has joined them learns it from joined_threads(). Other threads must not learn it: otherwise the
// violations that are found would depend on which thread ends first.
Clock all_hosts, ended_hosts;

void queue_launch(const std::string& name, const c10::Stream& stream, const std::vector<Access>& accesses) {
  const std::scoped_lock lock(runtime().mutex);
  Runtime& all = runtime();
  if (current_device() != stream.device_index())
    all.fault(cat(name, " runs on device ", int{stream.device_index()}, ", but device ", current_device(),
                  " is the thread's current one"));
  const size_t number = all.number(stream);
  const uint64_t time = all.queue(number);
  ++all.counts.launches[name];
  for (const auto& access : accesses) all.use(name, number, time, access);
}

struct HostThread {
  Clock clock = all_hosts, asked;
  ~HostThread() {
    const std::scoped_lock lock(runtime().mutex);
    join(ended_hosts, clock);
  }
};

HostThread& this_thread() {
  thread_local HostThread thread;
  return thread;
}

}  // namespace

void join(Clock& clock, const Clock& other) {
  if (clock.size() < other.size()) clock.resize(other.size());
  for (size_t i = 0; i < other.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

bool covers(const Clock& clock, const Use& use) {
  return use.stream < clock.size() && clock[use.stream] >= use.time;
}

Runtime& runtime() {
  return *the_runtime;
}

bool is_installed() {
  return the_runtime != nullptr;
}

size_t Runtime::number(const c10::Stream& stream) {
  const auto [found, fresh] = numbers_.try_emplace({stream.device_index(), stream.id()}, clocks_.size());
  if (fresh) {
    clocks_.emplace_back();
    outside_.emplace_back();
    streams_.push_back(stream);
  }
  return found->second;
}

std::string Runtime::name(size_t stream) const {
  return cat("stream ", streams_[stream].id(), " of device ", int{streams_[stream].device_index()});
}

std::vector<size_t> Runtime::streams_of(int device) const {
  std::vector<size_t> numbers;
  for (size_t i = 0; i < streams_.size(); ++i)
    if (streams_[i].device_index() == device) numbers.push_back(i);
  return numbers;
}

std::vector<OutsidePtr>& Runtime::outside(size_t stream) {
  forget_ended(outside_[stream]);
  return outside_[stream];
}

Clock& Runtime::host_clock() {
  return this_thread().clock;
}

Clock& Runtime::host_asked() {
  return this_thread().asked;
}

Block* Runtime::block_of(const void* pointer) {
  auto after = blocks.upper_bound(static_cast<const char*>(pointer));
  if (after == blocks.begin()) return nullptr;
  const auto found = std::prev(after);
  return pointer < found->first + std::max<size_t>(1, found->second.bytes) ? &found->second : nullptr;
}

void Runtime::fault(std::string text) {
  constexpr size_t kMost = 100;
  if (on_fault) on_fault(text);
  if (faults.size() < kMost) faults.push_back(std::move(text));
}

void Runtime::check_works(int device) const {
  const auto found = broken.find(device);
  TORCH_CHECK(found == broken.end(), found->second);
}

uint64_t Runtime::queue(size_t stream) {
  Clock& clock = clocks_[stream];
  join(clock, host_clock());
  if (clock.size() <= stream) clock.resize(stream + 1);
  return ++clock[stream];
}

void Runtime::use(const std::string& what, size_t stream, uint64_t time, const Access& access) {
  if (access.bytes == 0) return;
  Block* block = block_of(access.begin);
  if (block == nullptr) return fault(cat(what, " on ", name(stream), " uses memory that is no device's"));
  if (block->device >= 0 && block->device != streams_[stream].device_index())
    fault(cat(what, " on ", name(stream), " uses memory of device ", block->device));
  const char* base = std::prev(blocks.upper_bound(static_cast<const char*>(access.begin)))->first;
  const size_t begin = static_cast<const char*>(access.begin) - base, end = begin + access.bytes;
  counts.bytes += access.bytes - access.gaps;
  std::erase_if(block->uses, [&](const Use& other) {
    if (other.end <= begin || end <= other.begin || !(other.writes || access.writes || other.stream == stream))
      return false;
    const bool ordered = covers(clocks_[stream], other);
    if (!ordered && (other.writes || access.writes))
      fault(cat(what, " on ", name(stream), access.writes ? " writes" : " reads", " what ", other.what, " on ",
                name(other.stream), other.writes ? " writes" : " reads", ", and does not wait for it"));
    const bool within = begin <= other.begin && other.end <= end;
    return within && (access.writes || (!other.writes && other.stream == stream));
  });
  block->uses.push_back({begin, end, stream, time, access.writes, what});
}

void Runtime::host_sees(const Clock& clock) {
  Clock& mine = host_clock();
  join(mine, clock);
  join(all_hosts, mine);
  for (auto transfer = transfers.begin(); transfer != transfers.end();) {
    const bool seen = transfer->stream < mine.size() && mine[transfer->stream] >= transfer->time;
    if (seen) end_transfer(*transfer);
    transfer = seen ? transfers.erase(transfer) : std::next(transfer);
  }
}

void Runtime::end_transfer(Transfer& transfer) {
  if (transfer.to_host) {
    const auto bytes = transfer.host.view(-1).view(at::kByte);
    if (!bytes.eq(0xff).all().item<bool>())
      fault(cat("host memory was written while a copy on ", name(transfer.stream), " was filling it"));
    transfer.host.copy_(transfer.values);
  } else if (!at::equal(transfer.host.view(-1).view(at::kByte), transfer.values.view(-1).view(at::kByte))) {
    fault(cat("host memory was changed while a copy on ", name(transfer.stream), " was reading it"));
  }
}

void Runtime::check_unseen_transfers() {
  for (auto& transfer : transfers)
    if (!transfer.to_host) end_transfer(transfer);
  std::erase_if(transfers, [](const Transfer& transfer) { return !transfer.to_host; });
}

void Runtime::count_wait() {
  ++counts.waits[HostWait::reason() ? HostWait::reason() : ""];
}

// The next owner of the memory will use it on the stream on which it was allocated.
void Runtime::release(char* address) {
  const auto found = blocks.find(address);
  Block& block = found->second;
  Clock before = clocks_[block.stream];
  join(before, host_clock());
  join(before, host_asked());
  for (const auto& use : block.uses) {
    const bool recorded = std::find(block.recorded.begin(), block.recorded.end(), use.stream) != block.recorded.end();
    if (block.device >= 0 && use.stream != block.stream && !recorded && !covers(before, use))
      fault(cat("memory of ", name(block.stream), " is freed while ", use.what, " on ", name(use.stream),
                " may still use it"));
  }
  released_.emplace_back(address, std::move(block.outside));
  blocks.erase(found);
  free_released();
}

void Runtime::free_released() {
  std::erase_if(released_, [](auto& released) {
    forget_ended(released.second);
    if (released.second.empty()) std::free(released.first);
    return released.second.empty();
  });
}

void forget_ended(std::vector<OutsidePtr>& outside) {
  std::erase_if(outside, [](const OutsidePtr& work) { return work->ended().has_value(); });
}

std::vector<OutsidePtr> outside_of(const c10::Stream& stream) {
  const std::scoped_lock lock(runtime().mutex);
  return runtime().outside(runtime().number(stream));
}

std::vector<OutsidePtr> outside_of(at::Device device) {
  const std::scoped_lock lock(runtime().mutex);
  std::vector<OutsidePtr> all;
  for (const size_t stream : runtime().streams_of(device.index()))
    for (const auto& work : runtime().outside(stream)) all.push_back(work);
  return all;
}

void waited_outside(at::Device device) {
  const std::scoped_lock lock(runtime().mutex);
  for (const size_t stream : runtime().streams_of(device.index()))
    join(runtime().host_asked(), runtime().clock(stream));
}

void await_outside(const std::function<std::vector<OutsidePtr>()>& in_the_way) {
  using namespace std::chrono_literals;
  const auto begin = std::chrono::steady_clock::now();
  for (; !in_the_way().empty(); std::this_thread::sleep_for(20us))
    if (std::chrono::steady_clock::now() - begin > 60s)
      throw RunError("a device waits for another one that does not come: a real one would hang");
}

void install(int devices) {
  SL_ASSERT(!is_installed(), "the fake device is installed twice");
  the_runtime = new Runtime(devices);
  install_memory();
  install_streams();
  install_operators();
}

at::Device device(int index) {
  return {at::kPrivateUse1, static_cast<c10::DeviceIndex>(index)};
}

void joined_threads() {
  const std::scoped_lock lock(runtime().mutex);
  runtime().host_sees(ended_hosts);
}

void call_on_fault(void (*handler)(const std::string& fault)) {
  runtime().on_fault = handler;
}

void break_device(at::Device device, const std::string& text) {
  const std::scoped_lock lock(runtime().mutex);
  if (text.empty())
    runtime().broken.erase(device.index());
  else
    runtime().broken[device.index()] = text;
}

std::vector<std::string> take_faults() {
  const std::scoped_lock lock(runtime().mutex);
  joined_threads();
  runtime().check_unseen_transfers();
  return std::exchange(runtime().faults, {});
}

int64_t Counts::launched() const {
  int64_t all = 0;
  for (const auto& [name, count] : launches) all += count;
  return all;
}

Counts take_counts() {
  const std::scoped_lock lock(runtime().mutex);
  return std::exchange(runtime().counts, {});
}

void launch(const std::string& name, const c10::Stream& stream, const std::vector<Access>& accesses) {
  await_outside([&] { return outside_of(stream); });
  queue_launch(name, stream, accesses);
}

void launch(const std::string& name, const c10::Stream& stream, const std::vector<Access>& accesses,
            const OutsidePtr& outside) {
  const std::scoped_lock lock(runtime().mutex);
  queue_launch(name, stream, accesses);
  runtime().outside(runtime().number(stream)).push_back(outside);
  for (const auto& access : accesses)
    if (Block* block = runtime().block_of(access.begin)) {
      forget_ended(block->outside);
      block->outside.push_back(outside);
    }
}

}  // namespace shardline::fake
