#include "tests/parity/wrapped_layer.h"

#include "core/error.h"

namespace shardline::parity {
namespace {

class WrappedLayer : public Layer {
 public:
  WrappedLayer(std::unique_ptr<Layer> inner, LayerBuild build, Around around)
      : inner_(std::move(inner)), build_(std::move(build)), around_(std::move(around)) {}
  Border forward(const Border& input, MicrobatchContext& context) override {
    return around_(*inner_, build_, input, context);
  }

 private:
  std::unique_ptr<Layer> inner_;
  LayerBuild build_;
  Around around_;
};

}  // namespace

void wrap(LayerSpec& layer, const Around& around) {
  layer.build = [build = layer.build, around](const LayerBuild& parts) {
    return std::make_unique<WrappedLayer>(build(parts), parts, around);
  };
}

Parameter& parameter(const LayerBuild& build, const std::string& name) {
  for (size_t i = 0; i < build.params.size(); ++i)
    if (build.spec->params[i].name == name) return *build.params[i];
  throw InvariantError("no parameter " + name);
}

}  // namespace shardline::parity
