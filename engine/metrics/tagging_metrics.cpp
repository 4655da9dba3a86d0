#include "engine/metrics/tagging_metrics.h"

#include <unicode/utf8.h>

#include <algorithm>
#include <compare>

#include "core/error.h"

namespace shardline {
namespace {

struct Entity {
  std::string_view type;
  int64_t first = 0;  // places among the words of all sentences
  int64_t last = 0;

  auto operator<=>(const Entity&) const = default;
};

struct Tag {
  UChar32 letter = 0;
  std::string_view type;
};

Tag read_tag(std::string_view text) {
  size_t letter_end = 0;
  Tag tag;
  U8_NEXT_OR_FFFD(text.data(), letter_end, text.size(), tag.letter);
  const std::string_view rest = text.substr(letter_end);
  tag.type = rest.substr(rest.find('-') + 1);  // everything without a hyphen
  if (tag.type.empty()) tag.type = "_";
  return tag;
}

constexpr Tag kOutside{'O', "_"};

bool is_one_of(UChar32 letter, std::string_view letters) {
  return letter < 0x80 && letters.find(char(letter)) != std::string_view::npos;
}

bool ends_between(const Tag& before, const Tag& after) {
  if (is_one_of(before.letter, "ES")) return true;
  if (is_one_of(before.letter, "BI") && is_one_of(after.letter, "BSO")) return true;
  return !is_one_of(before.letter, "O.") && before.type != after.type;
}

bool begins_between(const Tag& before, const Tag& after) {
  if (is_one_of(after.letter, "BS")) return true;
  if (is_one_of(before.letter, "ESO") && is_one_of(after.letter, "EI")) return true;
  return !is_one_of(after.letter, "O.") && before.type != after.type;
}

// seqeval reads all sentences as one with an O after each, and starts with an O of a different type. Letters that are
// in no scheme follow its rules, too: an end without a beginning extends back to the last beginning.
class EntityReader {
 public:
  void add(const Tag& tag) {
    if (ends_between(before_, tag)) entities_.push_back({before_.type, first_, place_ - 1});
    if (begins_between(before_, tag)) first_ = place_;
    before_ = tag;
    ++place_;
  }
  const std::vector<Entity>& entities() const { return entities_; }

 private:
  Tag before_{'O', ""};
  int64_t first_ = 0;
  int64_t place_ = 0;
  std::vector<Entity> entities_;
};

std::vector<Entity> sorted_entities(std::span<const Tags> sentences) {
  EntityReader reader;
  for (size_t sentence = 0; sentence < sentences.size(); ++sentence) {
    const Tags& tags = sentences[sentence];
    for (size_t word = 0; word < tags.size(); ++word) {
      if (tags[word].empty()) {
        throw DataError(cat("word ", word, " of sentence ", sentence,
                            " (counted from 0) has an empty tag; words outside of entities have the tag O"));
      }
      reader.add(read_tag(tags[word]));
    }
    reader.add(kOutside);
  }
  auto entities = reader.entities();
  std::sort(entities.begin(), entities.end());
  return entities;
}

double share_of_right_tags(std::span<const Tags> predictions, std::span<const Tags> labels) {
  SL_ASSERT(predictions.size() == labels.size(), predictions.size(), " and ", labels.size(), " sentences");
  int64_t right = 0;
  int64_t words = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    SL_ASSERT(predictions[i].size() == labels[i].size(), "sentence ", i, " has ", predictions[i].size(), " and ",
              labels[i].size(), " tags");
    for (size_t word = 0; word < labels[i].size(); ++word) right += predictions[i][word] == labels[i][word];
    words += std::ssize(labels[i]);
  }
  return double(right) / double(words);
}

}  // namespace

TaggingMetrics tagging_metrics(std::span<const Tags> predictions, std::span<const Tags> labels) {
  TaggingMetrics metrics;
  metrics.accuracy = share_of_right_tags(predictions, labels);
  const auto predicted = sorted_entities(predictions);
  const auto expected = sorted_entities(labels);
  std::map<std::string_view, MatchCounts> counts;
  for (const Entity& entity : expected) ++counts[entity.type].expected;
  for (const Entity& entity : predicted) {
    ++counts[entity.type].predicted;
    if (std::ranges::binary_search(expected, entity)) ++counts[entity.type].correct;
  }
  MatchCounts total;
  for (const auto& [type, of_type] : counts) {
    metrics.by_type[std::string(type)] = {precision_recall(of_type), of_type.expected};
    total += of_type;
  }
  metrics.overall = {precision_recall(total), total.expected};
  return metrics;
}

}  // namespace shardline
