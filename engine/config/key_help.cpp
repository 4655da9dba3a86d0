#include "engine/config/key_help.h"

#include <algorithm>
#include <cctype>
#include <sstream>
#include <vector>

#include "core/error.h"
#include "engine/config/key_texts.h"
#include "engine/config/rules/needs.h"

namespace shardline {
namespace {

using nlohmann::json;

constexpr size_t kColumns = 100;
constexpr size_t kMostNearNames = 8;

struct Named {
  const Section* section;
  const Key* key;
};

std::string joined(const std::vector<std::string>& words, const std::string& between) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

// The words of a text in lines of kColumns characters; the first line follows `label`, the others are indented alike.
std::string paragraph(const std::string& label, const std::string& text) {
  std::istringstream words(text);
  std::string out = label, word;
  size_t column = label.size();
  bool starts_line = true;
  while (words >> word) {
    if (!starts_line && column + 1 + word.size() > kColumns) {
      out += "\n" + std::string(label.size(), ' ');
      column = label.size();
      starts_line = true;
    }
    out += (starts_line ? "" : " ") + word;
    column += word.size() + !starts_line;
    starts_line = false;
  }
  return out + "\n";
}

std::string section_title(const Section& section) {
  return section.name.empty() ? "top level" : section.name;
}

// "/training/Max-Steps" -> "training.max_steps"
std::string plain_name(const std::string& name) {
  std::string plain = name.substr(std::min(name.find_first_not_of("/-"), name.size()));
  for (char& c : plain) {
    const unsigned char byte = c;
    c = c == '/' ? '.' : c == '-' ? '_' : std::tolower(byte);
  }
  return plain;
}

std::vector<Named> keys_with_name(const std::string& name) {
  std::vector<Named> found;
  for (const auto& section : config_sections())
    for (const auto& key : section.keys)
      for (const auto& spelling : key.spellings())
        if (spelling == name || (!section.name.empty() && section.name + "." + spelling == name))
          found.push_back({&section, &key});
  return found;
}

const Section* section_with_name(const std::string& name) {
  for (const auto& section : config_sections())
    if (!section.name.empty() && section.name == name) return &section;
  return nullptr;
}

// The key in the config, as an entry of the file and on the command line.
std::string example_text(const Section& section, const Key& key) {
  const json value = example_value(section, key);
  if (value.is_null()) return "";
  const std::string entry = cat('"', key.name, "\": ", value.dump());
  const std::string in_file = section.name.empty() ? entry : cat('"', section.name, "\": { ", entry, " }");
  const std::string word = value.is_string() ? value.get<std::string>() : value.dump();
  const bool quoted = word.find_first_of(" \"*[{") != std::string::npos;
  return cat("  example  ", in_file, "\n           --set ", quoted ? "'" : "", full_name(section, key), "=", word,
             quoted ? "'" : "", "\n");
}

// Why the key has no effect if nothing else is set, and what to set.
std::vector<std::string> conditions_of(const Section& section, const Key& key) {
  const json value = example_value(section, key);
  const Key& stored = key.writes.empty() ? key : key_named(key.writes);
  const json meaning = key.writes.empty() ? value : key.meaning_of(value);
  if (meaning.is_null() || !stored.store) return {};
  Config config;
  stored.store(config, meaning);
  return reasons_without_effect(full_name(section, key), config);
}

std::string help_of(const Section& section, const Key& key) {
  std::string text = full_name(section, key) + "\n\n" + paragraph("  ", plain_meaning(key)) + "\n";
  if (key.status == Status::honoured) {
    text += paragraph("  value    ", type_text(key) + (key.type.nullable ? ", or null" : ""));
  } else {
    text += paragraph("  status   ", key.status == Status::no_effect ? "accepted, but has no effect"
                                                                     : "not supported; only the default is accepted");
  }
  text += paragraph("  default  ", default_text(key));
  if (!key.aliases.empty()) text += paragraph("  also     ", joined(key.aliases, ", "));
  if (!key.writes.empty()) text += paragraph("  sets     ", key.writes);
  for (const auto& condition : conditions_of(section, key))
    text += paragraph("  note     ", "has " + without_markdown(condition));
  return text + example_text(section, key);
}

std::string help_of(const Section& section) {
  std::string text = paragraph(section_title(section) + ": ", without_markdown(section.meaning)) + "\n";
  std::vector<std::string> others;
  for (const auto& key : section.keys) {
    if (key.status == Status::honoured) {
      text += paragraph("  ", cat(key.name, ": ", type_text(key), "; default ", default_text(key)));
    } else {
      others.push_back(key.name);
    }
  }
  if (!others.empty()) text += "\n" + paragraph("  ", "Without effect or not supported: " + joined(others, ", "));
  return text + "\nshardline help " + (section.name.empty() ? "" : section.name + ".") + "KEY explains one of them.\n";
}

// Names that contain the word or, if there are none, names that differ from it in few letters.
std::vector<std::string> near_names(const std::string& word) {
  std::vector<std::string> names, near;
  for (const auto& section : config_sections())
    for (const auto& key : section.keys)
      if (key.status == Status::honoured) names.push_back(full_name(section, key));
  const std::string last = word.substr(word.rfind('.') + 1);
  if (last.size() > 2)
    for (const auto& name : names)
      if (name.find(last) != std::string::npos && near.size() < kMostNearNames) near.push_back(name);
  if (!near.empty()) return near;
  std::vector<std::string> keys;
  for (const auto& name : names) keys.push_back(name.substr(name.rfind('.') + 1));
  for (std::string key; near.size() < 3 && !(key = nearest_word(last, keys)).empty(); std::erase(keys, key))
    for (const auto& name : names)
      if (name.substr(name.rfind('.') + 1) == key) near.push_back(name);
  return near;
}

}  // namespace

std::string sections_help() {
  std::string text = "The sections of a config (docs/config.md has all of them on one page):\n\n";
  for (const auto& section : config_sections()) {
    const auto honoured =
        std::ranges::count_if(section.keys, [](const Key& key) { return key.status == Status::honoured; });
    std::string label = "  " + section_title(section);
    label.resize(std::max<size_t>(label.size() + 2, 16), ' ');
    text += paragraph(label, section.name.empty()
                                 ? cat(honoured, " keys outside the sections: task, output_dir, cluster, profile")
                                 : cat(honoured, " keys. ", without_markdown(section.meaning)));
  }
  return text +
         "\nshardline help SECTION lists the keys of a section, shardline help KEY explains one, for example\n"
         "shardline help smp_options.microbatches. shardline schema prints a JSON schema for editors.\n";
}

bool is_key_or_section(const std::string& name) {
  const std::string plain = plain_name(name);
  return section_with_name(plain) || !keys_with_name(plain).empty() || spelling_hints().contains(plain);
}

std::string key_help(const std::string& name) {
  const std::string plain = plain_name(name);
  if (plain == "top_level" || plain == "top level") return help_of(config_sections().front());
  std::string text;
  if (const Section* section = section_with_name(plain)) text = help_of(*section);
  for (const auto& [section, key] : keys_with_name(plain)) text += (text.empty() ? "" : "\n") + help_of(*section, *key);
  if (!text.empty()) return text;
  if (const auto hint = spelling_hints().find(plain); hint != spelling_hints().end()) {
    const std::string target = hint->second.substr(0, hint->second.find(' '));
    text = cat(name, " is ", hint->second, " here.\n");
    for (const auto& [section, key] : keys_with_name(target)) text += "\n" + help_of(*section, *key);
    return text;
  }
  const auto near = near_names(plain);
  throw ConfigError(cat("there is no config key \"", name, "\"; ",
                        near.empty()       ? "shardline help lists the sections"
                        : near.size() == 1 ? "the nearest is " + near.front()
                                           : "the nearest are " + joined(near, ", ")));
}

}  // namespace shardline
