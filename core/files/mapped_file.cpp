#include "core/files/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "core/files/descriptor.h"

namespace shardline {

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};  // opening a pipe must not block
  if (file.fd < 0) throw DataError(cat(path.string(), ": cannot be opened: ", std::strerror(errno)));
  struct stat status {};
  if (::fstat(file.fd, &status) != 0) throw DataError(cat(path.string(), ": ", std::strerror(errno)));
  if (!S_ISREG(status.st_mode)) throw DataError(cat(path.string(), ": must be a regular file"));
  size_ = status.st_size;
  if (size_ == 0) return;
  void* data = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.fd, 0);
  if (data == MAP_FAILED) throw DataError(cat(path.string(), ": cannot be mapped: ", std::strerror(errno)));
  data_ = static_cast<char*>(data);
}

void MappedFile::release(std::string_view part) const {
  if (part.empty()) return;
  // Releases whole pages, including other data in them.
  const size_t page = ::sysconf(_SC_PAGESIZE);
  const size_t begin = (part.data() - data_) / page * page;
  const size_t end = part.data() + part.size() - data_;
  ::madvise(data_ + begin, end - begin, MADV_DONTNEED);  // only a hint: failure does no harm
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(data_, size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

}  // namespace shardline
