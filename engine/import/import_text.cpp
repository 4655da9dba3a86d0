// The text of an import for its user, and the documentation of all keys.
#include <algorithm>
#include <sstream>

#include "core/error.h"
#include "core/files/json_type.h"
#include "engine/import/import.h"

namespace shardline {
namespace {

using nlohmann::json;

constexpr size_t kWidestName = 56, kWidestValue = 36;

// Keeps the end of a name, which is the most informative part.
std::string short_name(const std::string& name) {
  if (name.size() <= kWidestName) return name;
  size_t begin = name.size() - kWidestName + 3;
  while (begin < name.size() && (name[begin] & 0xC0) == 0x80) ++begin;  // inside a character
  return "..." + name.substr(begin);
}

std::string shortened(const std::string& text, size_t width) {
  if (text.size() <= width) return text;
  size_t end = width - 3;
  while (end > 0 && (text[end] & 0xC0) == 0x80) --end;  // inside a character
  return text.substr(0, end) + "...";
}

// The text without control characters that a terminal would interpret.
std::string printable(std::string text) {
  std::ranges::replace_if(
      text, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return text;
}

struct Row {
  std::string name, value, fate;
};

std::string fate_of(const Outcome& outcome) {
  switch (outcome.fate) {
    case Fate::mapped:
      return cat("-> ", outcome.target, outcome.note.empty() ? "" : cat(" (", outcome.note, ")"));
    case Fate::neutral:
      return cat("no effect: ", outcome.note);
    case Fate::refused:
      return cat("REFUSED: ", outcome.note);
  }
  return "";
}

void write_rows(std::ostream& out, const std::vector<Row>& rows) {
  size_t names = 0, values = 0;
  for (const auto& row : rows) {
    names = std::max(names, row.name.size());
    values = std::max(values, row.value.size());
  }
  for (const auto& row : rows)
    out << row.name << std::string(names - row.name.size() + 2, ' ') << row.value
        << std::string(values - row.value.size() + 2, ' ') << row.fate << '\n';
}

std::string cell(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.replace(at, 1, "\\|");
  return text;
}

std::string goes_to(const ForeignKey& key) {
  if (key.inner) return "keys of " + key.inner().title;
  if (key.fate == Fate::refused) return "refused";
  return key.fate == Fate::neutral || key.target.empty() ? "no effect" : "`" + key.target + "`";
}

void write_table(std::ostream& out, const Vocabulary& vocabulary) {
  out << "\n### " << vocabulary.title << "\n\n"
      << vocabulary.introduction << "\n\n"
      << "| Key | Here | Note |\n| --- | --- | --- |\n";
  for (const auto& key : vocabulary.keys)
    out << "| `" << key.name << "` | " << goes_to(key) << " | " << cell(key.note) << " |\n";
}

}  // namespace

std::string import_table(const Import& import) {
  std::ostringstream out;
  std::vector<Row> rows;
  for (const auto& key : import.keys)
    rows.push_back({short_name(printable(key.name)), shortened(printable(json_shown(key.value)), kWidestValue),
                    printable(fate_of(key.outcome))});
  write_rows(out, rows);
  rows.clear();
  for (const auto& addition : import.additions)
    rows.push_back({addition.target, shortened(json_shown(addition.value), kWidestValue), addition.reason});
  if (!rows.empty()) out << "\nAdded:\n";
  write_rows(out, rows);
  return out.str();
}

std::string refusals_text(const Import& import) {
  std::string text;
  for (const auto* key : import.refused())
    text += cat(text.empty() ? "" : "\n", printable(key->name), " ", printable(json_shown(key->value)), ": ",
                printable(key->outcome.note));
  return text;
}

std::string import_reference_markdown() {
  std::ostringstream out;
  for (const auto* vocabulary :
       {&training_job_keys(), &estimator_keys(), &distribution_keys(), &model_parallel_keys(), &hyperparameter_keys(),
        &fsdp_keys(), &container_keys(), &deepspeed_keys(), &accelerate_keys(), &launcher_keys()})
    write_table(out, *vocabulary);
  return out.str();
}

}  // namespace shardline
