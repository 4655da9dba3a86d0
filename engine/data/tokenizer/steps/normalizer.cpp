#include "engine/data/tokenizer/steps/normalizer.h"

#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/files/json_data.h"
#include "engine/data/text/characters.h"
#include "engine/data/text/charsmap.h"
#include "engine/data/text/normal_form.h"
#include "engine/data/text/utf8.h"
#include "engine/data/tokenizer/steps/components.h"
#include "engine/data/tokenizer/steps/text_pattern.h"

namespace shardline {
namespace {

// Edits a text character by character: `append` adds the result of a character to the edits.
template <class Append>
void edit_characters(AlignedText& text, const Append& append) {
  const std::string_view bytes = text.text();
  std::vector<CharacterEdit> edits;
  edits.reserve(bytes.size());
  for (size_t offset = 0; offset < bytes.size();) append(next_code_point(bytes, offset), edits);
  text.edit(edits);
}

// Removes characters; the others keep their places.
template <class Removed>
void remove_characters(AlignedText& text, const Removed& removed) {
  const std::string_view bytes = text.text();
  std::vector<CharacterEdit> edits;
  size_t at_start = 0;
  for (size_t offset = 0; offset < bytes.size();) {
    const char32_t character = next_code_point(bytes, offset);
    if (!removed(character)) {
      edits.push_back({character, 0});
    } else if (edits.empty()) {
      ++at_start;
    } else {
      --edits.back().change;
    }
  }
  text.edit(edits, at_start);
}

void make_lower(AlignedText& text) {
  edit_characters(text, [](char32_t character, std::vector<CharacterEdit>& edits) {
    const std::u32string lower = lower_case(character);
    for (size_t i = 0; i < lower.size(); ++i) edits.push_back({lower[i], i > 0 ? 1 : 0});
  });
}

void clean(AlignedText& text) {
  remove_characters(text, is_removed_by_bert);
  edit_characters(text, [](char32_t character, std::vector<CharacterEdit>& edits) {
    edits.push_back({is_white_space(character) ? U' ' : character, 0});
  });
}

void separate_ideographs(AlignedText& text) {
  edit_characters(text, [](char32_t character, std::vector<CharacterEdit>& edits) {
    if (!is_ideograph_of_bert(character)) return edits.push_back({character, 0});
    edits.insert(edits.end(), {{U' ', 0}, {character, 1}, {U' ', 1}});
  });
}

void strip(AlignedText& text, bool left, bool right) {
  const std::string_view bytes = text.text();
  std::vector<CharacterEdit> edits;
  size_t at_start = 0;
  size_t kept = 0;  // edits up to the last character that is not white space
  for (size_t offset = 0; offset < bytes.size();) {
    const char32_t character = next_code_point(bytes, offset);
    const bool space = is_white_space(character);
    if (left && space && edits.empty()) {
      ++at_start;
      continue;
    }
    edits.push_back({character, 0});
    if (!right || !space) kept = edits.size();
  }
  edits.resize(kept);
  text.edit(edits, at_start);
}

Normalizer read_replace(const JsonValue& component) {
  const auto pattern = std::make_shared<TextPattern>(component.at("pattern"));
  if (pattern->may_be_empty()) component.at("pattern").fail("must not match the empty string");
  return [pattern, content = component.at("content").text()](AlignedText& text) {
    std::vector<AlignedText::Replacement> ranges;
    for (const auto& [begin, end, match] : pattern->parts_of(text.text())) {
      if (match) ranges.push_back({begin, end});
    }
    if (!ranges.empty()) text.replace(ranges, content);
  };
}

Normalizer read_bert(const JsonValue& component) {
  BertNormalizerOptions options;
  options.clean_text = component.flag("clean_text", true);
  options.handle_chinese_chars = component.flag("handle_chinese_chars", true);
  options.lowercase = component.flag("lowercase", true);
  if (component.has("strip_accents")) options.strip_accents = component.flag("strip_accents", false);
  return bert_normalizer(options);
}

Normalizer read_charsmap(const JsonValue& component) {
  const JsonValue table = component.at("precompiled_charsmap");
  const auto bytes = bytes_of_base64(table.text());
  if (!bytes) table.fail("must be base64");
  const auto map = std::make_shared<CharsMap>(*bytes);
  return [map](AlignedText& text) { map->apply(text); };
}

Normalizer form(NormalForm which) {
  return [which](AlignedText& text) { normalize(text, which); };
}

Normalizer read_normalizer_part(const JsonValue& component) {
  const std::string type = component.text("type", "none");
  if (type == "BertNormalizer") return read_bert(component);
  if (type == "Lowercase") return make_lower;
  if (type == "NFC") return form(NormalForm::nfc);
  if (type == "NFD") return form(NormalForm::nfd);
  if (type == "NFKC") return form(NormalForm::nfkc);
  if (type == "NFKD") return form(NormalForm::nfkd);
  if (type == "StripAccents") return [](AlignedText& text) { remove_characters(text, is_mark); };
  if (type == "Replace") return read_replace(component);
  if (type == "Precompiled") return read_charsmap(component);
  if (type == "Prepend") {
    return [content = component.at("prepend").text()](AlignedText& text) { text.prepend(content); };
  }
  if (type == "Strip") {
    const bool left = component.flag("strip_left", true);
    const bool right = component.flag("strip_right", true);
    return [left, right](AlignedText& text) { strip(text, left, right); };
  }
  refuse_type(component, type,
              "BertNormalizer, Lowercase, NFC, NFD, NFKC, NFKD, StripAccents, Strip, Replace, Prepend, Precompiled, "
              "Sequence");
}

}  // namespace

Normalizer bert_normalizer(const BertNormalizerOptions& options) {
  return [options](AlignedText& text) {
    if (options.clean_text) clean(text);
    if (options.handle_chinese_chars) separate_ideographs(text);
    if (options.strip_accents.value_or(options.lowercase)) {
      normalize(text, NormalForm::nfd);
      remove_characters(text, is_accent_of_bert);
    }
    if (options.lowercase) make_lower(text);
  };
}

Normalizer read_normalizer(const JsonValue& component) {
  std::vector<Normalizer> steps;
  for_each_component(component, "normalizers",
                     [&](const JsonValue& part) { steps.push_back(read_normalizer_part(part)); });
  return [steps](AlignedText& text) {
    for (const Normalizer& step : steps) {
      if (text.empty()) return;
      step(text);
    }
  };
}

}  // namespace shardline
