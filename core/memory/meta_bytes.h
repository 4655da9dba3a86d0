// What meta tensors, which have sizes but no memory, would take if they had: counted for a thread at a time.
#pragma once
#include <cstdint>
#include <memory>

namespace shardline {

// Counts the meta tensors that this thread makes during its life, each storage once, until they are freed. Such a
// tensor's storage has an address, so that code which asks whether a tensor has memory finds some; nobody may read from
// it. One at a time in a thread.
class MetaBytes {
 public:
  MetaBytes();
  ~MetaBytes();
  MetaBytes(const MetaBytes&) = delete;
  MetaBytes& operator=(const MetaBytes&) = delete;

  int64_t live() const;
  int64_t peak() const;  // since restart_peak
  void restart_peak();   // from what is live now

  struct Totals;

 private:
  std::shared_ptr<Totals> totals_;
};

}  // namespace shardline
