// The model's answers to requests, in the form of transformers' pipelines and of the containers that run them.
#pragma once
#include <nlohmann/json.hpp>

#include "engine/serve/answers/invocation.h"
#include "engine/serve/answers/served_model.h"

namespace shardline {

// Each throws what ServedModel throws, and DataError for inputs and parameters that it does not take, naming them.

// {"label", "score"} of a text or {"text", "text_pair"}. Parameters: top_k, function_to_apply, truncation, max_length.
nlohmann::json classified_texts(const Invocation& request, const ServedModel& model);
// Entities with their places in the text. Parameters: aggregation_strategy, ignore_labels, stride.
nlohmann::json tagged_tokens(const Invocation& request, const ServedModel& model);
// {"score", "start", "end", "answer"} of {"question", "context"}. Parameters: top_k, doc_stride, max_answer_len,
// max_seq_len, handle_impossible_answer, align_to_words.
nlohmann::json answered_questions(const Invocation& request, const ServedModel& model);
// {"score", "token", "token_str", "sequence"} of texts with masked words. Parameters: top_k, targets, truncation,
// max_length.
nlohmann::json filled_masks(const Invocation& request, const ServedModel& model);
// {"generated_text"} of prompts. Parameters: max_new_tokens, max_length, min_new_tokens, do_sample, temperature, top_k,
// top_p, repetition_penalty, no_repeat_ngram_size, stop, seed, return_full_text, num_return_sequences.
nlohmann::json generated_texts(const Invocation& request, const ServedModel& model);

// Calls the one of these that matches the model's head.
nlohmann::json answer_of(const Invocation& request, const ServedModel& model);

}  // namespace shardline
