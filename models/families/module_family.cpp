#include "models/families/module_family.h"

#include <algorithm>
#include <memory>
#include <mutex>

#include "core/error.h"
#include "models/graph/row_losses.h"

namespace shardline {
namespace {

constexpr int64_t kTracedLength = 128;  // costs of longer samples are extrapolated from this

// Describing a model runs its modules, so the description of a config is kept.
class Descriptions {
 public:
  ModelSpec of(const ModuleModel& model, const std::string& config) {
    const std::lock_guard lock(mutex_);
    if (!spec_ || config != config_) {
      spec_ = std::make_unique<ModelSpec>(spec_of_modules(model));
      config_ = config;
    }
    return *spec_;
  }

 private:
  std::mutex mutex_;
  std::string config_;
  std::unique_ptr<ModelSpec> spec_;
};

ModuleModel model_of(const MakeModules& make, const nlohmann::json& keys, const HeadChoice& head) {
  ModuleModel model = make(keys);
  if (model.name.empty()) model.name = keys.value("model_type", "");
  model.loss = keys.value("loss", model.loss);
  model.length = std::min(model.max_positions, kTracedLength);
  model.vocab_size = std::max<int64_t>(model.vocab_size, 1);
  if (head.kind == HeadChoice::Kind::sequence_classification) {
    model.predicts = ModuleModel::Predicts::samples;
    model.outputs = head.labels;
  }
  if (model.max_positions < 1) throw ConfigError("the model has no max_positions; set ModuleModel::max_positions");
  if (!model.loss.empty()) loss_named(model.loss);
  return model;
}

}  // namespace

nlohmann::json own_keys(HfConfigReader& read, const HeadChoice& head) {
  nlohmann::json keys = nlohmann::json::object();
  for (const auto& [key, value] : read.merged().items()) read.any(key.c_str(), json_any(), keys[key]);
  for (const char* key : {"architectures", "id2label", "label2id", "problem_type"}) keys.erase(key);
  if (head.kind == HeadChoice::Kind::sequence_classification || head.kind == HeadChoice::Kind::token_classification)
    keys["num_labels"] = head.labels;
  return keys;
}

Family family_of_modules(const std::string& head_class, HeadChoice::Kind head, MakeModules make) {
  const auto read = [make = std::move(make), descriptions = std::make_shared<Descriptions>()](HfConfigReader& reader,
                                                                                              HfModel& described) {
    const nlohmann::json keys = own_keys(reader, described.head);
    ModuleModel model;
    try {
      model = model_of(make, keys, described.head);
    } catch (const std::exception& error) {
      reader.complain({"model_type"}, error.what());
      return;
    }
    described.max_positions = model.max_positions;
    described.vocab_size = model.vocab_size;
    described.features = model.features;
    described.make_spec = [model, descriptions, config = keys.dump()](bool sequence_parallel, const SplitChoices&) {
      if (sequence_parallel)
        throw ConfigError(cat("/smp_options/optimize: \"memory\" splits rows between the layers, which the modules of ",
                              model.name, " need whole; set it to \"speed\", or tensor_parallel_degree to 1"));
      return descriptions->of(model, config);
    };
    described.initial_values = [model](uint64_t seed) { return values_of_modules(model, seed); };
  };
  return {{{head, head_class}}, read};
}

}  // namespace shardline
