#include "engine/data/cache/partial_file.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

#include "core/error.h"
#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::partial_file_test {
namespace fs = std::filesystem;

namespace {

// Calls `work` in a separate process and returns its id after it has ended.
template <class Work>
pid_t in_another_process(Work&& work) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    work();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  REQUIRE(WIFEXITED(status));
  return child;
}

void age(const fs::path& file, std::chrono::hours by) {
  fs::last_write_time(file, fs::last_write_time(file) - by);
}

}  // namespace

TEST_CASE("a partial file takes its name when it is complete") {
  const TempFolder folder;
  const fs::path path = folder.path() / "x.bin";
  PartialFile file(path);
  file.append("abc");
  file.overwrite(1, "X");
  CHECK(file.read(0, 3) == "aXc");
  CHECK_FALSE(fs::exists(path));
  CHECK(PartialFile::bytes_in_progress(path) == 3);
  file.save("note");
  file.append("d");
  file.commit();
  CHECK(read_file(path) == "aXcd");
  CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("the partial file of a process that is gone is taken over as it was saved") {
  const TempFolder folder;
  const fs::path path = folder.path() / "x.bin";
  in_another_process([&] { PartialFile(path).append("never saved"); });
  in_another_process([&] {
    PartialFile file(path);
    file.append("saved");
    file.save("as far as here\nand a line");
    file.append(" and lost");
  });
  in_another_process([&] {
    PartialFile file(path, "x");  // belongs to another host: never taken over
    file.append("more was saved here");
    file.save("other");
  });
  {
    PartialFile file(path);
    CHECK(file.note() == "as far as here\nand a line");
    CHECK(file.size() == 5);
    file.append("!");
    file.save("again");
  }
  PartialFile file(path);  // a second attempt by this process
  CHECK(file.note() == "again");
  CHECK(file.read(0, file.size()) == "saved!");
  file.commit();
  CHECK(read_file(path) == "saved!");
  // This file, the other host's, and its note.
  CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == 3);
}

TEST_CASE("a host of the same name is another host") {
  const auto named_apart_by = [](const std::string& part) {
    return PartialFile::this_host().find(part) != std::string::npos;
  };
  std::string boot_id;
  REQUIRE(std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id);
  CHECK(named_apart_by(boot_id));
  const std::string processes = fs::read_symlink("/proc/self/ns/pid").string();  // pid:[NUMBER]
  CHECK(named_apart_by(processes.substr(5, processes.size() - 6)));
}

TEST_CASE(
    "files in progress of a living process, another host or any other origin are removed only after a day without "
    "writes") {
  const TempFolder folder;
  const fs::path path = folder.path() / "x.bin";
  const std::string host = PartialFile::this_host();
  const pid_t gone = in_another_process([] {});
  const std::string start = path.string() + ".partial.";
  const std::vector<std::string> kept = {cat(start, host, ".", ::getppid()),
                                         cat(start, "other.", gone),
                                         cat(start, host, ".domain.", gone),
                                         start + "a1B2c3",
                                         cat(start, host, ".", gone, "x"),
                                         path.string() + ".lock",
                                         path.string() + "2.partial." + host + "." + std::to_string(gone)};
  for (const auto& file : kept) std::ofstream(file) << "tokens";
  for (const auto& file : kept) age(file, std::chrono::hours(20));
  std::ofstream(cat(start, host, ".", gone)) << "tokens";
  std::ofstream(cat(start, host, ".", gone, ".note")) << "9999\nmore than it has";
  {
    const PartialFile file(path);
    CHECK(file.size() == 0);
  }
  for (const auto& file : kept) CHECK(fs::exists(file));
  CHECK_FALSE(fs::exists(cat(start, host, ".", gone)));
  CHECK_FALSE(fs::exists(cat(start, host, ".", gone, ".note")));

  for (const auto& file : kept) age(file, std::chrono::hours(5));  // not written to for more than a day
  const PartialFile file(path);
  for (const auto& old : kept) CHECK(fs::exists(old) == (!old.starts_with(start)));
}

}  // namespace shardline::partial_file_test
