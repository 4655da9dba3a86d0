// Counts the memory that meta tensors, which have sizes but no data, would occupy.
#pragma once
#include <cstdint>
#include <memory>

namespace shardline {

// Counts the meta tensors that this thread creates during the object's lifetime, each storage once, until they are
// freed (by the same thread). Their storages have addresses, so that code that checks whether a tensor has memory
// treats them like other tensors; the addresses must not be dereferenced. Only one such object may exist per thread.
class MetaBytes {
 public:
  MetaBytes();
  ~MetaBytes();
  MetaBytes(const MetaBytes&) = delete;
  MetaBytes& operator=(const MetaBytes&) = delete;

  int64_t live() const;
  int64_t peak() const;  // since the last restart_peak()
  void restart_peak();

  struct Totals;

 private:
  std::shared_ptr<Totals> totals_;
};

}  // namespace shardline
