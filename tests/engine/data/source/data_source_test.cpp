#include "engine/data/source/data_source.h"

#include <map>

#include "core/error.h"
#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::data_source_test {

using Catch::Contains;

namespace {

// The text that the tokens of a `bytes` source represent.
std::string text_of(const DataSource& source) {
  std::string text;
  Seam border;
  for (int64_t piece = 0; piece < source.pieces(); ++piece) {
    for (const int32_t id : source.join(piece, source.encode(piece).part, border)) text += static_cast<char>(id);
  }
  return text;
}

// Where documents end, counted in ids of the whole file; empty ones, too.
std::vector<int64_t> ends_of(const DataSource& source) {
  std::vector<int64_t> ends;
  int64_t before = 0;
  Seam border;
  for (int64_t piece = 0; piece < source.pieces(); ++piece) {
    EncodedPiece encoded = source.encode(piece);
    for (const int64_t end : encoded.document_ends) ends.push_back(before + end);
    before += std::ssize(source.join(piece, std::move(encoded.part), border));
  }
  return ends;
}

DataSourceOptions with_bytes(int64_t piece_bytes = 1 << 20) {
  return {load_tokenizer("bytes"), 256, "text", piece_bytes};
}

std::string jsonl_error(const std::string& content, const std::string& column = "text") {
  const TempFolder folder;
  const std::string file = folder.write("x.jsonl", content);
  auto options = with_bytes();
  options.text_column = column;
  return message_of<DataError>([&] { text_of(*open_data_source({file, DataFormat::jsonl}, options)); });
}

std::vector<std::string> names(const std::vector<DataFile>& files, const TempFolder& folder) {
  std::vector<std::string> result;
  for (const DataFile& file : files) result.push_back(std::filesystem::relative(file.path, folder.path()).string());
  return result;
}

}  // namespace

TEST_CASE("a text file is one document with unchanged bytes, however it is divided into pieces") {
  const TempFolder folder;
  const std::string text = "one\r\ntwo\n\n  three\n\tfour";
  const std::string file = folder.write("a.txt", text);
  for (const int64_t piece_bytes : {1, 5, 1000}) {
    const auto source = open_data_source({file, DataFormat::text}, with_bytes(piece_bytes));
    CHECK(text_of(*source) == text);
    CHECK(ends_of(*source).empty());  // only the end of the file ends a document
    CHECK(source->pieces() == (static_cast<int64_t>(text.size()) + piece_bytes - 1) / piece_bytes);
  }
  const std::string binary = folder.write("b.txt", std::string("ab\0cd", 5));
  CHECK_THAT(message_of<DataError>([&] {
               text_of(*open_data_source({binary, DataFormat::text}, with_bytes()));
             }),
             Contains("NUL byte at offset 2") && Contains("b.txt"));
  CHECK_THAT(message_of<ConfigError>([&] {
               open_data_source({file, DataFormat::text}, {});
             }),
             Contains("data.tokenizer"));
}

TEST_CASE("JSONL: each line that is not blank is a document, however the file is divided into pieces") {
  const TempFolder folder;
  const std::string file =
      folder.write("a.jsonl",
                   "\xEF\xBB\xBF{\"text\": \"one \", \"id\": 1}\r\n\n  "
                   "\n{\"id\":2,\"text\":\"tw\\u006f\\n\"}\n{\"text\":\"\"}\n{\"text\":\"\\u20ac\"}");
  for (const int64_t piece_bytes : {1, 20, 1000}) {
    const auto source = open_data_source({file, DataFormat::jsonl}, with_bytes(piece_bytes));
    CHECK(text_of(*source) == "one two\n\xE2\x82\xAC");
    CHECK(ends_of(*source) == std::vector<int64_t>{4, 8, 8, 11});
  }
}

TEST_CASE("JSONL errors name file and line") {
  CHECK_THAT(jsonl_error("{\"text\":\"a\"}\n\n{\"text\":"), Contains("x.jsonl:3") && Contains("JSON"));
  CHECK_THAT(jsonl_error("[1]\n"), Contains("x.jsonl:1") && Contains("object") && Contains("array"));
  CHECK_THAT(jsonl_error("{\"content\":\"a\",\"n\":1}"), Contains("no 'text'") && Contains("content, n"));
  CHECK_THAT(jsonl_error("{\"text\":3}"), Contains("must be a string") && Contains("number"));
  CHECK_THAT(jsonl_error("{\"text\":\"\xFF\"}"), Contains("x.jsonl:1"));
  CHECK_THAT(jsonl_error("{\"text\":\"\\ud800\"}"), Contains("x.jsonl:1"));
  CHECK(jsonl_error("{\"story\":\"a\"}", "story").empty());
}

