#include "engine/data/source/saved_dataset.h"

#include "core/error.h"
#include "engine/data/source/data_files.h"
#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::saved_dataset_test {
namespace {

using Catch::Contains;
namespace fs = std::filesystem;
using Names = std::vector<std::string>;

const fs::path kSaved = fs::path(SHARDLINE_DATA_TESTS) / "source/files/saved";

Names split_of(const TempFolder& folder, Split split) {
  Names names;
  for (const std::string& path : paths_of_split(folder.path().string(), split))
    names.push_back(fs::path(path).lexically_relative(folder.path()).string());
  return names;
}

}  // namespace

TEST_CASE("a folder that datasets has saved stands for the files that it lists") {
  CHECK(is_saved_dataset(kSaved / "train"));
  CHECK_FALSE(is_saved_dataset(kSaved));
  const auto files = find_data_files({(kSaved / "train").string()}, DataFormat::automatic);
  REQUIRE(files.size() == 2);
  CHECK(files[0].path == kSaved / "train/data-00000-of-00002.arrow");
  CHECK(files[1].path == kSaved / "train/data-00001-of-00002.arrow");
  CHECK(files[1].format == DataFormat::arrow);
}

TEST_CASE("a saved dictionary of splits stands for the folder of the split") {
  CHECK(paths_of_split(kSaved.string(), Split::train) == Names{(kSaved / "train").string()});
  CHECK(paths_of_split(kSaved.string(), Split::validation) == Names{(kSaved / "validation").string()});
  CHECK(paths_of_split((kSaved / "train").string(), Split::test) == Names{(kSaved / "train").string()});
  CHECK_THAT(message_of<DataError>([] { paths_of_split(kSaved.string(), Split::test); }),
             Contains("saved: has the splits train, validation, but none for test"));
}

TEST_CASE("names of files and folders indicate the splits of a folder") {
  const TempFolder folder;
  for (const char* name : {"README.md", "data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet",
                           "data/dev_1.jsonl", "test/a.csv", "trainer.txt", "data/train.bin", "data/train.idx"})
    folder.write(name, "x");
  CHECK(split_of(folder, Split::train) ==
        Names{"data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet", "data/train.bin"});
  CHECK(split_of(folder, Split::validation) == Names{"data/dev_1.jsonl"});
  CHECK(split_of(folder, Split::test) == Names{"test/a.csv"});
  fs::remove_all(folder.path() / "test");
  CHECK_THAT(message_of<DataError>([&] { split_of(folder, Split::test); }),
             Contains("has the splits train, validation, but none for test"));
}

TEST_CASE("files, and folders with files of at most one split, are read as they are") {
  const TempFolder folder;
  const std::string file = folder.write("test-a.txt", "x");
  folder.write("test-b.txt", "x");
  folder.write("other.txt", "x");
  CHECK(split_of(folder, Split::train) == Names{"."});
  CHECK(paths_of_split(file, Split::train) == Names{file});
  CHECK(paths_of_split("/nowhere/at/all", Split::train) == Names{"/nowhere/at/all"});
}

TEST_CASE("a saved data set may list only files in its folder") {
  const TempFolder folder;
  folder.write("dataset_info.json", "{}");
  folder.write("a.arrow", "x");
  const auto error_of = [&](const std::string& state) {
    folder.write("state.json", state);
    return message_of<DataError>([&] { files_of_dataset(folder.path()); });
  };
  CHECK(error_of(R"({"_data_files": [{"filename": "a.arrow"}]})").empty());
  CHECK_THAT(error_of(R"({"_data_files": [{"filename": "../a.arrow"}]})"), Contains("must be a file of this folder"));
  CHECK_THAT(error_of(R"({"_data_files": [{"filename": "b.arrow"}]})"),
             Contains("state.json: /_data_files/0/filename"));
  CHECK_THAT(error_of(R"({"_data_files": []})"), Contains("the data set is empty"));
  CHECK_THAT(error_of("{}"), Contains("_data_files"));
  CHECK_THAT(error_of(R"({"_data_files": [{"filename": "a.arrow"}], "_indices_data_files": [{"filename": "i"}]})"),
             Contains("is a selection of the rows"));
}

}  // namespace shardline::saved_dataset_test
