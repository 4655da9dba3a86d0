#include "engine/data/tokenizer/pipeline_tokenizer.h"

#include <algorithm>
#include <utility>

namespace shardline {

PipelineTokenizer::PipelineTokenizer(const TextPipelineSpec& spec, bool lines_apart, const SpecialTokens& special,
                                     std::string digest)
    : pipeline_(spec), lines_apart_(lines_apart), special_(special), digest_(std::move(digest)) {}

EncodedPart PipelineTokenizer::encode_part(std::string_view text, const Seam& from, const PartOptions& options) const {
  EncodedPart part{.end = from};
  const auto list = [&](const Seam& seam) {
    if (options.listed_from <= seam.offset && seam.offset < options.listed_until)
      part.listed.push_back({seam, part.ids.size()});
  };
  list(from);
  if (!lines_apart_ && from.offset > 0) {
    // A guess inside the text: no seam follows before the end of the text, so no result from here can be used.
    part.end.offset = std::max(from.offset, std::min(options.until, text.size()));
    return part;
  }
  const size_t until = std::min(options.until, text.size());
  while (part.end.offset < until) {
    const size_t begin = part.end.offset;
    const size_t newline = lines_apart_ ? text.find('\n', begin) : std::string_view::npos;
    const size_t end = newline == std::string_view::npos ? text.size() : newline + 1;
    const std::vector<int32_t> ids = pipeline_.ids_of(text.substr(begin, end - begin));
    part.ids.insert(part.ids.end(), ids.begin(), ids.end());
    part.end = {.offset = end};
    list(part.end);
  }
  return part;
}

}  // namespace shardline
