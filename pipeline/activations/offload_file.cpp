#include <ATen/ops/empty.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <future>
#include <map>

#include "core/error.h"
#include "core/memory/tensor_data.h"
#include "pipeline/activations/offload.h"

namespace shardline {
namespace {

constexpr int64_t kPage = 4096;

struct Place {
  int64_t offset = 0, bytes = 0;
};

// Space is reused by size, so the file grows only to what is offloaded at the same time.
class File {
 public:
  explicit File(const std::string& directory) : directory_(directory) {
    fd_ = open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd_ < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) open_and_unlink();
    if (fd_ < 0)
      throw ConfigError(cat("/smp_options/offload_path: no file can be created in \"", directory,
                            "\": ", std::strerror(errno), "; name an existing directory that this user may write to"));
  }
  ~File() { close(fd_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  Place reserve(int64_t bytes) {
    const int64_t size = (bytes + kPage - 1) / kPage * kPage;
    if (const auto found = free_.find(size); found != free_.end()) {
      const Place place{found->second, bytes};
      free_.erase(found);
      return place;
    }
    const Place place{end_, bytes};
    end_ += size;
    return place;
  }
  void free(Place place) { free_.emplace((place.bytes + kPage - 1) / kPage * kPage, place.offset); }

  void write(Place place, const char* from) {
    for (int64_t done = 0; done < place.bytes;) {
      const ssize_t n = pwrite(fd_, from + done, place.bytes - done, place.offset + done);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) throw RunError(failure("written", place, n < 0 ? errno : ENOSPC));
      done += n;
    }
    // Only pages that are on disk can be dropped from the page cache: start to write this place, and drop the previous
    // one.
    sync_file_range(fd_, place.offset, place.bytes, SYNC_FILE_RANGE_WRITE);
    if (written_.bytes > 0) {
      sync_file_range(fd_, written_.offset, written_.bytes,
                      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
      drop(written_);
    }
    written_ = place;
  }

  void read(Place place, char* to) const {
    for (int64_t done = 0; done < place.bytes;) {
      const ssize_t n = pread(fd_, to + done, place.bytes - done, place.offset + done);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) throw RunError(failure("read", place, n < 0 ? errno : EIO));
      done += n;
    }
    drop(place);
  }

 private:
  void open_and_unlink() {
    std::string name = directory_ + "/shardline-activations-XXXXXX";
    fd_ = mkostemp(name.data(), O_CLOEXEC);
    if (fd_ >= 0) unlink(name.c_str());
  }

  void drop(Place place) const {
    posix_fadvise(fd_, place.offset, (place.bytes + kPage - 1) / kPage * kPage, POSIX_FADV_DONTNEED);
  }

  std::string failure(const char* what, Place place, int error) const {
    const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
    return cat("offloaded activations could not be ", what, " in ", directory_, " (", place.bytes, " bytes at ",
               place.offset, "): ", std::strerror(error),
               full ? "; free some space there, or set smp_options.offload_path to a directory on another disk" : "");
  }

  std::string directory_;
  int fd_ = -1;
  int64_t end_ = 0;
  std::multimap<int64_t, int64_t> free_;  // by size: offsets
  Place written_;                         // the place written last
};

class AwayInFile : public Away {
 public:
  AwayInFile(std::shared_ptr<File> file, const std::vector<at::Tensor>& tensors) : file_(std::move(file)) {
    for (const auto& tensor : tensors) {
      const at::Tensor dense = tensor.detach().contiguous();
      stored_.push_back({file_->reserve(dense.nbytes()), dense.sizes().vec(), dense.options().requires_grad(false)});
      file_->write(stored_.back().place, data_of<char>(dense));
    }
  }
  ~AwayInFile() override {
    if (reading_.valid()) reading_.wait();
    for (const auto& one : stored_) file_->free(one.place);
  }

  int64_t fetch() override {
    SL_ASSERT(tensors_.empty(), "activations were fetched twice");
    int64_t bytes = 0;
    std::vector<char*> targets;
    for (const auto& one : stored_) {
      tensors_.push_back(at::empty(one.sizes, one.options));
      targets.push_back(mutable_data_of<char>(tensors_.back()));
      bytes += one.place.bytes;
    }
    reading_ = std::async(std::launch::async, [this, targets] {
      for (size_t i = 0; i < targets.size(); ++i) file_->read(stored_[i].place, targets[i]);
    });
    return bytes;
  }

  std::vector<at::Tensor> take() override {
    SL_ASSERT(reading_.valid(), "activations were taken that had not been fetched");
    reading_.get();
    return std::move(tensors_);
  }

 private:
  struct Stored {
    Place place;
    std::vector<int64_t> sizes;
    at::TensorOptions options;
  };
  std::shared_ptr<File> file_;
  std::vector<Stored> stored_;
  std::vector<at::Tensor> tensors_;
  std::future<void> reading_;
};

class FileSpace : public OffloadSpace {
 public:
  explicit FileSpace(const std::string& directory) : file_(std::make_shared<File>(directory)) {}
  std::unique_ptr<Away> store(const std::vector<at::Tensor>& tensors) override {
    return std::make_unique<AwayInFile>(file_, tensors);
  }

 private:
  std::shared_ptr<File> file_;
};

}  // namespace

std::unique_ptr<OffloadSpace> offload_to_file(const std::string& directory) {
  return std::make_unique<FileSpace>(directory);
}

}  // namespace shardline
