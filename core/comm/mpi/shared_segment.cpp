#include "core/comm/mpi/shared_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <random>

#include "core/error.h"

namespace shardline::mpi {
namespace {

constexpr size_t kPage = 4096;  // the first page holds the token

// A lock of the open file description, which no other process shares: the kernel releases it when the process ends.
struct flock lock_of(int place) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = place;
  lock.l_len = 1;
  return lock;
}

int64_t& token_at(char* begin) {
  return *reinterpret_cast<int64_t*>(begin);
}

int64_t random_token() {
  std::random_device source;
  return uint64_t{source()} << 32 | source() | 1;
}

}  // namespace

std::unique_ptr<SharedSegment> SharedSegment::make(size_t bytes) {
  std::unique_ptr<SharedSegment> segment(new SharedSegment);
  segment->descriptor_ = ::memfd_create("shardline", MFD_CLOEXEC);
  if (segment->descriptor_ < 0 || ::ftruncate(segment->descriptor_, kPage + bytes) != 0 || !segment->map(bytes))
    return nullptr;
  segment->offer_ = {::getpid(), segment->descriptor_, random_token()};
  token_at(segment->begin_) = segment->offer_.token;
  return segment;
}

std::unique_ptr<SharedSegment> SharedSegment::find(const Offer& offer, size_t bytes) {
  if (offer.token == 0) return nullptr;
  std::unique_ptr<SharedSegment> segment(new SharedSegment);
  const std::string path = cat("/proc/", offer.process, "/fd/", offer.descriptor);
  segment->descriptor_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  // In another process namespace, this process id may belong to another process; the token identifies the right one.
  if (segment->descriptor_ < 0 || ::lseek(segment->descriptor_, 0, SEEK_END) != off_t(kPage + bytes) ||
      !segment->map(bytes) || token_at(segment->begin_) != offer.token)
    return nullptr;
  segment->offer_ = offer;
  return segment;
}

bool SharedSegment::map(size_t bytes) {
  void* const begin = ::mmap(nullptr, kPage + bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  if (begin == MAP_FAILED) return false;
  begin_ = static_cast<char*>(begin);
  bytes_ = kPage + bytes;
  return true;
}

SharedSegment::~SharedSegment() {
  if (begin_ != nullptr) ::munmap(begin_, bytes_);
  if (descriptor_ >= 0) ::close(descriptor_);
}

char* SharedSegment::data() const {
  return begin_ + kPage;
}

bool SharedSegment::sign_in(int place) {
  struct flock lock = lock_of(place);
  return ::fcntl(descriptor_, F_OFD_SETLK, &lock) == 0;
}

bool SharedSegment::is_signed_in(int place) const {
  struct flock lock = lock_of(place);
  return ::fcntl(descriptor_, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

}  // namespace shardline::mpi
