#include "engine/metrics/rouge.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace shardline {
namespace {

using Words = std::vector<std::string>;

Words words_of(std::string_view text) {
  Words words;
  bool inside = false;
  for (const unsigned char c : text) {
    const bool is_word = c < 128 && std::isalnum(c);
    if (is_word && !inside) words.emplace_back();
    if (is_word) words.back() += char(std::tolower(c));
    inside = is_word;
  }
  return words;
}

double f_measure(double hits, double predicted, double reference) {
  if (predicted == 0 || reference == 0 || hits == 0) return 0;
  const double precision = hits / predicted, recall = hits / reference;
  return 2 * precision * recall / (precision + recall);
}

using Counts = std::map<Words, int64_t>;

Counts ngrams(const Words& words, size_t length) {
  Counts counts;
  for (size_t i = 0; i + length <= words.size(); ++i) ++counts[{words.begin() + i, words.begin() + i + length}];
  return counts;
}

double of_ngrams(const Words& prediction, const Words& reference, size_t length) {
  const Counts predicted = ngrams(prediction, length), wanted = ngrams(reference, length);
  int64_t hits = 0, in_prediction = 0, in_reference = 0;
  for (const auto& [words, count] : predicted) in_prediction += count;
  for (const auto& [words, count] : wanted) {
    in_reference += count;
    if (const auto found = predicted.find(words); found != predicted.end()) hits += std::min(count, found->second);
  }
  return f_measure(hits, in_prediction, in_reference);
}

// [i][j]: the length of the longest common subsequence of the first i and the first j words.
std::vector<std::vector<int>> common_lengths(const Words& a, const Words& b) {
  std::vector<std::vector<int>> lengths(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t i = 1; i <= a.size(); ++i)
    for (size_t j = 1; j <= b.size(); ++j)
      lengths[i][j] = a[i - 1] == b[j - 1] ? lengths[i - 1][j - 1] + 1 : std::max(lengths[i - 1][j], lengths[i][j - 1]);
  return lengths;
}

// Marks the words of `reference` that are in a longest common subsequence.
void mark_common(const Words& reference, const Words& prediction, std::vector<bool>& marked) {
  const auto lengths = common_lengths(reference, prediction);
  size_t i = reference.size(), j = prediction.size();
  while (i > 0 && j > 0) {
    if (reference[i - 1] == prediction[j - 1]) {
      marked[i - 1] = true;
      --i;
      --j;
    } else if (lengths[i][j - 1] > lengths[i - 1][j]) {
      --j;
    } else {
      --i;
    }
  }
}

std::vector<Words> lines_of(std::string_view text) {
  std::vector<Words> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    if (end > 0) lines.push_back(words_of(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

double of_lines(std::string_view prediction, std::string_view reference) {
  const auto predicted = lines_of(prediction), wanted = lines_of(reference);
  std::map<std::string, int64_t> left_predicted, left_wanted;
  int64_t in_prediction = 0, in_reference = 0, hits = 0;
  for (const auto& line : predicted)
    for (const auto& word : line) ++left_predicted[word], ++in_prediction;
  for (const auto& line : wanted)
    for (const auto& word : line) ++left_wanted[word], ++in_reference;
  for (const auto& line : wanted) {
    std::vector<bool> marked(line.size());
    for (const auto& other : predicted) mark_common(line, other, marked);
    for (size_t i = 0; i < line.size(); ++i) {  // each occurrence counts once on both sides
      if (!marked[i] || left_predicted[line[i]] <= 0 || left_wanted[line[i]] <= 0) continue;
      --left_predicted[line[i]];
      --left_wanted[line[i]];
      ++hits;
    }
  }
  return f_measure(hits, in_prediction, in_reference);
}

}  // namespace

RougeScores rouge(std::string_view prediction, std::string_view reference) {
  const Words predicted = words_of(prediction), wanted = words_of(reference);
  return {.rouge1 = of_ngrams(predicted, wanted, 1),
          .rouge2 = of_ngrams(predicted, wanted, 2),
          .rouge_l = f_measure(common_lengths(wanted, predicted).back().back(), predicted.size(), wanted.size()),
          .rouge_lsum = of_lines(prediction, reference)};
}

}  // namespace shardline
