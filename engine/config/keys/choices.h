// Keys whose value is one of a few words, as enums. The words here equal each key's list of words in the registry
// (tests/engine/config/keys/registry_test.cpp).
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "engine/data/text/data_format.h"

namespace shardline {

enum class ModelInit { pretrained, random };
NLOHMANN_JSON_SERIALIZE_ENUM(ModelInit, {{ModelInit::pretrained, "pretrained"}, {ModelInit::random, "random"}})

enum class EvalStrategy { no, steps, epoch };
NLOHMANN_JSON_SERIALIZE_ENUM(EvalStrategy,
                             {{EvalStrategy::no, "no"}, {EvalStrategy::steps, "steps"}, {EvalStrategy::epoch, "epoch"}})

// Both save the final model.
enum class SaveStrategy { no, steps };
NLOHMANN_JSON_SERIALIZE_ENUM(SaveStrategy, {{SaveStrategy::no, "no"}, {SaveStrategy::steps, "steps"}})

// Over T: memory splits the rows at layer borders (sequence parallelism), speed keeps all rows on every rank.
enum class Optimize { memory, speed };
NLOHMANN_JSON_SERIALIZE_ENUM(Optimize, {{Optimize::memory, "memory"}, {Optimize::speed, "speed"}})

// checkpointed: the inputs of recomputed groups; all: everything that is kept between forward and backward.
enum class OffloadScope { checkpointed, all };
NLOHMANN_JSON_SERIALIZE_ENUM(OffloadScope, {{OffloadScope::checkpointed, "checkpointed"}, {OffloadScope::all, "all"}})

enum class DeviceChoice { automatic, cpu, cuda };
NLOHMANN_JSON_SERIALIZE_ENUM(DeviceChoice, {{DeviceChoice::automatic, "auto"},
                                            {DeviceChoice::cpu, "cpu"},
                                            {DeviceChoice::cuda, "cuda"}})

enum class CommunicatorChoice { automatic, mpi, nccl, threads, local };
NLOHMANN_JSON_SERIALIZE_ENUM(CommunicatorChoice, {{CommunicatorChoice::automatic, "auto"},
                                                  {CommunicatorChoice::mpi, "mpi"},
                                                  {CommunicatorChoice::nccl, "nccl"},
                                                  {CommunicatorChoice::threads, "threads"},
                                                  {CommunicatorChoice::local, "local"}})

// The type of values that are not in half precision.
enum class FullType { float32, float64 };
NLOHMANN_JSON_SERIALIZE_ENUM(FullType, {{FullType::float32, "float32"}, {FullType::float64, "float64"}})

// The word for the value in a config.
template <class Choice>
std::string word_of(Choice choice) {
  return nlohmann::json(choice).get<std::string>();
}

}  // namespace shardline
