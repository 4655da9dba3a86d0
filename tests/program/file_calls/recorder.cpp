// Preloaded into a run (LD_PRELOAD): records every call that changes files below $FILE_CALLS_ROOT, in the order in
// which they took effect over all processes and threads, as lines in $FILE_CALLS_LOG; crash_consistency_test.py replays
// them.
//
//   make PATH INODE       a new file         write INODE OFFSET HEX    sync INODE
//   open PATH INODE       for writing        size INODE BYTES          sync-directory PATH
//   mkdir PATH            rename FROM TO     exchange ONE OTHER        unlink PATH          rmdir PATH
//
// With $FILE_CALLS_FAIL=ERRNO, one call of every second save of a checkpoint fails instead: the first one that has not
// failed yet, so that each has failed after as many saves. A save begins when a directory NAME.incomplete is created.
// The log then has a line SAVE WHICH for each call of a save, and `fail SAVE WHICH` if it failed. WHICH: "write
// model.safetensors 2" is the second one of this save.
//
// With $FILE_CALLS_SLOW=SECONDS, the first time that each process syncs the model of a checkpoint takes that long.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>

namespace {

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

const std::string& root() {
  static const std::string value = std::getenv("FILE_CALLS_ROOT") ? std::getenv("FILE_CALLS_ROOT") : "";
  return value;
}

// "" for files elsewhere.
std::string path_below(int directory, const char* path) {
  if (root().empty() || !path) return "";
  std::string whole = path;
  if (whole.empty() || whole.front() != '/') {
    char base[PATH_MAX];
    if (directory == AT_FDCWD) {
      if (!::getcwd(base, sizeof(base))) return "";
      whole = std::string(base) + "/" + whole;
    } else {
      const ssize_t length = ::readlink(("/proc/self/fd/" + std::to_string(directory)).c_str(), base, sizeof(base));
      if (length < 0) return "";
      whole = std::string(base, length) + "/" + whole;
    }
  }
  while (whole.size() > 1 && whole.back() == '/') whole.pop_back();
  return whole.starts_with(root() + "/") || whole == root() ? whole : "";
}

std::string path_of(int fd) {
  char path[PATH_MAX];
  const ssize_t length = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof(path));
  if (length < 0) return "";
  const std::string_view found(path, length);
  return found.ends_with(" (deleted)") ? "" : path_below(AT_FDCWD, std::string(found).c_str());
}

struct stat status_of(int fd) {
  struct stat status {};
  ::fstat(fd, &status);
  return status;
}

std::string inode_of(int fd) {
  return std::to_string(status_of(fd).st_ino);
}

// "write model.safetensors" for any step and attempt.
std::string kind_of(const std::string& name, const std::string& path) {
  const std::string file = path.substr(path.rfind('/') + 1);
  return name + " " + (file.starts_with("checkpoint-") ? "checkpoint" : file);
}

