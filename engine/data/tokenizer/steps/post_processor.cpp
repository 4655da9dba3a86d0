#include "engine/data/tokenizer/steps/post_processor.h"

#include <algorithm>
#include <string>

#include "core/error.h"
#include "engine/data/text/utf8.h"
#include "engine/data/tokenizer/steps/components.h"
#include "engine/data/tokenizer/steps/truncation.h"

namespace shardline {
namespace {

constexpr int kLargestTemplateId = 1 << 24;
constexpr int kMostTypes = 1 << 10;
constexpr int kMostTemplateParts = 64;
constexpr char32_t kByteLevelSpace = 0x120;

// ["</s>", 2]
int32_t id_of_pair(const JsonValue& pair) {
  const std::vector<JsonValue> items = pair.items();
  if (items.size() != 2) pair.fail("must be a token and its id");
  return items[1].integer(0, kLargestTemplateId);
}

// {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}
std::vector<int32_t> ids_of_special(const JsonValue& tokens, const JsonValue& name) {
  const std::string key = name.text();
  if (!tokens.has(key)) name.fail("is not one of the template's special_tokens");
  std::vector<int32_t> ids;
  for (const JsonValue& id : tokens.at(key).at("ids").items()) ids.push_back(id.integer(0, kLargestTemplateId));
  return ids;
}

std::vector<TemplatePart> read_template(const JsonValue& list, const JsonValue& component) {
  std::vector<TemplatePart> parts;
  for (const JsonValue& item : list.items()) {
    TemplatePart part;
    const bool special = item.has("SpecialToken");
    const JsonValue content = item.at(special ? "SpecialToken" : "Sequence");
    if (content.has("type_id")) part.type = content.at("type_id").integer(0, kMostTypes);
    const JsonValue id = content.at("id");
    if (special) {
      part.ids = ids_of_special(component.at("special_tokens"), id);
    } else {
      const std::string name = id.text();
      if (name != "A" && name != "B") id.fail("must be A or B");
      part.sequence = name == "A" ? 0 : 1;
    }
    parts.push_back(std::move(part));
  }
  if (parts.size() > kMostTemplateParts) list.fail(cat("a template may have at most ", kMostTemplateParts, " parts"));
  return parts;
}

int64_t count_of(const std::vector<TemplatePart>& parts, int32_t sequence) {
  return std::count_if(parts.begin(), parts.end(), [=](const auto& part) { return part.sequence == sequence; });
}

void read_templates(const JsonValue& component, PostProcessor& out) {
  const JsonValue single = component.at("single");
  const JsonValue pair = component.at("pair");
  out.single = read_template(single, component);
  out.pair = read_template(pair, component);
  if (count_of(out.single, 0) != 1 || count_of(out.single, 1) != 0) single.fail("must have A once, and no B");
  if (count_of(out.pair, 0) != 1 || count_of(out.pair, 1) != 1) pair.fail("must have A and B once each");
}

void read_trim(const JsonValue& component, PostProcessor& out) {
  if (component.flag("trim_offsets", true)) {
    out.trim = {.add_prefix_space = component.flag("add_prefix_space", true)};
  }
}

// Makes offsets leave out white space; `i` counts from the beginning of a window.
class Trimmer {
 public:
  Trimmer(const TextOrWords& source, bool add_prefix_space, const SpaceOfToken& space_of)
      : source_(source), add_prefix_space_(add_prefix_space), space_of_(space_of) {}

  void trim(Encoding& window) const {
    for (size_t i = 0; i < window.size(); ++i) {
      TextSpan& span = window.offsets[i];
      const std::string_view text = text_of(window.words[i]);
      TokenSpace space = space_of_(window.ids[i], text.substr(span.begin, span.end - span.begin));
      const bool added = add_prefix_space_ && space.leading == 1 && (i == 0 || span.begin == 0);
      for (int n = added ? 0 : space.leading; n > 0 && span.begin < span.end; --n) {
        size_t next = span.begin;
        next_code_point(text, next);
        span.begin = next;
      }
      // The reference library does not change offsets that have fewer characters before them.
      if (characters_before(text, span.end, space.trailing) < space.trailing) continue;
      for (; space.trailing > 0 && span.end > span.begin; --space.trailing) {
        size_t last = span.end;
        previous_code_point(text, last);
        span.end = std::max<size_t>(last, span.begin);
      }
    }
  }

 private:
  std::string_view text_of(int32_t word) const {
    const auto* words = std::get_if<std::span<const std::string>>(&source_);
    return words ? std::string_view((*words)[word]) : std::get<std::string_view>(source_);
  }

  // Counts at most `enough` characters.
  static int characters_before(std::string_view text, size_t end, int enough) {
    int count = 0;
    for (; count < enough && end > 0; ++count) previous_code_point(text, end);
    return count;
  }

