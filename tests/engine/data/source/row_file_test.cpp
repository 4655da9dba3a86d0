#include "engine/data/source/row_file.h"

#include "core/error.h"
#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::row_file_test {
namespace {

using Catch::Contains;
using nlohmann::json;

struct Rows {
  std::vector<json> columns;
  std::vector<std::string> where;
  bool operator==(const Rows&) const = default;
};

Rows read(const TempFolder& folder, const std::string& name, const std::string& content, DataFormat format) {
  const std::string path = folder.write(name, content);
  Rows rows;
  DataRow row;
  for (const auto file = open_rows({path, format}); file->next(row);) {
    CHECK(file->done() <= content.size());
    rows.columns.push_back(row.columns);
    rows.where.push_back(row.where.substr(row.where.find(name) + name.size()));
  }
  return rows;
}

std::string error_of(const std::string& content, DataFormat format) {
  const TempFolder folder;
  return message_of<DataError>([&] { read(folder, "rows", content, format); });
}

}  // namespace

TEST_CASE("rows of CSV: quotes, line ends and delimiters in fields, marks, and Windows' line ends") {
  const TempFolder folder;
  const Rows rows = read(folder, "a.csv",
                         "\xEF\xBB\xBFtext,label\r\n\"a, \"\"b\"\"\r\nc\",1\r\n\r\n plain \"x\" ,2\r\n\"\",\n\"q\"r,3",
                         DataFormat::csv);
  CHECK(rows.columns == std::vector<json>{{{"text", "a, \"b\"\r\nc"}, {"label", "1"}},
                                          {{"text", " plain \"x\" "}, {"label", "2"}},
                                          {{"text", ""}, {"label", ""}},
                                          {{"text", "qr"}, {"label", "3"}}});
  CHECK(rows.where == std::vector<std::string>{":2", ":5", ":6", ":7"});
}

TEST_CASE("rows of CSV: a quoted empty text is a row, a blank line is not") {
  const TempFolder folder;
  const Rows rows = read(folder, "a.csv", "text\na\n\n\"\"\r\n\r\n\"\"\nb\n\"\"", DataFormat::csv);
  CHECK(rows.columns ==
        std::vector<json>{{{"text", "a"}}, {{"text", ""}}, {{"text", ""}}, {{"text", "b"}}, {{"text", ""}}});
}

TEST_CASE("rows of TSV: quotes are ordinary characters") {
  const TempFolder folder;
  const Rows rows = read(folder, "a.tsv", "s1\ts2\n\"a\tb,\"\n", DataFormat::tsv);
  CHECK(rows.columns == std::vector<json>{{{"s1", "\"a"}, {"s2", "b,\""}}});
}

TEST_CASE("rows of files whose first row names no columns, and rows of other numbers of fields") {
  const TempFolder folder;
  const auto rows_of = [&](const std::string& content, bool uneven) {
    std::vector<json> rows;
    DataRow row;
    const DataFile file{folder.write("a.tsv", content), DataFormat::tsv, {"label", "text"}, uneven};
    for (const auto opened = open_rows(file); opened->next(row);) {
      rows.push_back(row.columns);
      rows.back()["cut off"] = row.is_cut_off;
    }
    return rows;
  };
  const json first = {{"label", "1"}, {"text", "a"}, {"cut off", false}};
  CHECK(rows_of("1\ta\n", false) == std::vector{first});
  CHECK(rows_of("text\tlabel\na\t1\n", false) == std::vector{first});
  CHECK(rows_of("1\ta\tb\n2\n", true) == std::vector{first, json{{"label", "2"}, {"cut off", true}}});
  CHECK_THAT(message_of<DataError>([&] { rows_of("1\ta\n2\n", false); }),
             Contains("a.tsv:2: has 1 fields, but this data set has 2 columns"));
}

TEST_CASE("rows of tables that cannot be read are refused, and the error states the line") {
  CHECK_THAT(error_of("", DataFormat::csv), Contains("has no rows"));
  CHECK_THAT(error_of("a,a\n", DataFormat::csv), Contains(":1: names the column 'a' twice"));
  CHECK_THAT(error_of("a,\n", DataFormat::csv), Contains("a column has an empty name"));
  CHECK_THAT(error_of("a,b\n1,2\n1,2,3\n", DataFormat::csv), Contains(":3: has 3 fields") && Contains("2 columns"));
  CHECK_THAT(error_of("a\n\"x\n\n", DataFormat::csv), Contains(":2: has a quote that is not closed"));
  CHECK_THAT(error_of("{\"a\":1}\n[1]\n", DataFormat::jsonl), Contains(":2: must hold a JSON object"));
  CHECK_THAT(error_of("[1]", DataFormat::json), Contains("row 1: must be an object"));
  const DataRow line{.columns = {{"text", "a"}}, .where = "a.txt:1"};
  CHECK_THAT(message_of<DataError>([&] { column_of(line, "label", "data.label_column"); }),
             Contains("a.txt:1: has no 'label', only {text}; a text file has no other columns: name JSONL"));
  const DataRow tensors{.columns = {{"x", 1}}, .where = "a.safetensors, sample 1", .tensor_row = 0};
  CHECK_THAT(message_of<DataError>([&] { column_of(tensors, "label", "data.label_column"); }),
             Contains("sample 1: has no 'label' of one or two dimensions, only {x}; set data.label_column"));
  CHECK_THAT(error_of("3", DataFormat::json), Contains("must be an array of objects") && Contains("but is a number"));
  CHECK_THAT(error_of(R"({"data": {}})", DataFormat::json), Contains("but is an object"));
  CHECK_THAT(error_of("some text", DataFormat::tokens), Contains("has token ids and no columns"));
  CHECK_THAT(error_of(std::string("a\nb\0c\n", 6), DataFormat::text), Contains("NUL byte at offset 3"));
}