// A short text that all processes share; the lock of OneCall guards it.
class SharedText {
 public:
  explicit SharedText(const char* suffix)
      : file_(next<int(const char*, int, ...)>("open")((std::getenv("FILE_CALLS_LOG") + std::string(suffix)).c_str(),
                                                       O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {}
  ~SharedText() { next<int(int)>("close")(file_); }
  std::string read() const {
    std::string text(status_of(file_).st_size, ' ');
    if (::pread(file_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) std::abort();
    return text;
  }
  void replace(const std::string& text) const {
    if (next<int(int, off_t)>("ftruncate")(file_, 0) != 0 ||
        next<ssize_t(int, const void*, size_t, off_t)>("pwrite")(file_, text.data(), text.size(), 0) !=
            static_cast<ssize_t>(text.size()))
      std::abort();
  }

 private:
  int file_;
};

// One call at a time over all threads and processes, so that the order of the log is the order of the effects.
class OneCall {
 public:
  OneCall() : lock_(mutex()) {
    log_ = next<int(const char*, int, ...)>("open")(std::getenv("FILE_CALLS_LOG"), O_RDWR | O_APPEND | O_CLOEXEC);
    ::flock(log_, LOCK_EX);
  }
  ~OneCall() {
    const int error = errno;
    next<int(int)>("close")(log_);
    errno = error;
  }
  void add(const std::string& line) {
    const int error = errno;
    const std::string text = line + "\n";
    if (next<ssize_t(int, const void*, size_t)>("write")(log_, text.data(), text.size()) !=
        static_cast<ssize_t>(text.size()))
      std::abort();
    errno = error;
  }
  // Whether this call is to fail.
  bool fails(const std::string& name, const std::string& path) {
    const char* error = std::getenv("FILE_CALLS_FAIL");
    if (!error) return false;
    const SharedText save(".save"), calls(".calls"), failed(".failed");
    if (name == "mkdir" && path.ends_with(".incomplete")) {
      save.replace(std::to_string(std::atoi(save.read().c_str()) + 1));
      calls.replace("");
    }
    const int number = std::atoi(save.read().c_str());
    if (number == 0) return false;
    const std::string kind = kind_of(name, path) + " ", before = calls.read(), done = failed.read();
    int nth = 1;
    for (size_t at = 0; (at = before.find("\n" + kind, at)) != std::string::npos; ++at) ++nth;
    const std::string which = "\n" + kind + std::to_string(nth) + "\n";
    calls.replace(before + which);
    const bool failing =
        number % 2 == 0 && before.find("failed") == std::string::npos && done.find(which) == std::string::npos;
    if (failing) {
      calls.replace(before + which + "failed");
      failed.replace(done + which);
    }
    add((failing ? "fail " : "") + std::to_string(number) + " " + kind + std::to_string(nth));
    errno = std::atoi(error);
    return failing;
  }

 private:
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  std::lock_guard<std::mutex> lock_;
  int log_;
};

bool injects() {
  static const bool value = std::getenv("FILE_CALLS_FAIL") != nullptr;
  return value;
}

// Runs `call`; `line` describes what it did. path: "" means that the call is not recorded.
template <class Call, class Line>
auto recorded(const char* name, const std::string& path, Call call, Line line) -> decltype(call()) {
  if (path.empty()) return call();
  OneCall one;
  if (one.fails(name, path)) return static_cast<decltype(call())>(-1);
  const auto result = call();
  if (static_cast<long>(result) >= 0 && !injects()) one.add(line());
  return result;
}

int open_at(int directory, const char* name, int flags, mode_t mode) {
  const auto real = next<int(int, const char*, int, ...)>("openat");
  const std::string path = (flags & O_ACCMODE) == O_RDONLY ? "" : path_below(directory, name);
  if (path.empty()) return real(directory, name, flags, mode);
  OneCall one;
  struct stat before {};
  const bool is_new = ::lstat(path.c_str(), &before) != 0;
  if (one.fails(is_new ? "make" : "open", path)) return -1;
  const int fd = real(directory, name, flags, mode);
  if (fd < 0 || injects()) return fd;
  one.add((is_new ? "make " : "open ") + path + " " + inode_of(fd));
  if (!is_new && (flags & O_TRUNC)) one.add("size " + inode_of(fd) + " 0");
  return fd;
}

mode_t mode_in(int flags, va_list arguments) {
  return flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
}

std::string hex(const void* data, size_t bytes) {
  static const char* digits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes);
  for (size_t i = 0; i < bytes; ++i) {
    const auto byte = static_cast<const unsigned char*>(data)[i];
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

off_t place_of(int fd) {
  return ::fcntl(fd, F_GETFL) & O_APPEND ? status_of(fd).st_size : ::lseek(fd, 0, SEEK_CUR);
}

std::string written_path(int fd) {
  return root().empty() || !S_ISREG(status_of(fd).st_mode) ? "" : path_of(fd);
}

int renamed(int from_directory, const char* from, int to_directory, const char* to, unsigned flags) {
  const std::string path = path_below(from_directory, from);
  return recorded(
      "rename", path,
      [&] {
        return next<int(int, const char*, int, const char*, unsigned)>("renameat2")(from_directory, from, to_directory,
                                                                                    to, flags);
      },
      [&] { return (flags & RENAME_EXCHANGE ? "exchange " : "rename ") + path + " " + path_below(to_directory, to); });
}

int removed(int directory, const char* name, bool is_directory) {
  const std::string path = path_below(directory, name);
  return recorded(
      is_directory ? "rmdir" : "unlink", path,
      [&] { return next<int(int, const char*, int)>("unlinkat")(directory, name, is_directory ? AT_REMOVEDIR : 0); },
      [&] { return (is_directory ? "rmdir " : "unlink ") + path; });
}

int made(int directory, const char* name, mode_t mode) {
  const std::string path = path_below(directory, name);
  return recorded(
      "mkdir", path, [&] { return next<int(int, const char*, mode_t)>("mkdirat")(directory, name, mode); },
      [&] { return "mkdir " + path; });
}

int resized(int fd, off_t bytes) {
  return recorded(
      "size", written_path(fd), [&] { return next<int(int, off_t)>("ftruncate")(fd, bytes); },
      [&] { return "size " + inode_of(fd) + " " + std::to_string(bytes); });
}

ssize_t wrote(int fd, const void* data, size_t bytes, off_t offset) {
  ssize_t done = 0;
  return recorded(
      "write", written_path(fd),
      [&] { return done = next<ssize_t(int, const void*, size_t, off_t)>("pwrite")(fd, data, bytes, offset); },
      [&] { return "write " + inode_of(fd) + " " + std::to_string(offset) + " " + hex(data, done); });
}

void be_slow_once(const std::string& path) {
  const char* seconds = std::getenv("FILE_CALLS_SLOW");
  static std::once_flag once;
  if (seconds && path.find("/checkpoint-") != std::string::npos && path.ends_with("/model.safetensors"))
    std::call_once(once, [&] { ::sleep(std::atoi(seconds)); });
}

int synced(int fd, const char* name) {
  const std::string path = path_of(fd);
  be_slow_once(path);
  const bool is_directory = S_ISDIR(status_of(fd).st_mode);
  return recorded(
      "sync", path, [&] { return next<int(int)>(name)(fd); },
      [&] { return is_directory ? "sync-directory " + path : "sync " + inode_of(fd); });
}

}  // namespace

extern "C" {

int open(const char* name, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_in(flags, arguments);
  va_end(arguments);
  return open_at(AT_FDCWD, name, flags, mode);
}
int open64(const char* name, int flags, ...) __attribute__((alias("open")));
int openat(int directory, const char* name, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_in(flags, arguments);
  va_end(arguments);
  return open_at(directory, name, flags, mode);
}

// The C library opens files of streams by itself.
FILE* fopen(const char* name, const char* mode) {
  const auto real = next<FILE*(const char*, const char*)>("fopen");
  const std::string path = std::strpbrk(mode, "wa+") ? path_below(AT_FDCWD, name) : "";
  if (path.empty()) return real(name, mode);
  OneCall one;
  struct stat before {};
  const bool is_new = ::lstat(path.c_str(), &before) != 0;
  if (one.fails(is_new ? "make" : "open", path)) return nullptr;
  FILE* file = real(name, mode);
  if (!file || injects()) return file;
  one.add((is_new ? "make " : "open ") + path + " " + inode_of(::fileno(file)));
  if (!is_new && std::strchr(mode, 'w')) one.add("size " + inode_of(::fileno(file)) + " 0");
  return file;
}
FILE* fopen64(const char* name, const char* mode) {
  return fopen(name, mode);
}

ssize_t write(int fd, const void* data, size_t bytes) {
  ssize_t done = 0;
  off_t offset = 0;
  return recorded(
      "write", written_path(fd),
      [&] {
        offset = place_of(fd);
        return done = next<ssize_t(int, const void*, size_t)>("write")(fd, data, bytes);
      },
      [&] { return "write " + inode_of(fd) + " " + std::to_string(offset) + " " + hex(data, done); });
}
ssize_t writev(int fd, const iovec* parts, int count) {
  ssize_t done = 0;
  off_t offset = 0;
  return recorded(
      "write", written_path(fd),
      [&] {
        offset = place_of(fd);
        return done = next<ssize_t(int, const iovec*, int)>("writev")(fd, parts, count);
      },
      [&] {
        std::string bytes;
        for (int i = 0; i < count; ++i) bytes.append(static_cast<const char*>(parts[i].iov_base), parts[i].iov_len);
        return "write " + inode_of(fd) + " " + std::to_string(offset) + " " + hex(bytes.data(), done);
      });
}
ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) {
  return wrote(fd, data, bytes, offset);
}
ssize_t pwrite64(int fd, const void* data, size_t bytes, off_t offset) {
  return wrote(fd, data, bytes, offset);
}
int ftruncate(int fd, off_t bytes) {
  return resized(fd, bytes);
}
int ftruncate64(int fd, off_t bytes) {
  return resized(fd, bytes);
}
// Recorded as the length that the file has afterwards; the reserved blocks cannot be seen.
int fallocate(int fd, int mode, off_t offset, off_t bytes) {
  return recorded(
      "reserve", written_path(fd),
      [&] { return next<int(int, int, off_t, off_t)>("fallocate")(fd, mode, offset, bytes); },
      [&] { return "size " + inode_of(fd) + " " + std::to_string(status_of(fd).st_size); });
}
int fallocate64(int fd, int mode, off_t offset, off_t bytes) {
  return fallocate(fd, mode, offset, bytes);
}

int fsync(int fd) {
  return synced(fd, "fsync");
}
int fdatasync(int fd) {
  return synced(fd, "fdatasync");
}

int rename(const char* from, const char* to) {
  return renamed(AT_FDCWD, from, AT_FDCWD, to, 0);
}
int renameat(int from_directory, const char* from, int to_directory, const char* to) {
  return renamed(from_directory, from, to_directory, to, 0);
}
int renameat2(int from_directory, const char* from, int to_directory, const char* to, unsigned flags) {
  return renamed(from_directory, from, to_directory, to, flags);
}
int unlink(const char* name) {
  return removed(AT_FDCWD, name, false);
}
int rmdir(const char* name) {
  return removed(AT_FDCWD, name, true);
}
int unlinkat(int directory, const char* name, int flags) {
  return removed(directory, name, flags & AT_REMOVEDIR);
}
int remove(const char* name) {
  struct stat status {};
  const bool is_directory = ::lstat(name, &status) == 0 && S_ISDIR(status.st_mode);
  return removed(AT_FDCWD, name, is_directory);
}
int mkdir(const char* name, mode_t mode) {
  return made(AT_FDCWD, name, mode);
}
int mkdirat(int directory, const char* name, mode_t mode) {
  return made(directory, name, mode);
}

}  // extern "C"
