#include "core/memory/meta_bytes.h"

#include <c10/core/Allocator.h>

#include <algorithm>
#include <mutex>

#include "core/error.h"

namespace shardline {

struct MetaBytes::Totals {
  int64_t live = 0, peak = 0;

  void add(int64_t bytes) {
    live += bytes;
    peak = std::max(peak, live);
  }
};

namespace {

thread_local std::shared_ptr<MetaBytes::Totals> counting;  // null if the thread does not count

// Represents a storage's memory; counted until it is deleted.
class CountedBytes {
 public:
  CountedBytes(std::shared_ptr<MetaBytes::Totals> totals, int64_t bytes) : totals_(std::move(totals)), bytes_(bytes) {
    totals_->add(bytes_);
  }
  ~CountedBytes() { totals_->add(-bytes_); }
  CountedBytes(const CountedBytes&) = delete;
  CountedBytes& operator=(const CountedBytes&) = delete;

 private:
  std::shared_ptr<MetaBytes::Totals> totals_;
  int64_t bytes_;
};

void delete_counted(void* counted) {
  delete static_cast<CountedBytes*>(counted);
}

class MetaAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device device(c10::DeviceType::Meta);
    if (!counting || bytes == 0) return {nullptr, device};
    void* counted = new CountedBytes(counting, bytes);
    return {counted, counted, delete_counted, device};
  }
  void copy_data(void*, const void*, size_t) const override {}
};

void use_meta_allocator() {
  static MetaAllocator allocator;
  static std::once_flag once;
  std::call_once(once, [] { c10::SetAllocator(c10::DeviceType::Meta, &allocator, 1); });  // torch's own has priority 0
}

}  // namespace

MetaBytes::MetaBytes() : totals_(std::make_shared<Totals>()) {
  SL_ASSERT(!counting, "this thread already counts meta tensors");
  use_meta_allocator();
  counting = totals_;
}

MetaBytes::~MetaBytes() {
  counting = nullptr;
}

int64_t MetaBytes::live() const {
  return totals_->live;
}
int64_t MetaBytes::peak() const {
  return totals_->peak;
}
void MetaBytes::restart_peak() {
  totals_->peak = totals_->live;
}

}  // namespace shardline