TEST_CASE("rows of text: every line, including a blank one") {
  const TempFolder folder;
  const Rows rows = read(folder, "a.txt", "\xEF\xBB\xBFone\r\n\n two \nlast", DataFormat::text);
  CHECK(rows.columns == std::vector<json>{{{"text", "one"}}, {{"text", ""}}, {{"text", " two "}}, {{"text", "last"}}});
  CHECK(rows.where == std::vector<std::string>{":1", ":2", ":3", ":4"});
}

TEST_CASE("rows of JSON: an array, an object with data, or one object per line") {
  const TempFolder folder;
  const std::vector<json> expected = {{{"a", 1}}, {{"a", "x"}}};
  for (const char* text : {"[{\"a\": 1},\n {\"a\": \"x\"}]", "{\"data\": [{\"a\": 1}, {\"a\": \"x\"}]}",
                           "{\n\"data\": [{\"a\": 1}, {\"a\": \"x\"}]}", "\n{\"a\": 1}\n{\"a\": \"x\"}\n"}) {
    CAPTURE(text);
    CHECK(read(folder, "a.json", text, DataFormat::json).columns == expected);
  }
}

TEST_CASE("rows of CoNLL: each sentence is a row, and columns are numbered") {
  const TempFolder folder;
  const Rows rows = read(folder, "a.conll",
                         "-DOCSTART- -X- O O\n\nEU NNP B-NP B-ORG\r\nrejects  VBZ\tB-VP O\n\n\n-DOCSTART- -X- O O\n"
                         "Peter NNP B-NP B-PER",
                         DataFormat::conll);
  REQUIRE(rows.columns.size() == 2);
  CHECK(rows.columns[0] == json{{"tokens", {"EU", "rejects"}},
                                {"label", {"B-ORG", "O"}},
                                {"0", {"EU", "rejects"}},
                                {"1", {"NNP", "VBZ"}},
                                {"2", {"B-NP", "B-VP"}},
                                {"3", {"B-ORG", "O"}}});
  CHECK(rows.columns[1].at("tokens") == json::array({"Peter"}));
  CHECK(rows.where == std::vector<std::string>{":3", ":8"});
  CHECK(read(folder, "b.conll", "-DOCSTART- O\n\n", DataFormat::conll).columns.empty());
  CHECK(read(folder, "c.conll", "\xEF\xBB\xBFw O\n", DataFormat::conll).columns[0].at("tokens") == json::array({"w"}));
  CHECK(read(folder, "d.conll", "w\n", DataFormat::conll).columns[0] == json{{"tokens", {"w"}}, {"0", {"w"}}});
  CHECK_THAT(error_of("a O\nb\n", DataFormat::conll), Contains("rows:2: has 1 columns") && Contains("has 2"));
}

TEST_CASE("rows of SQuAD: each question is a row that contains its paragraph's context") {
  const TempFolder folder;
  const json squad = {{"version", "v2.0"},
                      {"data",
                       {{{"title", "T"},
                         {"paragraphs",
                          {{{"context", "A b c."},
                            {"qas",
                             {{{"id", "1"}, {"question", "b?"}, {"answers", {{{"text", "b"}, {"answer_start", 2}}}}},
                              {{"id", "2"},
                               {"question", "d?"},
                               {"is_impossible", true},
                               {"plausible_answers", {{{"text", "c"}, {"answer_start", 4}}}},
                               {"answers", json::array()}}}}}}}}}}};
  const Rows rows = read(folder, "a.json", squad.dump(), DataFormat::json);
  REQUIRE(rows.columns.size() == 2);
  CHECK(rows.columns[0].at("context") == "A b c.");
  CHECK(rows.columns[0].at("title") == "T");
  CHECK(rows.columns[0].at("answers") == json{{"text", {"b"}}, {"answer_start", {2}}});
  CHECK(rows.columns[1].at("answers") == json{{"text", json::array()}, {"answer_start", json::array()}});
}

TEST_CASE("if a column is missing, the error lists the columns that exist") {
  const DataRow row{{{"text", "x"}, {"label", 3}}, "a.csv:4"};
  CHECK(text_of(row, "text", "data.text_column") == "x");
  CHECK(column_of(row, "label", "data.label_column") == 3);
  CHECK_THAT(
      message_of<DataError>([&] { text_of(row, "sentence", "data.text_column"); }),
      Contains("a.csv:4") && Contains("no 'sentence'") && Contains("{label, text}") && Contains("data.text_column"));
  CHECK_THAT(message_of<DataError>([&] { text_of(row, "label", "data.text_column"); }), Contains("must be a string"));
}

}  // namespace shardline::row_file_test
