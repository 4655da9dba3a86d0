#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>
#include <chrono>

#include "core/device/accelerator.h"
#include "core/error.h"
#include "tests/fake_device/runtime.h"

namespace shardline::fake {
namespace {

constexpr int kPool = 32;  // streams of a device for each priority

thread_local int chosen_device = 0;
thread_local std::map<int, c10::StreamId> chosen_streams;  // by device; the default stream if there is no entry

c10::Stream make_stream(int index, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, device(index), id);
}

std::atomic<int> events = 0;

// One recording of an event: what had happened on its stream.
struct Event {
  int device = 0;
  Clock clock;
  std::vector<OutsidePtr> outside;
  bool timed = false, asked = false, known = false;  // known: a query has returned true
  std::chrono::steady_clock::time_point recorded;

  bool waits_outside() {
    for (const auto& work : outside)
      if (const auto ended = work->ended()) recorded = std::max(recorded, *ended);
    forget_ended(outside);
    return !outside.empty();
  }
};

bool within(const Clock& clock, const Clock& other) {
  for (size_t i = 0; i < clock.size(); ++i)
    if (clock[i] > 0 && (i >= other.size() || other[i] < clock[i])) return false;
  return true;
}

bool has_happened(const Clock& clock) {
  return within(clock, runtime().host_clock());
}

class Guard : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return at::kPrivateUse1; }
  c10::DeviceIndex deviceCount() const noexcept override { return runtime().devices; }

  c10::Device getDevice() const override { return device(chosen_device); }
  void setDevice(c10::Device to) const override {
    SL_ASSERT(to.index() >= 0 && to.index() < runtime().devices, "there is no ", to);
    uncheckedSetDevice(to);
  }
  void uncheckedSetDevice(c10::Device to) const noexcept override { chosen_device = to.index(); }
  c10::Device exchangeDevice(c10::Device to) const override {
    const c10::Device before = getDevice();
    setDevice(to);
    return before;
  }

  c10::Stream getStream(c10::Device of) const override {
    return current_stream(of.has_index() ? of.index() : chosen_device);
  }
  c10::Stream getDefaultStream(c10::Device of) const override { return make_stream(of.index(), 0); }
  c10::Stream getNewStream(c10::Device of, int) const override {
    static std::atomic<c10::StreamId> last = 2 * kPool;
    return make_stream(of.has_index() ? of.index() : chosen_device, ++last);
  }
  // Returns the streams of a priority in turn, as torch does for CUDA.
  c10::Stream getStreamFromGlobalPool(c10::Device of, bool high_priority) const override {
    static std::map<std::pair<int, bool>, int> taken;  // by device and priority
    const std::scoped_lock lock(runtime().mutex);
    const int index = of.has_index() ? of.index() : chosen_device;
    return make_stream(index, 1 + (high_priority ? kPool : 0) + taken[{index, high_priority}]++ % kPool);
  }
  c10::Stream exchangeStream(c10::Stream to) const override {
    const c10::Stream before = current_stream(to.device_index());
    chosen_streams[to.device_index()] = to.id();
    return before;
  }

  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return reinterpret_cast<void*>(static_cast<uintptr_t>(stream.id()));
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag flag) const override {
    const std::scoped_lock lock(runtime().mutex);
    runtime().check_works(stream.device_index());
    if (*event == nullptr) {
      *event = new Event;
      ++events;
    }
    const size_t number = runtime().number(stream);
    runtime().queue(number);
    *static_cast<Event*>(*event) = {.device = stream.device_index(),
                                    .clock = runtime().clock(number),
                                    .outside = runtime().outside(number),
                                    .timed = flag == c10::EventFlag::BACKEND_DEFAULT,
                                    .recorded = std::chrono::steady_clock::now()};
  }
  void block(void* event, const c10::Stream& stream) const override {
    const std::scoped_lock lock(runtime().mutex);
    runtime().check_works(stream.device_index());
    if (event == nullptr) return;
    const size_t number = runtime().number(stream);
    runtime().queue(number);
    auto& recorded = *static_cast<Event*>(event);
    join(runtime().clock(number), recorded.clock);
    if (recorded.waits_outside())
      for (const auto& work : recorded.outside) runtime().outside(number).push_back(work);
  }
  // If the host has not waited for an event, the first query returns false and the second true. The thread that asks
  // may then free memory, but must not use it, because it may have asked for another reason; it may use it if it polls
  // inside a HostWait.
  bool queryEvent(void* event) const override {
    const std::scoped_lock lock(runtime().mutex);
    if (event == nullptr) return true;
    auto& recorded = *static_cast<Event*>(event);
    runtime().check_works(recorded.device);
    if (recorded.waits_outside()) return false;
    if (has_happened(recorded.clock)) return true;
    if (!std::exchange(recorded.asked, true)) return false;
    recorded.known = true;
    join(runtime().host_asked(), recorded.clock);
    if (HostWait::reason() == nullptr) return true;
    runtime().count_wait();
    runtime().host_sees(recorded.clock);
    return true;
  }
  void synchronizeEvent(void* event) const override {
    if (event == nullptr) return;
    auto& recorded = *static_cast<Event*>(event);
    await_outside([&] {
      const std::scoped_lock lock(runtime().mutex);
      return recorded.waits_outside() ? recorded.outside : std::vector<OutsidePtr>();
    });
    const std::scoped_lock lock(runtime().mutex);
    runtime().check_works(recorded.device);
    wait_for(recorded.clock);
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    if (event != nullptr) --events;
    delete static_cast<Event*>(event);
  }
  double elapsedTime(void* first, void* second, c10::DeviceIndex) const override {
    const std::scoped_lock lock(runtime().mutex);
    const auto &from = *static_cast<Event*>(first), &to = *static_cast<Event*>(second);
    SL_ASSERT(from.timed && to.timed, "an event without timing is asked for its time");
    SL_ASSERT((to.known && within(from.clock, to.clock)) || (has_happened(from.clock) && has_happened(to.clock)),
              "the time of an event that may not have happened");
    return std::chrono::duration<double, std::milli>(to.recorded - from.recorded).count();
  }

  bool queryStream(const c10::Stream& stream) const override {
    const std::scoped_lock lock(runtime().mutex);
    runtime().check_works(stream.device_index());
    const size_t number = runtime().number(stream);
    return runtime().outside(number).empty() && has_happened(runtime().clock(number));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    await_outside([&] { return outside_of(stream); });
    const std::scoped_lock lock(runtime().mutex);
    runtime().check_works(stream.device_index());
    wait_for(runtime().clock(runtime().number(stream)));
  }
  void synchronizeDevice(c10::DeviceIndex index) const override {
    await_outside([&] { return outside_of(device(index)); });
    const std::scoped_lock lock(runtime().mutex);
    runtime().check_works(index);
    Clock all;
    for (const size_t stream : runtime().streams_of(index)) join(all, runtime().clock(stream));
    wait_for(all);
  }
  void recordDataPtrOnStream(const c10::DataPtr& pointer, const c10::Stream& stream) const override {
    c10::getDeviceAllocator(at::kPrivateUse1)->recordStream(pointer, stream);
  }

 private:
  static void wait_for(const Clock& clock) {
    runtime().count_wait();
    runtime().host_sees(clock);
  }
};

class Hooks : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return runtime().devices; }
  void setCurrentDevice(c10::DeviceIndex index) const override { chosen_device = index; }
  c10::DeviceIndex getCurrentDevice() const override { return chosen_device; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override { return std::exchange(chosen_device, index); }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return index < 0 ? chosen_device : exchangeDevice(index);
  }
  at::Device getDeviceFromPtr(void*) const override { return device(chosen_device); }
  bool isPinnedPtr(const void* pointer) const override { return is_pinned(pointer); }
  at::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
};

}  // namespace

int live_events() {
  return events;
}

int current_device() {
  return chosen_device;
}

c10::Stream current_stream(int index) {
  const auto chosen = chosen_streams.find(index);
  return make_stream(index, chosen == chosen_streams.end() ? 0 : chosen->second);
}

void install_streams() {
  c10::register_privateuse1_backend("fake");
  static const c10::impl::DeviceGuardImplRegistrar guard(at::kPrivateUse1, new Guard);
  at::RegisterPrivateUse1HooksInterface(new Hooks);
}

}  // namespace shardline::fake
