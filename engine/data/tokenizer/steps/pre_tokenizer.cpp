#include "engine/data/tokenizer/steps/pre_tokenizer.h"

#include <memory>
#include <string>

#include "engine/data/text/characters.h"
#include "engine/data/text/regex_dialect.h"
#include "engine/data/text/utf8.h"
#include "engine/data/tokenizer/steps/components.h"
#include "engine/data/tokenizer/steps/text_pattern.h"

namespace shardline {
namespace {

using Step = PreTokenizer::Step;

// Each character of the class is a match of its own.
template <class Matches>
std::vector<TextPart> parts_by(std::string_view text, const Matches& matches) {
  std::vector<TextPart> parts;
  size_t done = 0;
  for (size_t offset = 0; offset < text.size();) {
    const size_t begin = offset;
    if (!matches(next_code_point(text, offset))) continue;
    if (done < begin) parts.push_back({done, begin, false});
    parts.push_back({begin, offset, true});
    done = offset;
  }
  if (done < text.size()) parts.push_back({done, text.size(), false});
  return parts;
}

template <class Matches>
Step split_by(Matches matches, SplitBehavior behavior) {
  return [matches, behavior](AlignedText text) { return split(text, parts_by(text.text(), matches), behavior); };
}

// Runs of word characters, and runs of characters that are neither word characters nor white space.
std::vector<AlignedText> split_words(AlignedText text) {
  std::vector<AlignedText> words;
  const std::string_view bytes = text.text();
  enum class Kind { space, word, other } before = Kind::space;
  size_t begin = 0;
  const auto finish = [&](size_t end) {
    if (before != Kind::space) words.push_back(text.slice(begin, end));
    begin = end;
  };
  for (size_t offset = 0; offset < bytes.size();) {
    const size_t at = offset;
    const char32_t c = next_code_point(bytes, offset);
    const Kind kind = is_white_space(c) ? Kind::space : is_word_character(c) ? Kind::word : Kind::other;
    if (kind != before) finish(at);
    before = kind;
  }
  finish(bytes.size());
  return words;
}

Step read_pattern_split(const JsonValue& component) {
  const auto pattern = std::make_shared<TextPattern>(component.at("pattern"));
  const SplitBehavior behavior = read_behavior(component);
  const bool invert = component.flag("invert", false);
  const bool simple = behavior == SplitBehavior::isolated || behavior == SplitBehavior::removed;
  if (!simple && pattern->may_be_empty()) component.at("pattern").fail("must not match the empty string");
  return [pattern, behavior, invert](AlignedText text) {
    std::vector<TextPart> parts = pattern->parts_of(text.text());
    for (TextPart& part : parts) part.match ^= invert;
    return split(text, parts, behavior);
  };
}

Step read_metaspace(const JsonValue& component) {
  return metaspace(one_character(component.at("replacement")), read_prepend_scheme(component),
                   component.flag("split", true));
}

Step read_digits(const JsonValue& component) {
  const bool individual = component.flag("individual_digits", false);
  return split_by(is_numeric, individual ? SplitBehavior::isolated : SplitBehavior::contiguous);
}

Step byte_level_split(bool add_prefix_space, bool use_regex) {
  const auto pattern = std::make_shared<SplitPattern>(pcre2_pattern(kGpt2Pattern), SplitPattern::Keep::all);
  return [=](AlignedText text) {
    if (add_prefix_space && !text.text().starts_with(' ')) text.prepend(" ");
    std::vector<AlignedText> words;
    if (!use_regex) {
      words.push_back(std::move(text));
      return words;
    }
    pattern->split(text.text(), 0, true,
                   [&](const SplitPattern::Piece& piece) { words.push_back(text.slice(piece.begin, piece.end)); });
    return words;
  };
}

void add_bert(PreTokenizer& out) {
  out.steps.push_back(white_space_split());
  out.steps.push_back(split_by(is_punctuation, SplitBehavior::isolated));
}

void read_pre_tokenizer_part(const JsonValue& component, PreTokenizer& out) {
  if (out.byte_level) component.fail("nothing may follow ByteLevel, which turns text into bytes");
  const std::string type = component.text("type", "none");
  const bool first = out.steps.empty();
  if (type == "BertPreTokenizer") {
    add_bert(out);
  } else if (type == "Whitespace") {
    out.steps.push_back(split_words);
  } else if (type == "WhitespaceSplit") {
    out.steps.push_back(white_space_split());
  } else if (type == "Punctuation") {
    out.steps.push_back(
        split_by(is_punctuation, component.has("behavior") ? read_behavior(component) : SplitBehavior::isolated));
  } else if (type == "Digits") {
    out.steps.push_back(read_digits(component));
  } else if (type == "Split") {
    out.steps.push_back(read_pattern_split(component));
  } else if (type == "Metaspace") {
    out.steps.push_back(read_metaspace(component));
  } else if (type == "ByteLevel") {
    out.adds_space = component.flag("add_prefix_space", true);
    out.steps.push_back(byte_level_split(out.adds_space, component.flag("use_regex", true)));
    out.byte_level = true;
  } else {
    refuse_type(component, type,
                "BertPreTokenizer, Whitespace, WhitespaceSplit, Punctuation, Digits, Split, Metaspace, ByteLevel, "
                "Sequence");
  }
  if (first) out.removes_white_space = type == "BertPreTokenizer" || type.starts_with("Whitespace");
}

}  // namespace

const char* const kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

std::vector<AlignedText> PreTokenizer::split(AlignedText text, bool adds_space_here) const {
  std::vector<AlignedText> words;
  if (text.empty()) return words;
  words.push_back(std::move(text));
  for (const Step& step : steps) {
    const bool is_byte_level = byte_level && &step == &steps.back();
    std::vector<AlignedText> next;
    for (AlignedText& word : words) {
      if (adds_space_here && is_byte_level && !word.text().starts_with(' ')) word.prepend(" ");
      for (AlignedText& part : step(std::move(word))) {
        if (!part.empty()) next.push_back(std::move(part));
      }
    }
    words = std::move(next);
  }
  return words;
}

PreTokenizer bert_pre_tokenizer() {
  PreTokenizer out;
  add_bert(out);
  out.removes_white_space = true;
  return out;
}

PreTokenizer byte_level_pre_tokenizer(bool add_prefix_space) {
  return {.steps = {byte_level_split(add_prefix_space, true)}, .byte_level = true, .adds_space = add_prefix_space};
}

PrependScheme read_prepend_scheme(const JsonValue& component) {
  // Old files have a flag.
  if (!component.has("prepend_scheme"))
    return component.flag("add_prefix_space", true) ? PrependScheme::always : PrependScheme::never;
  const std::string name = component.at("prepend_scheme").text();
  if (name == "always") return PrependScheme::always;
  if (name == "first") return PrependScheme::first;
  if (name != "never") component.at("prepend_scheme").fail("must be always, first or never");
  return PrependScheme::never;
}

PreTokenizer::Step metaspace(char32_t replacement, PrependScheme scheme, bool splits) {
  std::string mark;
  append_utf8(mark, replacement);
  return [=](AlignedText text) {
    std::vector<AlignedText::Replacement> spaces;
    for (size_t at = text.text().find(' '); at != std::string::npos; at = text.text().find(' ', at + 1))
      spaces.push_back({at, at + 1});
    if (!spaces.empty()) text.replace(spaces, mark);
    const bool prepends = scheme == PrependScheme::always || (scheme == PrependScheme::first && text.begin() == 0);
    if (prepends && !text.text().starts_with(mark)) text.prepend(mark);
    if (!splits) return std::vector<AlignedText>{std::move(text)};
    const auto is_mark = [=](char32_t c) { return c == replacement; };
    return split(text, parts_by(text.text(), is_mark), SplitBehavior::merged_with_next);
  };
}

PreTokenizer::Step white_space_split() {
  return split_by(is_white_space, SplitBehavior::removed);
}

PreTokenizer read_pre_tokenizer(const JsonValue& component) {
  PreTokenizer out;
  for_each_component(component, "pretokenizers", [&](const JsonValue& part) { read_pre_tokenizer_part(part, out); });
  return out;
}

}  // namespace shardline
