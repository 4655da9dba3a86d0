#include "engine/data/source/arrow_rows.h"

#include <fstream>

#include "core/error.h"
#include "engine/data/source/data_files.h"
#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::arrow_rows_test {
namespace {

using Catch::Contains;
using nlohmann::json;
namespace fs = std::filesystem;

// make_files.py in that folder makes them.
const fs::path kFiles = fs::path(SHARDLINE_DATA_TESTS) / "source/files";

DataFile file_of(const fs::path& path) {
  return find_data_files({path.string()}, DataFormat::automatic).at(0);
}

std::vector<json> rows_of(const DataFile& file) {
  std::vector<json> rows;
  DataRow row;
  size_t done = 0;
  const auto opened = open_rows(file);
  while (opened->next(row)) {
    rows.push_back(row.columns);
    CHECK(row.where == cat(file.path.string(), ", row ", rows.size()));
    CHECK(opened->done() >= done);
    done = opened->done();
  }
  CHECK(opened->done() == fs::file_size(file.path));
  return rows;
}

// Whether this build reads such files; if not, one case checks that it reports this.
bool has_arrow(const fs::path& path) {
  if (why_no_arrow().empty()) return true;
  CHECK_THAT(message_of<DataError>([&] { open_rows(file_of(path)); }),
             Contains(path.filename().string() + ": ") && Contains("are read with Apache Arrow's libraries, but"));
  return false;
}

}  // namespace

TEST_CASE("rows of Parquet, of an Arrow stream and of an Arrow file have the values of JSON Lines") {
  const std::vector<json> expected = {
      json::parse(R"({"text": "a", "large_text": "b", "coded": "x", "i8": -1, "i16": -300, "i32": -70000,
          "i64": -1099511627776, "u8": 200, "u16": 60000, "u32": 4000000000, "u64": 18446744073709551615, "f16": 0.5,
          "f32": 0.25, "f64": 0.1, "flag": true, "list": [1, 2], "large_list": ["p"], "pair": [1.5, 2.5],
          "answers": {"text": ["t"], "answer_start": [4]}, "price": "1.50", "day": "1970-01-02"})"),
      json::parse(R"({"text": null, "large_text": "", "coded": "y", "i8": 2, "i16": 2, "i32": 2, "i64": 2, "u8": 2,
          "u16": 2, "u32": 2, "u64": 2, "f16": 1.0, "f32": null, "f64": null, "flag": false, "list": [],
          "large_list": [null], "pair": [0.0, 1.0], "answers": {"text": [], "answer_start": []}, "price": null,
          "day": null})"),
      json::parse(R"({"text": "\u00fc\"\n", "large_text": null, "coded": "x", "i8": null, "i16": 3, "i32": 3, "i64": 3,
          "u8": 3, "u16": 3, "u32": 3, "u64": 3, "f16": null, "f32": 3.0, "f64": 3.0, "flag": null, "list": null,
          "large_list": ["q", "r"], "pair": [3.0, 4.0], "answers": null, "price": null, "day": null})")};
  for (const char* name : {"types.parquet", "types-stream.arrow", "types.feather"}) {
    CAPTURE(name);
    if (!has_arrow(kFiles / name)) continue;
    const auto rows = rows_of(file_of(kFiles / name));
    REQUIRE(rows.size() == expected.size());
    for (size_t row = 0; row < rows.size(); ++row) {
      CHECK(rows[row] == expected[row]);
      for (const auto& [column, value] : rows[row].items())
        CHECK((value.is_number_float() == expected[row][column].is_number_float()));  // 1.0 is not a label, but 1 is
    }
  }
}

TEST_CASE("Parquet files are read with each codec") {
  for (const char* codec : {"none", "snappy", "gzip", "zstd", "lz4"}) {
    CAPTURE(codec);
    const fs::path path = kFiles / cat("codec-", codec, ".parquet");
    if (!has_arrow(path)) continue;
    const auto rows = rows_of(file_of(path));
    REQUIRE(rows.size() == 3);
    CHECK(rows[2]["label"] == 2);
    CHECK(rows[2]["text"].get<std::string>().starts_with("text 2 text 2 "));
  }
}

TEST_CASE("numbers of a ClassLabel are read as names, alone and in lists") {
  for (const fs::path& path : {kFiles / "features.parquet", kFiles / "saved/train/data-00000-of-00002.arrow"}) {
    if (!has_arrow(path)) continue;
    CAPTURE(path.string());
    const DataFile file = file_of(path);
    const auto rows = rows_of(file);
    CHECK(rows.at(1) == json{{"sentence", "sentence 1"}, {"label", 1}, {"tokens", {"word1", "."}}, {"tags", {1, 0}}});
    DataRow row;
    REQUIRE(open_rows(file)->next(row));
    CHECK(label_names_of(row, "label") == std::vector<std::string>{"positive", "negative", "mixed"});
    CHECK(label_names_of(row, "tags") == std::vector<std::string>{"O", "B-X"});
    CHECK(label_names_of(row, "sentence").empty());
    CHECK(label_names_of(row, "none").empty());
  }
}

TEST_CASE("damaged files and files of other kinds are refused, and the error names them") {
  const TempFolder folder;
  for (const char* name : {"types.parquet", "types-stream.arrow", "types.feather"}) {
    if (!has_arrow(kFiles / name)) continue;
    const std::string good = read_file(kFiles / name);
    CAPTURE(name);
    const auto error_of = [&](const std::string& bytes) {
      const DataFile file = file_of(folder.write(name, bytes));
      return message_of<DataError>([&] {
        DataRow row;
        for (const auto rows = open_rows(file); rows->next(row);) {
        }
      });
    };
    CHECK_THAT(error_of("this is a text\n"), Contains(name) && Contains("file that can be read"));
    for (const size_t kept : {good.size() / 2, good.size() / 3})
      CHECK_THAT(error_of(good.substr(0, kept)), Contains(name));
    // Corrupted bytes anywhere give other rows or an error, and nothing worse.
    for (size_t place = 0; place < good.size(); place += 131) {
      std::string damaged = good;
      damaged[place] ^= 0x81;
      error_of(damaged);
    }
  }
}

}  // namespace shardline::arrow_rows_test
