#include "engine/checkpoint/background_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>

#include "core/comm/timeouts.h"
#include "core/error.h"
#include "engine/checkpoint/manifest.h"
#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::background_writer_test {

using Catch::Contains;
using std::chrono::seconds;

namespace {

// While the object exists, ranks wait for this time.
struct Limit {
  explicit Limit(std::chrono::milliseconds limit) {
    set_timeouts({.start_up = before.start_up, .collective = {limit, kTimeoutKey}, .point_to_point = limit});
  }
  ~Limit() { set_timeouts(before); }
  const Timeouts before = timeouts();
};

// A file that cannot be opened until somebody reads it, like one on a disk that does not respond.
struct SilentFile {
  explicit SilentFile(const std::string& name) : path(name) { REQUIRE(::mkfifo(path.c_str(), 0600) == 0); }
  ~SilentFile() { ::close(reader); }
  void answer() { reader = ::open(path.c_str(), O_RDONLY | O_NONBLOCK); }
  std::string path;
  int reader = -1;
};

void wait_until(const std::function<bool()>& holds) {
  const auto end = std::chrono::steady_clock::now() + seconds(60);
  while (!holds()) {
    REQUIRE(std::chrono::steady_clock::now() < end);
    ::usleep(1000);
  }
}

}  // namespace

TEST_CASE("blocks are written when they are ready, in any order, with the checksums of their pieces") {
  const TempFolder folder;
  const std::string one = folder.write("one", std::string(10, '.')), other = folder.write("other", "");
  std::string text = "......";  // its bytes arrive after those of the last block
  bool was_last = false;
  BackgroundWriter writer({{one, 2, text, {4, 8}}, {other, 0, "xyz", {3}}, {one, 8, "gh", {10}}}, nullptr,
                          [&] { was_last = read_file(other) == "xyz"; });
  writer.ready(2);
  wait_until([&] { return read_file(one) == "........gh"; });
  CHECK_FALSE(writer.is_done());
  CHECK_FALSE(was_last);
  text = "abcdef";
  writer.ready(1);
  writer.ready(0);
  int64_t most = 0;
  writer.wait([&](int64_t bytes) { most = bytes; });
  CHECK(writer.error().empty());
  CHECK(was_last);
  CHECK(writer.written_bytes() == 11);
  CHECK(most <= 11);
  CHECK(read_file(one) == "..abcdefgh");
  CHECK(writer.blocks()[0].checksums == std::vector{checksum("ab"), checksum("cdef")});
}

TEST_CASE("a failed write is an error, and nothing is written after it") {
  const TempFolder folder;
  bool was_last = false;
  BackgroundWriter writer({{folder.path() / "missing", 0, "abc", {3}}}, nullptr, [&] { was_last = true; });
  writer.ready(0);
  writer.wait();
  CHECK_THAT(writer.error(), Contains("missing: cannot be opened"));
  CHECK_FALSE(was_last);
}

TEST_CASE("a writer that fails or is dropped while blocks are still being copied writes no more of them") {
  const TempFolder folder;
  const std::string file = folder.write("file", "......");
  const auto was_last = std::make_shared<std::atomic<bool>>(false);
  std::weak_ptr<std::string> held;
  const auto start = [&](const std::string& path) {
    auto memory = std::make_shared<std::string>("abcdef");
    held = memory;
    const std::string_view bytes = *memory;
    return std::make_unique<BackgroundWriter>(
        std::vector<BlockToWrite>{{path, 0, bytes.substr(0, 3), {3}}, {file, 3, bytes.substr(3), {6}}},
        std::move(memory), [was_last] { *was_last = true; });
  };
  auto writer = start(folder.path() / "missing");
  writer->ready(0);
  writer->wait();  // although the other block is not ready
  writer->ready(1);
  CHECK_THAT(writer->error(), Contains("missing: cannot be opened"));
  CHECK(read_file(file) == "......");

  writer = start(file);
  writer->ready(0);
  wait_until([&] { return read_file(file) == "abc..."; });
  CHECK_FALSE(writer->is_done());
  writer.reset();
  wait_until([&] { return held.expired(); });  // the thread has ended
  CHECK(read_file(file) == "abc...");
  CHECK_FALSE(*was_last);
}

TEST_CASE("waiting for blocks that never become ready ends with the limit") {
  const TempFolder folder;
  const Limit limit(std::chrono::milliseconds(300));
  BackgroundWriter writer({{folder.write("file", ""), 0, "abc", {3}}}, nullptr, {});
  CHECK_THAT(message_of<RunError>([&] { writer.wait(); }), Contains("has accepted no data for 0.3 s"));
}

TEST_CASE("waiting for a disk that does not answer ends with the limit, and a writer that is dropped does not wait") {
  const TempFolder folder;
  const Limit limit(std::chrono::milliseconds(300));
  SilentFile file(folder.path() / "silent");
  auto memory = std::make_shared<std::string>("abc");
  const std::string_view bytes = *memory;
  const std::weak_ptr<std::string> held = memory;
  const auto begin = std::chrono::steady_clock::now();
  const auto was_last = std::make_shared<std::atomic<bool>>(false);
  {
    BackgroundWriter writer({{file.path, 0, bytes, {3}}}, std::move(memory), [was_last] { *was_last = true; });
    writer.ready(0);
    CHECK_THAT(message_of<RunError>([&] { writer.wait(); }),
               Contains("has accepted no data for 0.3 s") && Contains(kTimeoutKey));
    CHECK_FALSE(writer.is_done());
  }
  CHECK(std::chrono::steady_clock::now() - begin < seconds(20));
  CHECK_FALSE(held.expired());  // the thread may still use it
  file.answer();
  wait_until([&] { return held.expired(); });
  CHECK_FALSE(*was_last);
}

}  // namespace shardline::background_writer_test
