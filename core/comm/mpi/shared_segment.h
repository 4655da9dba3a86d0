// Memory that the processes of one host share. It has no name in a file system: other processes open it through the
// process that created it, and the kernel frees it with the last process that maps it. So nothing is left behind,
// however the processes end.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

namespace shardline::mpi {

class SharedSegment {
 public:
  // How other processes find a segment. All zero: no segment.
  struct Offer {
    int64_t process = 0, descriptor = 0, token = 0;
  };

  // Allocates a segment of zeros; nullptr if the system cannot.
  static std::unique_ptr<SharedSegment> make(size_t bytes);
  // Opens a segment of `bytes` bytes. nullptr if this process cannot (another process namespace, another user).
  static std::unique_ptr<SharedSegment> find(const Offer& offer, size_t bytes);
  ~SharedSegment();
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;

  const Offer& offer() const { return offer_; }
  char* data() const;  // aligned to a page

  // A process signs in at its own place (0, 1, ...) and stays signed in until it ends. The kernel signs it out, so this
  // works however the process ends.
  bool sign_in(int place);
  bool is_signed_in(int place) const;  // asks about another process

 private:
  SharedSegment() = default;
  bool map(size_t bytes);

  Offer offer_;
  int descriptor_ = -1;
  char* begin_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace shardline::mpi
