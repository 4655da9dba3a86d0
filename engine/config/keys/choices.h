// Keys whose value is one of a few words, as enums. A table of words for each enum is the only list of them: reading,
// the words that a key accepts, docs/config.md and the resolved config follow from it.
#pragma once
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <vector>

#include "core/error.h"
#include "core/files/json_type.h"
#include "engine/data/text/data_format.h"
#include "engine/data/text/packing.h"
#include "optim/update/learning_rate.h"
#include "optim/update/plateau_rate.h"

namespace shardline {

// Data sets whose columns, labels and metrics are known: those of GLUE, and amazon_polarity.
enum class DataName { cola, mnli, mrpc, qnli, qqp, rte, sst2, stsb, wnli, amazon_polarity };
enum class ModelInit { pretrained, random };
// The order of an epoch's samples. group_by_length: at random, but samples of about the same length share a batch.
enum class SamplingStrategy { random, sequential, group_by_length };
// The first two are the same AdamW. added: an optimizer that a program has added.
enum class Optim { adamw_torch_fused, adamw_torch, adam, sgd, adafactor, added };
enum class Tracker { tensorboard, none };  // where metrics are also written
enum class LoggingStrategy { no, steps, epoch };
enum class EvalStrategy { no, steps, epoch };
enum class SaveStrategy { no, steps, epoch, best };  // all save the final model
// memory: the T ranks split the rows at layer borders (sequence parallelism); speed: each of them keeps all rows.
enum class Optimize { memory, speed };
// checkpointed: the inputs of recomputed groups; all: everything that is kept between forward and backward.
enum class OffloadScope { checkpointed, all };
enum class DeviceChoice { automatic, cpu, cuda };
enum class CommunicatorChoice { automatic, mpi, nccl, threads, local };
enum class FullType { float32, float64 };  // for values that are not in half precision

template <class Choice>
struct ChoiceWord {
  Choice choice;
  const char* text;
};
// The table of an enum; empty: it has none.
template <class Choice>
inline constexpr std::array<ChoiceWord<Choice>, 0> kWords = {};

template <>
inline constexpr auto kWords<DataName> = std::to_array<ChoiceWord<DataName>>({{DataName::cola, "cola"},
                                                                              {DataName::mnli, "mnli"},
                                                                              {DataName::mrpc, "mrpc"},
                                                                              {DataName::qnli, "qnli"},
                                                                              {DataName::qqp, "qqp"},
                                                                              {DataName::rte, "rte"},
                                                                              {DataName::sst2, "sst2"},
                                                                              {DataName::stsb, "stsb"},
                                                                              {DataName::wnli, "wnli"},
                                                                              {DataName::amazon_polarity,
                                                                               "amazon_polarity"}});
template <>
inline constexpr auto kWords<ModelInit> = std::to_array<ChoiceWord<ModelInit>>({{ModelInit::pretrained, "pretrained"},
                                                                                {ModelInit::random, "random"}});
template <>
inline constexpr auto kWords<DataFormat> = std::to_array<ChoiceWord<DataFormat>>({{DataFormat::automatic, "auto"},
                                                                                  {DataFormat::text, "text"},
                                                                                  {DataFormat::jsonl, "jsonl"},
                                                                                  {DataFormat::json, "json"},
                                                                                  {DataFormat::csv, "csv"},
                                                                                  {DataFormat::tsv, "tsv"},
                                                                                  {DataFormat::conll, "conll"},
                                                                                  {DataFormat::parquet, "parquet"},
                                                                                  {DataFormat::arrow, "arrow"},
                                                                                  {DataFormat::tokens, "tokens"},
                                                                                  {DataFormat::safetensors,
                                                                                   "safetensors"},
                                                                                  {DataFormat::memory, "memory"}});
template <>
inline constexpr auto kWords<Packing> = std::to_array<ChoiceWord<Packing>>({{Packing::wrapped, "wrapped"},
                                                                            {Packing::wrapped_reset, "wrapped_reset"},
                                                                            {Packing::bfd, "bfd"},
                                                                            {Packing::none, "none"}});
template <>
inline constexpr auto kWords<SamplingStrategy> =
    std::to_array<ChoiceWord<SamplingStrategy>>({{SamplingStrategy::random, "random"},
                                                 {SamplingStrategy::sequential, "sequential"},
                                                 {SamplingStrategy::group_by_length, "group_by_length"}});
template <>
inline constexpr auto kWords<RateSchedule> =
    std::to_array<ChoiceWord<RateSchedule>>({{RateSchedule::linear, "linear"},
                                             {RateSchedule::cosine, "cosine"},
                                             {RateSchedule::cosine_with_restarts, "cosine_with_restarts"},
                                             {RateSchedule::polynomial, "polynomial"},
                                             {RateSchedule::constant, "constant"},
                                             {RateSchedule::constant_with_warmup, "constant_with_warmup"},
                                             {RateSchedule::inverse_sqrt, "inverse_sqrt"},
                                             {RateSchedule::cosine_with_min_lr, "cosine_with_min_lr"},
                                             {RateSchedule::cosine_warmup_with_min_lr, "cosine_warmup_with_min_lr"},
                                             {RateSchedule::warmup_stable_decay, "warmup_stable_decay"},
                                             {RateSchedule::annealing, "annealing"},
                                             {RateSchedule::reduce_lr_on_plateau, "reduce_lr_on_plateau"}});
template <>
inline constexpr auto kWords<RateShape> = std::to_array<ChoiceWord<RateShape>>({{RateShape::linear, "linear"},
                                                                                {RateShape::cosine, "cosine"},
                                                                                {RateShape::one_minus_sqrt, "1-sqrt"},
                                                                                {RateShape::exponential, "exponential"},
                                                                                {RateShape::plateau, "plateau"},
                                                                                {RateShape::constant, "constant"}});
template <>
inline constexpr auto kWords<PlateauMode> = std::to_array<ChoiceWord<PlateauMode>>({{PlateauMode::min, "min"},
                                                                                    {PlateauMode::max, "max"}});
template <>
inline constexpr auto kWords<ThresholdMode> = std::to_array<ChoiceWord<ThresholdMode>>({{ThresholdMode::rel, "rel"},
                                                                                        {ThresholdMode::abs, "abs"}});
template <>
inline constexpr auto kWords<Optim> = std::to_array<ChoiceWord<Optim>>({{Optim::adamw_torch_fused, "adamw_torch_fused"},
                                                                        {Optim::adamw_torch, "adamw_torch"},
                                                                        {Optim::adam, "adam"},
                                                                        {Optim::sgd, "sgd"},
                                                                        {Optim::adafactor, "adafactor"}});
template <>
inline constexpr auto kWords<Tracker> = std::to_array<ChoiceWord<Tracker>>({{Tracker::tensorboard, "tensorboard"},
                                                                            {Tracker::none, "none"}});
template <>
inline constexpr auto kWords<LoggingStrategy> = std::to_array<ChoiceWord<LoggingStrategy>>(
    {{LoggingStrategy::no, "no"}, {LoggingStrategy::steps, "steps"}, {LoggingStrategy::epoch, "epoch"}});
template <>
inline constexpr auto kWords<EvalStrategy> = std::to_array<ChoiceWord<EvalStrategy>>({{EvalStrategy::no, "no"},
                                                                                      {EvalStrategy::steps, "steps"},
                                                                                      {EvalStrategy::epoch, "epoch"}});
template <>
inline constexpr auto kWords<SaveStrategy> = std::to_array<ChoiceWord<SaveStrategy>>({{SaveStrategy::no, "no"},
                                                                                      {SaveStrategy::steps, "steps"},
                                                                                      {SaveStrategy::epoch, "epoch"},
                                                                                      {SaveStrategy::best, "best"}});
template <>
inline constexpr auto kWords<Optimize> = std::to_array<ChoiceWord<Optimize>>({{Optimize::memory, "memory"},
                                                                              {Optimize::speed, "speed"}});
template <>
inline constexpr auto kWords<OffloadScope> =
    std::to_array<ChoiceWord<OffloadScope>>({{OffloadScope::checkpointed, "checkpointed"}, {OffloadScope::all, "all"}});
template <>
inline constexpr auto kWords<DeviceChoice> = std::to_array<ChoiceWord<DeviceChoice>>({{DeviceChoice::automatic, "auto"},
                                                                                      {DeviceChoice::cpu, "cpu"},
                                                                                      {DeviceChoice::cuda, "cuda"}});
template <>
inline constexpr auto kWords<CommunicatorChoice> =
    std::to_array<ChoiceWord<CommunicatorChoice>>({{CommunicatorChoice::automatic, "auto"},
                                                   {CommunicatorChoice::mpi, "mpi"},
                                                   {CommunicatorChoice::nccl, "nccl"},
                                                   {CommunicatorChoice::threads, "threads"},
                                                   {CommunicatorChoice::local, "local"}});
template <>
inline constexpr auto kWords<FullType> = std::to_array<ChoiceWord<FullType>>({{FullType::float32, "float32"},
                                                                              {FullType::float64, "float64"}});

template <class Choice>
concept HasWords = std::is_enum_v<Choice> && kWords<Choice>
.size() > 0;

template <HasWords Choice>
std::string word_of(Choice choice) {
  return std::ranges::find(kWords<Choice>, choice, &ChoiceWord<Choice>::choice)->text;
}

// A word of the table, or a name that a program has added: the enumerator `added`.
template <HasWords Choice>
struct OrAdded {
  OrAdded(Choice choice_ = {}) : choice(choice_) {}
  explicit OrAdded(std::string name) : choice(Choice::added), added(std::move(name)) {}
  operator Choice() const { return choice; }
  bool operator==(const OrAdded&) const = default;
  bool operator==(Choice other) const { return choice == other; }