TEST_CASE("a folder stands for its sorted files, each with its own format") {
  const TempFolder folder;
  for (const char* name : {"b.txt", "a/z.jsonl", "a/c.md", ".hidden", ".git/config", "t.bin", "t.idx"})
    folder.write(name, "x");
  const auto files = find_data_files({folder.path().string()}, DataFormat::automatic);
  CHECK(names(files, folder) == std::vector<std::string>{"a/c.md", "a/z.jsonl", "b.txt", "t.bin"});
  CHECK(files[0].format == DataFormat::text);
  CHECK(files[1].format == DataFormat::jsonl);
  CHECK(files[3].format == DataFormat::tokens);
  CHECK(find_data_files({folder.path().string()}, DataFormat::text)[1].format == DataFormat::text);
  CHECK(names(find_data_files({folder.path() / "b.txt", folder.path() / "a/c.md"}, DataFormat::automatic), folder) ==
        std::vector<std::string>{"b.txt", "a/c.md"});
  for (const char* name : {"t", "t.idx", "t.bin"}) {
    CHECK(names(find_data_files({(folder.path() / name).string()}, DataFormat::automatic), folder) ==
          std::vector<std::string>{"t.bin"});
  }
}

TEST_CASE("data that cannot be used is refused before anything is read") {
  const TempFolder folder;
  const auto error = [&](const std::string& name, DataFormat format = DataFormat::automatic) {
    return message_of<DataError>([&] { find_data_files({(folder.path() / name).string()}, format); });
  };
  CHECK_THAT(error("none.txt"), Contains("no such data file"));
  folder.write("empty.txt", "");
  CHECK_THAT(error("empty.txt"), Contains("empty"));
  folder.write("a.orc", "x");
  CHECK_THAT(error("a.orc"), Contains(".orc") && Contains("data.format"));
  CHECK(error("a.orc", DataFormat::text).empty());
  std::filesystem::create_directory(folder.path() / "nothing");
  CHECK_THAT(message_of<ConfigError>([&] { find_data_files({folder.path() / "nothing"}, DataFormat::automatic); }),
             Contains("the folder contains no files"));
  folder.write("only.idx", "x");
  CHECK_THAT(error("only.idx"), Contains("only.bin"));
  std::filesystem::create_directory(folder.path() / "loop");
  std::filesystem::create_directory_symlink(folder.path() / "loop", folder.path() / "loop/again");
  CHECK_THAT(error("loop"), Contains("cannot be listed"));
  CHECK_THAT(message_of<ConfigError>([] { find_data_files({}, DataFormat::automatic); }), Contains("no file"));
}

TEST_CASE("a check that does not read a whole file finds what train refuses about it") {
  const TempFolder folder;
  const auto check = [&](const std::string& name, const std::string& content,
                         DataFormat format = DataFormat::automatic) {
    const std::string file = folder.write(name, content);
    return message_of<DataError>([&] { check_data_files({file}, format, "text"); });
  };
  CHECK(check("a.txt", "text").empty());
  CHECK_THAT(check("b.txt", std::string("ab\0cd", 5)), Contains("NUL byte at offset 2") && Contains("b.txt"));
  CHECK(check("a.jsonl", "\n{\"text\": \"x\"}\nnever read").empty());
  CHECK_THAT(check("b.jsonl", "\n{\"story\": \"x\"}\n"), Contains("b.jsonl:2") && Contains("no 'text'"));
  CHECK_THAT(check("c.jsonl", "text"), Contains("c.jsonl:1"));
  CHECK(check("a.bin", "1234").empty());
  CHECK_THAT(check("b.bin", "123"), Contains("b.bin") && Contains("odd number"));
  folder.write("c.idx", "MMID");
  CHECK_THAT(check("c.bin", "1234"), Contains("c.idx"));
  CHECK_THAT(check("a.parquet", "PAR1"), Contains(".parquet"));
  CHECK_THAT(check("empty.txt", ""), Contains("empty"));
  CHECK_THAT(check("folder/a.txt", "text") + message_of<DataError>([&] {
               check_data_files({folder.path().string()}, DataFormat::automatic, "text");
             }),
             Contains("a.parquet"));
  check_data_files({"/nowhere/at/all.txt", (folder.path() / "nothing").string()}, DataFormat::automatic, "text");
}

