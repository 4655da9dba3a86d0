#include "models/files/hf_config_reader.h"

#include <algorithm>

#include "core/error.h"
#include "core/files/json_reader.h"

namespace shardline {
namespace {

using nlohmann::json;

// Keys that any config may have in addition to its family's keys, with no effect here: transformers' common attributes,
// of version 5 and earlier.
const std::vector<std::string> kCommonKeys = {"_name_or_path",
                                              "bos_token_id",
                                              "chunk_size_feed_forward",
                                              "decoder_start_token_id",
                                              "eos_token_id",
                                              "finetuning_task",
                                              "is_decoder",
                                              "model_type",
                                              "output_attentions",
                                              "output_hidden_states",
                                              "pad_token_id",
                                              "prefix",
                                              "return_dict",
                                              "sep_token_id",
                                              "task_specific_params",
                                              "tokenizer_class",
                                              "torchscript",
                                              "transformers_version",
                                              "use_cache"};

// The names that different families use for the same key.
const std::vector<std::vector<std::string>> kSameKeys = {
    {"attn_pdrop", "attention_dropout", "attention_probs_dropout_prob"},
    {"resid_pdrop", "resid_dropout", "hidden_dropout_prob", "dropout"},
    {"embd_pdrop", "embed_dropout"},
    {"activation_function", "hidden_act", "activation"},
    {"layer_norm_epsilon", "layer_norm_eps"},
    {"n_inner", "intermediate_size", "hidden_dim", "ffn_dim"},
    {"n_embd", "hidden_size", "dim", "d_model"},
    {"n_layer", "num_layers", "n_layers", "num_hidden_layers"},
    {"n_head", "num_heads", "n_heads", "num_attention_heads"},
    {"n_positions", "max_position_embeddings", "n_ctx"}};

// The first of `known` that is another name of the key; empty if none is.
std::string name_in(const std::set<std::string>& known, const std::string& key) {
  for (const auto& names : kSameKeys) {
    if (std::ranges::find(names, key) == names.end()) continue;
    const auto found = std::ranges::find_if(names, [&](const std::string& name) { return known.contains(name); });
    if (found != names.end()) return *found;
  }
  return "";
}

// Small enough that the bytes of a tensor with two such sizes do not overflow.
constexpr int64_t kLargestSize = 1 << 24;

}  // namespace

std::string mistakes_text(const std::vector<HfConfigMistake>& mistakes, const std::string& file,
                          const std::string& overrides) {
  std::string text;
  for (const auto& mistake : mistakes)
    text += (text.empty() ? "" : "\n") +
            json_mistake(cat(mistake.of_task      ? ""
                             : mistake.overridden ? overrides
                                                  : file,
                             "/", mistake.key),
                         mistake.rule, mistake.value.is_discarded() ? nullptr : &mistake.value, mistake.advice);
  return text;
}

HfConfigReader::HfConfigReader(const json& file, const json& overrides)
    : file_(file), overrides_(overrides), merged_(file) {
  merged_.update(overrides);
  accept(kCommonKeys);
  accept_only("gradient_checkpointing", {false}, "set smp_options.activation_checkpointing");
  accept_only("use_bfloat16", {false}, "set training.bf16");
  accept_only("is_encoder_decoder", {false}, "leave it out: this model has no separate encoder");
  for (const char* dtype : {"dtype", "torch_dtype"})
    accept_only(dtype, {"float32"}, "set training.bf16 or training.fp16, or runtime.dtype");
}

const json* HfConfigReader::find_typed(const char* key, const char* alias, const JsonType& type) {
  const Place* found = find(key, alias);
  if (!found) return nullptr;
  const auto mistake = type.mistake(*found->value);
  if (mistake) complain({key}, mistake->rule, mistake->advice);
  return mistake ? nullptr : found->value;
}

void HfConfigReader::size(const char* key, const char* alias, int64_t& value, std::optional<int64_t> null) {
  JsonType type = json_integer(1, kLargestSize);
  type.nullable = null.has_value();
  if (const json* given = find_typed(key, alias, type)) value = given->is_null() ? *null : given->get<int64_t>();
}

void HfConfigReader::number(const char* key, double low, double high, double& value) {
  if (const json* given = find_typed(key, nullptr, json_number(low, high))) value = given->get<double>();
}

void HfConfigReader::flag(const char* key, bool& value) {
  if (const json* given = find_typed(key, nullptr, json_boolean())) value = given->get<bool>();
}

void HfConfigReader::text(const char* key, std::string& value) {
  if (const json* given = find_typed(key, nullptr, json_text())) value = given->get<std::string>();
}

void HfConfigReader::activation(const char* key, Activation& value) {
  std::string name;
  text(key, name);
  if (name.empty()) return;
  try {
    value = activation_from_name(name);
  } catch (const ConfigError& error) {
    complain({key}, error.what());
  }
}

void HfConfigReader::any(const char* key, const JsonType& type, json& value) {
  if (const json* given = find_typed(key, nullptr, type)) value = *given;
}

void HfConfigReader::accept(const std::vector<std::string>& keys) {
  known_.insert(keys.begin(), keys.end());
  for (const auto& key : keys)
    if (key != "model_type" && overrides_.contains(key)) only_saved_.insert(key);
}

void HfConfigReader::accept_only(const char* key, const std::vector<json>& values, const std::string& advice) {
  accept({key});
  const auto given = overrides_.find(key);
  if (given == overrides_.end() || given->is_null() || std::find(values.begin(), values.end(), *given) != values.end())
    return;
  fail({key, true, &*given}, "has no effect here", advice);
}

void HfConfigReader::complain(const std::vector<std::string>& keys, const std::string& rule,
                              const std::string& advice) {
  const Place* where = nullptr;
  for (const auto& key : keys) {
    if (wrong_.contains(key)) return;
    const auto found = places_.find(key);
    if (found == places_.end()) continue;
    if (!where || (found->second.overridden && !where->overridden)) where = &found->second;
  }
  if (keys.size() == 1) wrong_.insert(keys.front());
  static const json kNotThere(json::value_t::discarded);
  fail(where ? *where : Place{keys.front(), false, &kNotThere}, rule, advice);
}

void HfConfigReader::finish() {
  std::vector<std::string> names;
  for (const auto& key : known_)
    if (std::find(kCommonKeys.begin(), kCommonKeys.end(), key) == kCommonKeys.end()) names.push_back(key);
  for (const auto& [key, value] : overrides_.items()) {
    if (known_.contains(key)) continue;
    std::string meant = name_in(known_, key);
    if (meant.empty()) meant = nearest_word(key, names);
    fail({key, true, &value}, "unknown key",
         meant.empty() ? "use a key of the config.json of this model family" : cat("did you mean ", meant, "?"));
  }
}

const HfConfigReader::Place* HfConfigReader::find(const std::string& key, const char* alias) {
  known_.insert(key);
  only_saved_.erase(key);
  if (alias) known_.insert(alias);
  Place place;
  for (const json* source : {&overrides_, &file_})
    for (const std::string& name : {key, std::string(alias ? alias : key)}) {
      const auto found = source->find(name);
      if (place.value || found == source->end()) continue;
      place = {name, source == &overrides_, &*found};
      if (const auto other = alias ? source->find(alias) : source->end();
          other != source->end() && *other != *place.value)
        fail({alias, place.overridden, &*other}, cat("contradicts ", key, " ", place.value->dump()),
             cat(alias, " is another name of ", key, "; keep one of them"));
    }
  if (!place.value) return nullptr;
  if (alias) merged_.erase(alias);
  merged_[key] = *place.value;
  return &(places_[key] = place);
}

void HfConfigReader::fail(const Place& place, const std::string& rule, const std::string& advice) {
  mistakes_.push_back({place.spelling, rule, advice, *place.value, place.overridden});
}

}  // namespace shardline
