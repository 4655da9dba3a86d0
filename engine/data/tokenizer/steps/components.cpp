#include "engine/data/tokenizer/steps/components.h"

#include "core/error.h"
#include "engine/data/text/utf8.h"

namespace shardline {
namespace {

constexpr int kMostParts = 32;

void visit(const JsonValue& component, const char* list, int& parts, const std::function<void(const JsonValue&)>& use) {
  if (component.text("type", "none") == "Sequence") {
    for (const JsonValue& part : component.at(list).items()) visit(part, list, parts, use);
    return;
  }
  if (++parts > kMostParts) component.fail(cat("a tokenizer may have at most ", kMostParts, " ", list));
  use(component);
}

int value_of_base64(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

}  // namespace

void refuse_type(const JsonValue& component, const std::string& type, const char* supported) {
  component.fail(cat("the type '", type, "' is not supported (only ", supported, ")"));
}

void for_each_component(const JsonValue& component, const char* list,
                        const std::function<void(const JsonValue&)>& use) {
  int parts = 0;
  visit(component, list, parts, use);
}

char32_t one_character(const JsonValue& value) {
  const std::string text = value.text();
  size_t offset = 0;
  const char32_t character = text.empty() ? 0 : next_code_point(text, offset);
  if (text.empty() || offset < text.size()) value.fail("must be one character");
  return character;
}

std::optional<std::string> bytes_of_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text.substr(0, text.size() - padding)) {
    const int value = value_of_base64(c);
    if (value < 0) return std::nullopt;
    bits = bits << 6 | value;
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += bits >> count;
  }
  return bytes;
}

}  // namespace shardline
