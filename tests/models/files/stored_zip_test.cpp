#include "models/files/stored_zip.h"

#include "core/error.h"
#include "core/files/mapped_file.h"
#include "tests/models/files/files.h"
#include "tests/models/files/torch_bytes.h"

#include "tests/catch.h"

namespace shardline::stored_zip_test {

using Catch::Contains;
using torch_bytes::number_bytes;
using torch_bytes::zip;

namespace {

std::string said_of(const std::string& archive) {
  return message_of<DataError>([&] { zip_entries(archive, "a.zip"); });
}

// The archive with other bytes at an offset in the last record that begins with this mark.
std::string with(std::string archive, const std::string& mark, size_t at, const std::string& bytes) {
  return archive.replace(archive.rfind(mark) + at, bytes.size(), bytes);
}

const std::string kCentral = "PK\1\2", kEnd = "PK\5\6", kZip64End = "PK\6\6", kZip64Locator = "PK\6\7";

}  // namespace

TEST_CASE("stored entries are views of the archive", "[stored_zip]") {
  const bool zip64 = GENERATE(false, true);
  const std::string archive = zip({{"a/b", "one"}, {"a/empty", ""}, {"c", "three"}}, zip64);
  REQUIRE(is_zip(archive));
  const auto entries = zip_entries(archive, "a.zip");
  CHECK(entries == ZipEntries{{"a/b", "one"}, {"a/empty", ""}, {"c", "three"}});
  CHECK(entries.at("c").data() >= archive.data());
  CHECK(entries.at("c").data() < archive.data() + archive.size());
  CHECK(zip_entries(zip({}, zip64), "a.zip").empty());
}

TEST_CASE("a comment may follow an archive", "[stored_zip]") {
  const std::string comment = "a comment with PK\5\6 in it";
  const auto archive = with(zip({{"a", "one"}}), kEnd, 20, number_bytes(comment.size(), 2)) + comment;
  CHECK(zip_entries(archive, "a.zip").at("a") == "one");
  CHECK_THAT(said_of(archive + "x"), Contains("must have an end of its central directory"));
}

TEST_CASE("an archive beyond 4 GiB is read by its zip64 fields", "[stored_zip]") {
  // The first entry is a hole in the file, which takes no space on the disk. As with torch.save, the fields contain
  // only numbers that do not fit in 32 bits.
  constexpr uint64_t hole = (uint64_t{1} << 32) + 100;
  const auto header = [](const std::string& name, uint64_t size, uint64_t offset, const std::string& numbers) {
    return "PK\1\2" + number_bytes(0, 16) + number_bytes(size, 4) + number_bytes(size, 4) +
           number_bytes(name.size(), 2) + number_bytes(numbers.size() + 4, 2) + number_bytes(0, 10) +
           number_bytes(offset, 4) + name + number_bytes(1, 2) + number_bytes(numbers.size(), 2) + numbers;
  };
  const std::string first = zip({{"hole", ""}}).substr(0, 34), second = zip({{"last", "data"}}).substr(0, 38);
  const uint64_t last = first.size() + hole, begin = last + second.size(), most = 0xffffffff;
  const std::string directory = header("hole", most, 0, number_bytes(hole, 8) + number_bytes(hole, 8)) +
                                header("last", 4, most, number_bytes(last, 8));
  const ScratchDirectory scratch;
  put(scratch / "large", first);
  std::filesystem::resize_file(scratch / "large", last);
  std::ofstream(scratch / "large", std::ios::binary | std::ios::app)
      << second << directory << kZip64End << number_bytes(44, 8) << number_bytes(0, 12) << number_bytes(2, 8)
      << number_bytes(2, 8) << number_bytes(directory.size(), 8) << number_bytes(begin, 8) << kZip64Locator
      << number_bytes(0, 4) << number_bytes(begin + directory.size(), 8) << number_bytes(1, 4) << kEnd
      << number_bytes(0, 4) << number_bytes(2, 2) << number_bytes(2, 2) << number_bytes(directory.size(), 4)
      << number_bytes(most, 4) << number_bytes(0, 2);

  const MappedFile file(scratch / "large");
  const auto entries = zip_entries(file.bytes(), "large");
  CHECK(entries.at("hole").size() == hole);
  CHECK(entries.at("last") == "data");
}

TEST_CASE("entries that are not stored as they are are refused", "[stored_zip]") {
  CHECK_THAT(said_of(zip({{"w", "data", 8}})), Contains("a.zip: the entry w is compressed (method 8)"));
  CHECK_THAT(said_of(zip({{"w", "data", 0, 1}})), Contains("the entry w is encrypted"));
  CHECK_THAT(said_of(with(zip({{"w", "data"}}), kCentral, 24, number_bytes(5, 4))), Contains("has 4 bytes for 5"));
}

TEST_CASE("names that lead out of a directory are refused", "[stored_zip]") {
  for (const char* name : {"../w", "a/../../w", "a/..", "/etc/passwd", "", "a\\b", "a\nb", "\xff"})
    CHECK_THAT(said_of(zip({{name, "data"}})), Contains("must be named by a relative path"));
  CHECK_THAT(said_of(zip({{std::string("a\0b", 3), "data"}})), Contains("got \"a?b\""));
  CHECK(said_of(zip({{"a..b/..c", "data"}})).empty());
  CHECK_THAT(said_of(zip({{"w", "data"}, {"w", "data"}})), Contains("the entry w occurs twice"));
}

TEST_CASE("each wrong entry of an archive is refused by name", "[stored_zip]") {
  const std::string good = zip({{"a", "one"}, {"b", "two"}}), large = zip({{"a", "one"}, {"b", "two"}}, true);
  REQUIRE(said_of(good).empty());
  const uint64_t directory = good.find(kCentral);
  // The second entry at the place of the first one, or where there is no entry.
  CHECK_THAT(said_of(with(good, kCentral, 42, number_bytes(0, 4))), Contains("must be the header of the entry b"));
  CHECK_THAT(said_of(with(good, kCentral, 42, number_bytes(1, 4))), Contains("byte 1 must be the header"));
  CHECK_THAT(said_of(with(good, kCentral, 42, number_bytes(0xfffffffe, 4))),
             Contains("the header of an entry would be"));
  CHECK_THAT(said_of(with(good, kCentral, 42, number_bytes(good.size() - 30, 4))), Contains("must be the header of"));
  CHECK_THAT(said_of(with(good, kCentral, 42, number_bytes(0xffffffff, 4))), Contains("lacks a number in its zip64"));
  // Entries that are too long: they reach into the directory, and into the next entry.
  const auto of_size = [&](std::string archive, const std::string& mark, uint64_t size) {
    return archive.replace(archive.find(mark) + 20, 8, number_bytes(size, 4) + number_bytes(size, 4));
  };
  CHECK_THAT(said_of(with(good, kCentral, 20, number_bytes(4, 4) + number_bytes(4, 4))),
             Contains("the central directory begins at byte " + std::to_string(directory)));
  CHECK_THAT(said_of(of_size(good, kCentral, 4)), Contains("the entries a and b overlap at byte 34"));
  CHECK_THAT(said_of(of_size(good, kCentral, 0xfffffffe)), Contains("would reach from byte 31"));
  // The end.
  CHECK_THAT(said_of(with(good, kEnd, 10, number_bytes(3, 2))),
             Contains("has 2 entries, but the archive's end says 3"));
  CHECK_THAT(said_of(with(good, kEnd, 12, number_bytes(1, 4))), Contains("the central directory must reach from"));
  CHECK_THAT(said_of(with(good, kEnd, 16, number_bytes(0, 4))), Contains("the central directory must reach from"));
  CHECK_THAT(said_of(with(good, kEnd, 16, number_bytes(0xfffffff0, 4))), Contains("the central directory must reach"));
  CHECK_THAT(said_of(with(good, kCentral, 0, "PK\1\3")), Contains("must consist of entries"));
  CHECK_THAT(said_of(with(good, kCentral, 28, number_bytes(0xffff, 2))), Contains("in the middle of an entry"));
  CHECK_THAT(said_of(with(good, kCentral, 32, number_bytes(9, 2))), Contains("in the middle of an entry"));
  // zip64
  REQUIRE(said_of(large).empty());
  CHECK_THAT(said_of(with(large, kZip64Locator, 8, number_bytes(7, 8))), Contains("byte 7 must be the zip64 end"));
  CHECK_THAT(said_of(with(large, kZip64Locator, 8, std::string(8, '\xff'))), Contains("the zip64 end of the central"));
  CHECK_THAT(said_of(with(large, kZip64End, 48, std::string(8, '\xff'))), Contains("the central directory must reach"));
  CHECK_THAT(said_of(with(large, kZip64End, 40, std::string(8, '\xff'))), Contains("the central directory must reach"));
  CHECK_THAT(said_of(with(large, kZip64End, 32, std::string(8, '\xff'))), Contains("the archive's end says 1844674"));
  CHECK_THAT(said_of(with(large, kCentral, 46 + 1, number_bytes(2, 2))), Contains("lacks a number in its zip64 field"));
  CHECK_THAT(said_of(with(large, kCentral, 46 + 3, number_bytes(20, 2))),
             Contains("lacks a number in its zip64 field"));
  CHECK_THAT(said_of(with(large, kCentral, 46 + 5, std::string(8, '\xff'))),
             Contains("is stored, but has 3 bytes for"));
  CHECK_THAT(said_of(with(large, kCentral, 46 + 5, std::string(16, '\xff'))), Contains("would reach from byte"));
  CHECK_THAT(said_of(with(large, kCentral, 46 + 21, std::string(8, '\xff'))),
             Contains("the header of an entry would be"));
}

}  // namespace shardline::stored_zip_test