  Choice choice;
  std::string added;  // the name; empty: none
};
template <HasWords Choice>
std::string word_of(const OrAdded<Choice>& choice) {
  return choice.choice == Choice::added ? choice.added : word_of(choice.choice);
}

// The words of a key: those of the table, and words that only other programs accept, with what to do instead.
template <HasWords Choice>
std::vector<JsonChoice> words_of(const std::vector<std::string>& not_available = {}, const std::string& advice = "") {
  std::vector<JsonChoice> words;
  for (const auto& word : kWords<Choice>) words.push_back({word.text});
  for (const auto& word : not_available) words.push_back({word, advice});
  return words;
}

template <class Added>
std::vector<JsonChoice> with_names(std::vector<JsonChoice> words, const Added& by_name) {
  for (const auto& [name, added] : by_name) words.push_back({name});
  return words;
}

template <HasWords Choice>
void to_json(nlohmann::json& json, const OrAdded<Choice>& choice) {
  json = word_of(choice);
}
template <HasWords Choice>
void from_json(const nlohmann::json& json, OrAdded<Choice>& choice) {
  const auto word = json.get<std::string>();
  const auto found = std::ranges::find(kWords<Choice>, word, &ChoiceWord<Choice>::text);
  choice = found == kWords<Choice>.end() ? OrAdded<Choice>(word) : OrAdded<Choice>(found->choice);
}

template <HasWords Choice>
void to_json(nlohmann::json& json, const Choice& choice) {
  json = word_of(choice);
}
// Any other word has been refused by the key's type.
template <HasWords Choice>
void from_json(const nlohmann::json& json, Choice& choice) {
  const auto found = std::ranges::find(kWords<Choice>, json.get<std::string>(), &ChoiceWord<Choice>::text);
  SL_ASSERT(found != kWords<Choice>.end(), json, " is not a value of this key");
  choice = found->choice;
}

}  // namespace shardline