TEST_CASE("tables: each row is a document, in any format") {
  const TempFolder folder;
  const std::map<DataFormat, std::string> tables = {
      {DataFormat::csv, folder.write("a.csv", "n,text\n1,ab\n2,\"c,\n\"\"d\"\n3,\n")},
      {DataFormat::tsv, folder.write("b.tsv", "n\ttext\n1\tab\n2\tc,\"d\n3\t\n")},
      {DataFormat::json, folder.write("c.json", "[{\"text\": \"ab\"}, {\"text\": \"c,\"}, {\"text\": \"\"}]")}};
  const std::map<DataFormat, std::string> texts = {
      {DataFormat::csv, "abc,\n\"d"}, {DataFormat::tsv, "abc,\"d"}, {DataFormat::json, "abc,"}};
  for (const auto& [format, path] : tables)
    for (const int64_t piece_bytes : {1, 100}) {
      const auto source = open_data_source({path, format}, with_bytes(piece_bytes));
      CAPTURE(path, piece_bytes);
      const int64_t second = texts.at(format).size();
      CHECK(ends_of(*source) == std::vector<int64_t>{2, second, second});
      CHECK(source->pieces() == (piece_bytes == 1 ? 3 : 1));
      CHECK(text_of(*source) == texts.at(format));
    }
  CHECK_THAT(message_of<DataError>([&] {
               open_data_source({tables.at(DataFormat::csv), DataFormat::csv},
                                {.tokenizer = load_tokenizer("bytes"), .text_column = "body"});
             }),
             Contains("a.csv:2") && Contains("no 'body'"));
}

TEST_CASE("tokenised rows are documents of their own tokens, beside texts and in each format with lists") {
  const TempFolder folder;
  const std::string lines = R"({"input_ids": [97, 98, 0], "attention_mask": [1, 1, 0], "text": "x"})"
                            "\n"
                            R"({"text": "cd"})"
                            "\n"
                            R"({"input_ids": [101], "labels": [101]})"
                            "\n";
  std::string array = "[" + lines + "]";
  for (size_t at = array.find("\n{"); at != std::string::npos; at = array.find("\n{")) array.replace(at, 1, ",");
  const std::map<DataFormat, std::string> files = {{DataFormat::jsonl, folder.write("a.jsonl", lines)},
                                                   {DataFormat::json, folder.write("a.json", array)}};
  for (const auto& [format, file] : files)
    for (const int64_t piece_bytes : {1, 100}) {
      const auto source = open_data_source({file, format}, with_bytes(piece_bytes));
      CHECK(text_of(*source) == "abcde");
      CHECK(ends_of(*source) == std::vector<int64_t>{2, 4, 5});
    }
  CHECK_NOTHROW(check_data_files({files.at(DataFormat::jsonl)}, DataFormat::jsonl, "body"));
  CHECK_THAT(jsonl_error(R"({"input_ids": [97, 256]})"),
             Contains("x.jsonl:1: 'input_ids' has the id 256, outside the vocabulary of 256"));
  CHECK_THAT(jsonl_error(R"({"input_ids": [97, 98], "labels": [-100, 98]})"),
             Contains("x.jsonl:1: 'labels' has -100 where 'input_ids' has 97; set data.completion_only_loss to true"));
  CHECK_THAT(jsonl_error(R"({"input_ids": [97, 98], "completion_mask": [0, 1]})"),
             Contains("'completion_mask'") && Contains("set data.completion_only_loss to true"));
  CHECK_THAT(jsonl_error(R"({"input_ids": [97, 98], "token_type_ids": [0, 1]})"),
             Contains("x.jsonl:1: 'token_type_ids' has the type 1"));
  CHECK_THAT(jsonl_error(R"({"input_ids": [97, 98], "position_ids": [0, 0]})"),
             Contains("x.jsonl:1: 'position_ids' is 0 again at token 1"));
  CHECK_THAT(jsonl_error(R"({"input_ids": [97.5]})"), Contains("x.jsonl:1: 'input_ids' must be a list of integers"));
}

}  // namespace shardline::data_source_test
