#include "engine/data/tokenizer/bpe_tokenizer.h"

#include <algorithm>
#include <future>

#include "engine/data/text/utf8.h"

namespace shardline {
namespace {

constexpr size_t kSeamDistance = 1 << 10;  // bytes in which a seam is expected

}  // namespace

BpeTokenizer::BpeTokenizer(const TextPipelineSpec& pipeline, const WordRules& words, const SpecialTokens& special,
                           std::string digest)
    : pipeline_(pipeline),
      model_(std::dynamic_pointer_cast<const BpeModel>(pipeline.model)),
      splitter_(words, [model = model_.get()](char left, char right) { return model->never_joined(left, right); }),
      special_(special),
      digest_(std::move(digest)) {}

std::vector<int32_t> BpeTokenizer::encode(std::string_view text) const {
  return encode_part(text, {}, {}).ids;
}

EncodedPart BpeTokenizer::encode_part(std::string_view text, const Seam& from, const PartOptions& options) const {
  EncodedPart part{.end = from};
  const auto is_listed = [&](const Seam& seam) {
    return options.listed_from <= seam.offset && seam.offset < options.listed_until;
  };
  if (is_listed(from)) part.listed.push_back({from, 0});
  const size_t until = std::min(options.until, text.size());
  size_t ahead = 0;  // bytes of the window; 0 if not chosen yet
  while (part.end.offset < until) {
    if (ahead == 0) ahead = std::min(options.window, until - part.end.offset + kSeamDistance);
    const bool whole_rest = ahead >= text.size() - part.end.offset;
    const size_t end = whole_rest ? text.size() : code_point_start(text, part.end.offset + ahead);
    WindowWords window = splitter_.split(text, part.end, end, options.listed_from, options.listed_until);
    if (whole_rest) window.marks.push_back({{.offset = text.size()}, window.words.size()});
    if (window.marks.empty()) {
      ahead *= 2;
      continue;
    }
    ahead = 0;
    auto last = std::find_if(window.marks.begin(), window.marks.end() - 1,
                             [&](const WindowWords::Mark& mark) { return mark.seam.offset >= until; });
    size_t done = 0;  // words
    for (auto mark = window.marks.begin(); mark <= last; ++mark) {
      if (!is_listed(mark->seam)) continue;
      append_ids(std::span(window.words).subspan(done, mark->words - done), options.threads, part.ids);
      done = mark->words;
      part.listed.push_back({mark->seam, part.ids.size()});
    }
    append_ids(std::span(window.words).subspan(done, last->words - done), options.threads, part.ids);
    part.end = last->seam;
  }
  return part;
}

void BpeTokenizer::append_ids(std::span<const Word> words, int threads, std::vector<int32_t>& ids) const {
  if (threads > 1) {
    const size_t share = (words.size() + threads - 1) / threads;
    std::vector<std::future<std::vector<int32_t>>> shares;
    for (; !words.empty(); words = words.subspan(std::min(share, words.size()))) {
      shares.push_back(std::async(std::launch::async, [this, mine = words.first(std::min(share, words.size()))] {
        std::vector<int32_t> found;
        append_ids(mine, 1, found);
        return found;
      }));
    }
    for (auto& part : shares) {
      const auto found = part.get();
      ids.insert(ids.end(), found.begin(), found.end());
    }
    return;
  }
  for (const auto& [bytes, added, whole] : words) {
    if (added != AddedTokenMatcher::kNone) {
      ids.push_back(added);
    } else {
      model_->encode(bytes, whole, ids);
    }
  }
}

}  // namespace shardline
