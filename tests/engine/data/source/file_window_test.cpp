#include "engine/data/source/file_window.h"

#include "core/error.h"
#include "engine/data/source/row_file.h"
#include "tests/engine/data/compressed/compress.h"
#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::file_window_test {
namespace {

using Catch::Contains;

struct Rows {
  std::vector<nlohmann::json> columns;
  std::vector<std::string> lines;  // each row's `where`
  bool operator==(const Rows&) const = default;
};

Rows rows_of(const std::string& path, DataFormat format) {
  Rows rows;
  DataRow row;
  size_t done = 0;
  const auto file = open_rows({path, format});
  while (file->next(row)) {
    rows.columns.push_back(row.columns);
    rows.lines.push_back(row.where.substr(path.size()));
    CHECK(file->done() >= done);
    done = file->done();
  }
  CHECK(file->done() == std::filesystem::file_size(path));
  return rows;
}

}  // namespace

TEST_CASE("rows of a compressed file equal those of the plain file, wherever its parts end") {
  const TempFolder folder;
  std::string csv = "\xEF\xBB\xBFtext,label\r\n", jsonl, conll, text, json = "[\n";
  for (int i = 0; i < 30000; ++i) {
    const std::string word = "word " + std::string(i % 50, 'x') + std::to_string(i);
    csv += i % 3 == 0 ? "\"" + word + "\n, \"\"quoted\"\"\"," + std::to_string(i) + "\r\n"
                      : word + "," + std::to_string(i) + (i % 7 == 0 ? "\n\n" : "\n");
    jsonl += "{\"text\": \"" + word + "\", \"label\": " + std::to_string(i) + "}\n";
    if (i % 5 == 0) jsonl += "\n";
    conll += "token" + std::to_string(i) + " O\n" + (i % 4 == 0 ? "\n" : "");
    text += word + (i % 2 == 0 ? "\r\n" : "\n");
    json += (i == 0 ? "" : ",\n") + ("{\"text\": \"" + word + "\"}");
  }
  csv += "last,";  // without a line end
  json += "]";
  const std::vector<std::tuple<std::string, std::string, DataFormat>> samples = {{"a.csv", csv, DataFormat::csv},
                                                                                 {"a.jsonl", jsonl, DataFormat::jsonl},
                                                                                 {"a.conll", conll, DataFormat::conll},
                                                                                 {"a.txt", text, DataFormat::text},
                                                                                 {"a.json", json, DataFormat::json}};
  for (const auto& [name, content, format] : samples) {
    CAPTURE(name);
    const Rows plain = rows_of(folder.write(name, content), format);
    CHECK(plain.columns.size() > 7000);
    CHECK((rows_of(folder.write(name + ".gz", gzip_of(content)), format) == plain));
    CHECK((rows_of(folder.write(name + ".zst", zstd_of(content)), format) == plain));
    CHECK((rows_of(folder.write("compressed " + name, zstd_of(content)), format) ==
           plain));  // recognised by its contents
  }
}

TEST_CASE("a compressed text can be read in parts") {
  const TempFolder folder;
  const std::string text = "\xEF\xBB\xBF" + std::string(3 << 20, 'x') + "\n";
  FileWindow window(folder.write("a.gz", gzip_of(text)));
  CHECK(window.offset() == 3);
  CHECK(window.rest().size() < (1 << 20));
  window.take(1000);
  CHECK(window.offset() == 1003);
  CHECK(window.read_all().size() == (3 << 20) - 1000 + 1);
  CHECK_FALSE(window.grow());
  FileWindow plain("text", "a name");
  CHECK(plain.rest() == "text");
  CHECK_FALSE(plain.grow());
  CHECK(plain.name() == "a name");
}

TEST_CASE("the error about a NUL byte in a compressed text states its position") {
  const TempFolder folder;
  const std::string path = folder.write("a.txt.gz", gzip_of(std::string("ab\ncd\0e\n", 8)));
  CHECK_THAT(message_of<DataError>([&] { rows_of(path, DataFormat::text); }),
             Contains("a.txt.gz: has a NUL byte at offset 5"));
}

}  // namespace shardline::file_window_test
