// Keys whose value is one of a few words, as enums. A key's list of words in the registry and the words here are the
// same (tests/engine/config/keys/registry_test.cpp).
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

// The final model is saved with either.
enum class SaveStrategy { no, steps };
NLOHMANN_JSON_SERIALIZE_ENUM(SaveStrategy, {{SaveStrategy::no, "no"}, {SaveStrategy::steps, "steps"}})

// Over T: memory shares out the rows at borders (sequence parallelism), speed has them whole on every rank.
enum class Optimize { memory, speed };
NLOHMANN_JSON_SERIALIZE_ENUM(Optimize, {{Optimize::memory, "memory"}, {Optimize::speed, "speed"}})

// checkpointed: the inputs of recomputed groups; all: everything that is kept from forward to backward.
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

// Of values without half precision.
enum class FullType { float32, float64 };
NLOHMANN_JSON_SERIALIZE_ENUM(FullType, {{FullType::float32, "float32"}, {FullType::float64, "float64"}})

// The word that the enum has in a config.
template <class Choice>
std::string word_of(Choice choice) {
  return nlohmann::json(choice).get<std::string>();
}

}  // namespace shardline
