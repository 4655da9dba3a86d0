#include "engine/tasks/question_answering.h"

#include "core/error.h"
#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::question_answering_test {
namespace {

using Catch::Contains;
using nlohmann::json;

json row_of(const std::string& question, const std::string& context, const json& texts) {
  json starts = json::array();
  for (size_t i = 0; i < texts.size(); ++i) starts.push_back(0U);
  return {{"question", question}, {"context", context}, {"answers", {{"text", texts}, {"answer_start", starts}}}};
}

Config config_of(int64_t length) {
  Config config;
  config.task = kQuestionAnswering;
  config.data.sequence_length = length;
  return config;
}

}  // namespace

TEST_CASE("question-answering: the error about a context without room states what takes the room") {
  const std::string context(200, 'c');
  const auto encode = [&](const Config& config, const std::string& question) {
    question_answering(config, load_tokenizer("bytes"))->encode({row_of(question, context, {"c"}), "a.json:7"}, true);
  };
  const auto with_stride = [](int stride) {
    Config config = config_of(64);
    config.data.doc_stride = stride;
    return config;
  };
  for (const int stride : {61, 64, 128})
    CHECK(message_of<ConfigError>([&] { encode(with_stride(stride), "why"); }) ==
          cat("/data/doc_stride: must be smaller than the 61 tokens of the context that fit in a sample beside the "
              "question of a.json:7; got ",
              stride, "; use a smaller data.doc_stride or a larger data.sequence_length, now 64"));
  CHECK_NOTHROW(encode(with_stride(60), "why"));
  for (const int stride : {8, 128})
    for (const size_t length : {64, 65})
      CHECK(message_of<DataError>([&] { encode(with_stride(stride), std::string(length, 'q')); }) ==
            cat("a.json:7: the question has ", length,
                " tokens, which with 0 special ones leave no room for the context in data.sequence_length, now 64; "
                "shorten the question or use a larger data.sequence_length"));
}

// Parquet and Arrow files have signed integers, which are another type of JSON value than those of JSON files.
TEST_CASE("question-answering: places of answers may be signed integers") {
  json row = row_of("why", "for it", {"it"});
  const auto encode = [&] {
    return question_answering(config_of(64), load_tokenizer("bytes"))->encode({row, "a.parquet, row 1"}, true);
  };
  for (const json& start : {json(4), json(4U)}) {
    row["answers"]["answer_start"] = json::array({start});
    REQUIRE(encode().examples.size() == 1);
    CHECK(encode().examples[0].targets == std::vector<float>{7, 8});  // after the question
  }
  for (const json& start : {json(-1), json(4.0), json("4")}) {
    row["answers"]["answer_start"] = json::array({start});
    CHECK_THAT(message_of<DataError>(encode), Contains("a.parquet, row 1") && Contains("\"answer_start\""));
  }
}

TEST_CASE("question-answering: the run prints misplaced answers, and unexpected questions without an answer") {
  const TempFolder folder;
  const json answered = row_of("why", "because", {"because"}), not_answered = row_of("who", "because", json::array());
  const auto notes = [&](const std::vector<json>& rows, bool is_meant) {
    std::string lines;
    for (const json& row : rows) lines += row.dump() + '\n';
    Config config = config_of(64);
    config.data.version_2_with_negative = is_meant;
    return answer_notes(config, {DataFile{folder.write("rows.jsonl", lines), DataFormat::jsonl}});
  };
  REQUIRE(notes({answered, not_answered}, false).size() == 1);
  CHECK_THAT(notes({answered, not_answered}, false)[0],
             Contains("rows.jsonl:2: the question has no answer") && Contains("data.version_2_with_negative"));
  CHECK(notes({answered, not_answered}, true).empty());
  CHECK(notes({answered, answered}, false).empty());
  const json tokenised = {{"input_ids", {1, 2}}, {"start_positions", 0}, {"end_positions", 0}};
  CHECK(notes({tokenised}, false).empty());

  json after_umlaut = row_of("why", "f\u00fcr it", {"it"});
  after_umlaut["answers"]["answer_start"] = json::array({4U});
  CHECK(notes({after_umlaut}, false).empty());
  json misplaced = after_umlaut, outside = after_umlaut;
  misplaced["answers"]["answer_start"] = json::array({3U});
  outside["answers"]["answer_start"] = json::array({99U});
  REQUIRE(notes({answered, misplaced}, true).size() == 1);
  CHECK_THAT(notes({answered, misplaced}, true)[0],
             Contains("1 answer is not the text at its answer_start, in ") && Contains("rows.jsonl:2; training uses"));
  REQUIRE(notes({not_answered, misplaced, outside}, false).size() == 2);
  CHECK_THAT(notes({not_answered, misplaced, outside}, false)[1],
             Contains("2 answers are not the text at their answer_start, such as ") && Contains("rows.jsonl:2; "));
}

}  // namespace shardline::question_answering_test
