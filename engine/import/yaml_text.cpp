#include "engine/import/yaml_text.h"

#include "core/error.h"

#ifdef SHARDLINE_YAML
#include <yaml.h>

#include <memory>

namespace shardline {
namespace {

using nlohmann::json;

constexpr int kDeepest = 32;

// Reads one document from left to right.
class YamlReader {
 public:
  YamlReader(const std::string& text, const std::string& file) : file_(file) {
    if (!yaml_parser_initialize(&parser_)) throw ConfigError(cat(file, ": not enough memory to read this file"));
    yaml_parser_set_encoding(&parser_, YAML_UTF8_ENCODING);
    const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
    yaml_parser_set_input_string(&parser_, bytes, text.size());
  }
  YamlReader(const YamlReader&) = delete;
  ~YamlReader() { yaml_parser_delete(&parser_); }

  json read() {
    expect(YAML_STREAM_START_EVENT);
    expect(YAML_DOCUMENT_START_EVENT);
    json value = value_of(*next(), 0);
    expect(YAML_DOCUMENT_END_EVENT);
    if (next()->type != YAML_STREAM_END_EVENT) fail("there are several documents", "keep one of them");
    return value;
  }

 private:
  struct Delete {
    void operator()(yaml_event_t* event) const {
      yaml_event_delete(event);
      delete event;
    }
  };
  using Event = std::unique_ptr<yaml_event_t, Delete>;

  [[noreturn]] void fail(const std::string& rule, const std::string& advice) const {
    throw ConfigError(cat(file_, ":", parser_.mark.line + 1, ":", parser_.mark.column + 1, ": ", rule, "; ", advice));
  }

  Event next() {
    Event event(new yaml_event_t{});
    if (!yaml_parser_parse(&parser_, event.get()))
      throw ConfigError(cat(file_, ":", parser_.problem_mark.line + 1, ":", parser_.problem_mark.column + 1, ": ",
                            parser_.problem ? parser_.problem : "this is not YAML", "; write it as accelerate does"));
    return event;
  }

  void expect(yaml_event_type_t type) {
    if (next()->type != type) fail("this is not a YAML document", "write it as accelerate does");
  }

  static std::string text_of(const yaml_event_t& event) {
    const auto& scalar = event.data.scalar;
    return {scalar.value, scalar.value + scalar.length};
  }

  void refuse_names(const unsigned char* anchor, const unsigned char* tag) const {
    if (anchor || tag) fail("anchors and tags are not supported", "write the value itself");
  }

  json value_of(const yaml_event_t& event, int depth) {
    if (depth > kDeepest) fail(cat("there are more than ", kDeepest, " levels"), "leave some of them out");
    switch (event.type) {
      case YAML_SCALAR_EVENT:
        refuse_names(event.data.scalar.anchor, event.data.scalar.tag);
        return scalar(event);
      case YAML_SEQUENCE_START_EVENT:
        refuse_names(event.data.sequence_start.anchor, event.data.sequence_start.tag);
        return list(depth);
      case YAML_MAPPING_START_EVENT:
        refuse_names(event.data.mapping_start.anchor, event.data.mapping_start.tag);
        return map(depth);
      default:
        fail("YAML aliases are not supported", "write the value itself");
    }
  }

  static json scalar(const yaml_event_t& event) {
    const std::string text = text_of(event);
    if (event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE) return text;
    if (text.empty() || text == "null" || text == "~") return nullptr;
    if (text == "true" || text == "false") return text == "true";
    return text;
  }

  json list(int depth) {
    json items = json::array();
    for (Event event = next(); event->type != YAML_SEQUENCE_END_EVENT; event = next())
      items.push_back(value_of(*event, depth + 1));
    return items;
  }

  json map(int depth) {
    json object = json::object();
    for (Event event = next(); event->type != YAML_MAPPING_END_EVENT; event = next()) {
      if (event->type != YAML_SCALAR_EVENT) fail("a key is not a scalar", "write it as accelerate does");
      const std::string key = text_of(*event);
      if (object.contains(key)) fail(cat("the key ", json(key).dump(), " is given twice"), "keep one of them");
      object[key] = value_of(*next(), depth + 1);
    }
    return object;
  }

  const std::string& file_;
  yaml_parser_t parser_;
};

}  // namespace

json json_of_yaml(const std::string& text, const std::string& file) {
  return YamlReader(text, file).read();
}

}  // namespace shardline

#else

namespace shardline {

nlohmann::json json_of_yaml(const std::string&, const std::string& file) {
  throw ConfigError(cat(file, ": this program was built without libyaml; write the file as JSON"));
}

}  // namespace shardline

#endif
