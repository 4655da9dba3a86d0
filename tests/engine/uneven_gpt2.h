// A small GPT-2, GPT-J, GPT-Neo or encoder whose numbers of heads, inner features and words are not divisible by any
// number of ranks.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace shardline {

inline nlohmann::json uneven_gpt2(int words = 61, double dropout = 0.1, bool tied = true) {
  return {{"model_type", "gpt2"},
          {"n_layer", 6},
          {"n_head", 5},
          {"n_embd", 40},
          {"n_inner", 70},
          {"vocab_size", words},
          {"n_positions", 16},
          {"resid_pdrop", dropout},
          {"embd_pdrop", dropout},
          {"attn_pdrop", dropout},
          {"tie_word_embeddings", tied}};
}

inline nlohmann::json uneven_gptj(double dropout = 0.1) {
  nlohmann::json config = uneven_gpt2(61, dropout, false);
  config.update({{"model_type", "gptj"}, {"rotary_dim", 6}});
  return config;
}

// Its windows are shorter than its sequences.
inline nlohmann::json uneven_gpt_neo(double dropout = 0.1) {
  return {{"model_type", "gpt_neo"},
          {"num_layers", 6},
          {"attention_types", nlohmann::json::parse(R"([[["global", "local"], 3]])")},
          {"num_heads", 5},
          {"hidden_size", 40},
          {"intermediate_size", 70},
          {"vocab_size", 61},
          {"max_position_embeddings", 16},
          {"window_size", 3},
          {"resid_dropout", dropout},
          {"embed_dropout", dropout},
          {"attention_dropout", dropout}};
}

// "bert", "roberta", "xlm-roberta" or "distilbert".
inline nlohmann::json uneven_encoder(const std::string& type, double dropout = 0.1) {
  if (type == "distilbert")
    return {{"model_type", type},
            {"n_layers", 6},
            {"n_heads", 5},
            {"dim", 40},
            {"hidden_dim", 70},
            {"vocab_size", 61},
            {"max_position_embeddings", 16},
            {"dropout", dropout},
            {"attention_dropout", dropout},
            {"seq_classif_dropout", dropout},
            {"qa_dropout", dropout}};
  return {{"model_type", type},
          {"num_hidden_layers", 6},
          {"num_attention_heads", 5},
          {"hidden_size", 40},
          {"intermediate_size", 70},
          {"vocab_size", 61},
          {"max_position_embeddings", type == "bert" ? 16 : 18},  // two of them are for padding
          {"hidden_dropout_prob", dropout},
          {"attention_probs_dropout_prob", dropout}};
}

// An encoder that predicts next words.
inline nlohmann::json uneven_decoder_of(const std::string& encoder, double dropout = 0.1) {
  nlohmann::json config = uneven_encoder(encoder, dropout);
  config["is_decoder"] = true;
  return config;
}

}  // namespace shardline