  const TextOrWords& source_;
  const bool add_prefix_space_;
  const SpaceOfToken& space_of_;
};

Encoding special_tokens(const TemplatePart& part) {
  const size_t count = part.ids.size();
  return {.ids = part.ids,
          .types = std::vector<int32_t>(count, part.type),
          .offsets = std::vector<TextSpan>(count),
          .sequences = std::vector<int32_t>(count, Encoding::kNone),
          .words = std::vector<int32_t>(count, Encoding::kNone)};
}

Encoding apply_template(const std::vector<TemplatePart>& parts, const Encoding& first, const Encoding* second,
                        bool add_special_tokens) {
  Encoding out;
  for (const TemplatePart& part : parts) {
    if (part.sequence == Encoding::kNone) {
      if (add_special_tokens) out.append(special_tokens(part));
      continue;
    }
    out.append(part.sequence == 0 ? first : *second);
    out.types.resize(out.ids.size());
    const size_t count = part.sequence == 0 ? first.size() : second->size();
    std::fill(out.types.end() - count, out.types.end(), part.type);
    std::fill(out.sequences.end() - count, out.sequences.end(), part.sequence);
  }
  return out;
}

}  // namespace

void PostProcessor::drop_types() {
  for (auto* parts : {&single, &pair})
    for (TemplatePart& part : *parts) part.type = 0;
}

int64_t PostProcessor::special_tokens(bool is_pair) const {
  int64_t count = 0;
  for (const TemplatePart& part : is_pair ? pair : single) count += part.ids.size();
  return count;
}

PostProcessor bert_post_processor(int32_t cls, int32_t sep) {
  return {
      .single = {{.ids = {cls}}, {.sequence = 0}, {.ids = {sep}}},
      .pair = {{.ids = {cls}}, {.sequence = 0}, {.ids = {sep}}, {.sequence = 1, .type = 1}, {.type = 1, .ids = {sep}}}};
}

PostProcessor roberta_post_processor(int32_t cls, int32_t sep) {
  return {.single = {{.ids = {cls}}, {.sequence = 0}, {.ids = {sep}}},
          .pair = {{.ids = {cls}}, {.sequence = 0}, {.ids = {sep, sep}}, {.sequence = 1}, {.ids = {sep}}}};
}

PostProcessor read_post_processor(const JsonValue& component) {
  PostProcessor out;
  int templates = 0;
  for_each_component(component, "processors", [&](const JsonValue& part) {
    const std::string type = part.text("type", "none");
    if (type == "ByteLevel") return read_trim(part, out);
    if (++templates > 1) part.fail("a second post-processor that adds special tokens is not supported");
    if (type == "TemplateProcessing") return read_templates(part, out);
    if (type != "BertProcessing" && type != "RobertaProcessing") {
      refuse_type(part, type, "TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel, Sequence");
    }
    const int32_t cls = id_of_pair(part.at("cls"));
    const int32_t sep = id_of_pair(part.at("sep"));
    const PostProcessor made =
        type == "BertProcessing" ? bert_post_processor(cls, sep) : roberta_post_processor(cls, sep);
    out.single = made.single;
    out.pair = made.pair;
    if (type == "RobertaProcessing") read_trim(part, out);
  });
  return out;
}

TokenSpace space_around(std::string_view token) {
  const auto is_space = [](char32_t c) { return c == kByteLevelSpace || is_white_space(c); };
  TokenSpace space;
  for (size_t offset = 0; offset < token.size() && is_space(next_code_point(token, offset));) ++space.leading;
  for (size_t end = token.size(); end > 0 && is_space(previous_code_point(token, end));) ++space.trailing;
  return space;
}

std::vector<Encoding> finish_example(ExampleTexts texts, const PostProcessor& rules, const ExampleOptions& options,
                                     const SpaceOfToken& space_of) {
  const bool is_pair = texts.second.has_value();
  const int64_t special = options.add_special_tokens ? rules.special_tokens(is_pair) : 0;
  TruncatedTexts windows = truncated(std::move(texts.first.tokens), is_pair ? &texts.second->tokens : nullptr, special,
                                     options, rules.truncated_side);
  if (rules.trim) {
    const Trimmer first(texts.first.source, rules.trim->add_prefix_space, space_of);
    for (Encoding& window : windows.first) first.trim(window);
    if (is_pair) {
      const Trimmer second(texts.second->source, rules.trim->add_prefix_space, space_of);
      for (Encoding& window : windows.second) second.trim(window);
    }
  }
  std::vector<Encoding> out;
  for (const Encoding& first : windows.first) {
    if (!is_pair) out.push_back(apply_template(rules.single, first, nullptr, options.add_special_tokens));
    for (const Encoding& second : windows.second)
      out.push_back(apply_template(rules.pair, first, &second, options.add_special_tokens));
  }
  return out;
}

}  // namespace shardline
