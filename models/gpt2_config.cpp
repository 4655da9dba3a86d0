#include <nlohmann/json.hpp>

#include "core/error.h"
#include "models/gpt2.h"

namespace shardline {
namespace {

using nlohmann::json;

// Reads one HF config: keys under their own or their generic name, all errors at once.
class HfConfigReader {
 public:
  HfConfigReader(const json& config, std::string where) : config_(config), where_(std::move(where)) {
    if (!config.is_object()) throw ConfigError(cat(where_, ": must be a JSON object; got ", config.dump()));
  }

  void size(const char* key, const char* alias, int64_t& value, bool nullable = false) {
    const json* found = find(key, alias);
    if (!found || (nullable && found->is_null())) return;
    if (!found->is_number_integer() || found->get<int64_t>() < 1 || found->get<int64_t>() > (int64_t{1} << 40))
      return complain(key, "must be an integer of at least 1", *found);
    value = found->get<int64_t>();
  }
  void number(const char* key, double low, double high, double& value) {
    const json* found = find(key, nullptr);
    if (!found) return;
    if (!found->is_number() || found->get<double>() < low || found->get<double>() > high)
      return complain(key, cat("must be a number from ", low, " to ", high), *found);
    value = found->get<double>();
  }
  void flag(const char* key, bool& value) {
    const json* found = find(key, nullptr);
    if (!found) return;
    if (!found->is_boolean()) return complain(key, "must be true or false", *found);
    value = found->get<bool>();
  }
  void activation(const char* key, Activation& value) {
    const json* found = find(key, nullptr);
    if (!found) return;
    if (!found->is_string()) return complain(key, "must be the name of an activation", *found);
    value = activation_from_name(found->get<std::string>());
  }
  void complain(const std::string& key, const std::string& rule, const json& value) {
    errors_ += cat("\n  ", where_, ": /", key, ": ", rule, "; got ", value.dump());
  }
  void finish() const {
    if (!errors_.empty()) throw ConfigError("the model's config cannot be used:" + errors_);
  }

 private:
  const json* find(const char* key, const char* alias) const {
    if (config_.contains(key)) return &config_.at(key);
    if (alias && config_.contains(alias)) return &config_.at(alias);
    return nullptr;
  }

  const json& config_;
  std::string where_, errors_;
};

}  // namespace

Gpt2Config gpt2_config(const json& config, const std::string& where) {
  Gpt2Config c;
  HfConfigReader read(config, where);
  read.size("vocab_size", nullptr, c.vocab_size);
  read.size("n_positions", "max_position_embeddings", c.n_positions);
  read.size("n_embd", "hidden_size", c.n_embd);
  read.size("n_layer", "num_hidden_layers", c.n_layer);
  read.size("n_head", "num_attention_heads", c.n_head);
  read.size("n_inner", "intermediate_size", c.n_inner, /*nullable=*/true);
  read.activation("activation_function", c.activation_function);
  read.number("resid_pdrop", 0, 0.999, c.resid_pdrop);
  read.number("embd_pdrop", 0, 0.999, c.embd_pdrop);
  read.number("attn_pdrop", 0, 0.999, c.attn_pdrop);
  read.number("layer_norm_epsilon", 0, 1, c.layer_norm_epsilon);
  read.number("initializer_range", 0, 10, c.initializer_range);
  read.flag("scale_attn_weights", c.scale_attn_weights);
  read.flag("scale_attn_by_inverse_layer_idx", c.scale_attn_by_inverse_layer_idx);
  read.flag("tie_word_embeddings", c.tie_word_embeddings);
  bool cross_attention = false;
  read.flag("add_cross_attention", cross_attention);
  if (cross_attention)
    read.complain("add_cross_attention", "must be false: this is a decoder without an encoder", true);
  if (c.n_embd % c.n_head != 0) read.complain("n_embd", cat("must be a multiple of n_head (", c.n_head, ")"), c.n_embd);
  read.finish();
  return c;
}

}  // namespace shardline
