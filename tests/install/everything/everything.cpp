// Adds something of each kind.
#include <shardline/engine/serve/handlers.h>
#include <shardline/engine/tasks/task.h>
#include <shardline/function.h>
#include <shardline/models/graph/module_layers.h>
#include <shardline/models/program/trace/traced_model.h>
#include <shardline/nn.h>
#include <shardline/optim/update/added_optimizer.h>
#include <shardline/shardline.h>
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>

using namespace shardline;

namespace {

ModuleModel words(const nlohmann::json& config) {
  const int64_t width = config.at("width");
  const auto make = [width] {
    return torch::nn::Sequential(torch::nn::Embedding(256, width), torch::nn::Linear(width, width), torch::nn::GELU(),
                                 torch::nn::Linear(width, 256))
        .ptr();
  };
  return {.vocab_size = 256, .max_positions = 32, .modules = modules_of("net", make)};
}

// Values whose gradients are smaller than those of x.
struct Calm : torch::autograd::Function<Calm> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, double factor) {
    context->saved_data["factor"] = factor;
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list y) {
    return {y[0] * context->saved_data["factor"].toDouble(), {}};
  }
};

// A transformer that declares how ranks divide it.
struct Divided : torch::nn::Module {
  struct Block : torch::nn::Module {
    explicit Block(int64_t width)
        : attention(nn::AttentionOptions(width, 4).causal(true)), up(width, 2 * width), down(2 * width, width) {
      register_module("attention", attention);
      register_module("up", up);
      register_module("down", down);
    }
    at::Tensor forward(at::Tensor x) {
      x = x + attention(x);
      return x + down(torch::gelu(up(apply_function<Calm>(x, 0.5))));
    }
    nn::Attention attention;
    nn::ColumnLinear up;
    nn::RowLinear down;
  };
  explicit Divided(int64_t width) : words(256, width), head(width, 256) {
    register_module("words", words);
    register_module("blocks", blocks);
    register_module("head", head);
    for (int i = 0; i < 2; ++i) blocks->push_back(std::make_shared<Block>(width));
  }
  at::Tensor forward(const at::Tensor& ids) {
    at::Tensor x = words(ids);
    for (const auto& block : *blocks) x = block->as<Block>()->forward(x);
    return head(x);
  }
  nn::VocabEmbedding words;
  torch::nn::ModuleList blocks;
  torch::nn::Linear head;
};

TracedModel divided(const nlohmann::json& config) {
  return {.vocab_size = 256, .make = [width = config.at("width").get<int64_t>()] {
            return traced_module(std::make_shared<Divided>(width), &Divided::forward);
          }};
}

// Lin et al. 2017, arXiv 1708.02002.
at::Tensor focal(const at::Tensor& outputs, const at::Tensor& labels) {
  const auto log_p = torch::log_softmax(outputs, 1).gather(1, labels.unsqueeze(1)).squeeze(1);
  return -(1 - log_p.exp()).square() * log_p;
}

// Chen et al. 2023, arXiv 2302.06675.
void lion(const ElementUpdate& u) {
  const auto& momentum = u.states[0];
  const auto direction = (momentum * u.options.beta1 + u.gradients * (1 - u.options.beta1)).sign();
  u.values.mul_(1 - u.learning_rate * u.weight_decay).sub_(direction, u.learning_rate);
  momentum.mul_(u.options.beta2).add_(u.gradients, 1 - u.options.beta2);
}

// Whether a text is long.
class LongTexts final : public LabelledTask {
 public:
  explicit LongTexts(TokenizerPtr tokenizer) : tokenizer_(std::move(tokenizer)) {}
  ExampleShape shape() const override { return {.targets = TargetKind::classes, .width = 1}; }
  RowExamples encode(const DataRow& row, bool) const override {
    const std::string text = text_of(row, "text", "data.text_column");
    return {.examples = {{.ids = tokenizer_->encode(text), .targets = {float(text.size() > 8)}}}};
  }
  std::string settings() const override { return "long texts"; }
  MetricValues metrics(const Predicted& predicted) const override {
    double right = 0;
    for (int64_t i = 0; i < predicted.data.size(); ++i)
      right += predicted.logits[i].argmax().item<int64_t>() == predicted.data.set->targets(predicted.data[i])[0];
    return {{"right", right / predicted.data.size()}};
  }
  void predictions(const Predicted&, const UsePrediction&) const override {}

 private:
  TokenizerPtr tokenizer_;
};

// Replaces the steps of serving: labels have other names, a body may be words, answers are counted and may be text.
void add_serving(Registry& registry) {
  registry.model_fn([](const std::string&, ModelFacts& facts) {
            facts.head.names = {"short", "long"};
          })
      .input_fn([](const std::string& body, const std::string& type) {
        if (type != "text/words") return read_invocation(body, type);
        std::istringstream words(body);
        Invocation request{.document = {{"inputs", nlohmann::json::array()}}};
        for (std::string word; words >> word;) request.document["inputs"].push_back(word);
        return request;
      })
      .predict_fn([](const Invocation& request, const ServedModel& model) {
        const nlohmann::json answers = answer_of(request, model);
        return nlohmann::json{{"answers", answers}, {"count", answers.size()}};
      })
      .output_fn([](const nlohmann::json& prediction, const std::string& accept) {
        if (accept != "text/labels") return write_answer(prediction, accept);
        std::string labels;
        for (const auto& answer : prediction["answers"]) labels += answer["label"].get<std::string>() + '\n';
        return AnswerBody{accept, labels};
      });
  if (!std::getenv("SIGNED_ANSWERS")) return;
  registry.transform_fn(
      [](const ServedModel& model, const std::string& body, const std::string& type, const std::string& accept) {
        AnswerBody answer = default_handlers().transform_fn(model, body, type, accept);
        answer.body += "signed\n";
        return answer;
      });
}

}  // namespace

int main(int argc, char** argv) {
  Registry registry;
  add_serving(registry);
  registry.model("my-words", words)
      .traced_model("divided", divided)
      .loss("focal", focal)
      .optimizer("lion", {.states = {"exp_avg"}, .update = lion})
      .schedule("rising", [](int64_t step, int64_t, int64_t total) { return double(step) / total; })
      .task("long-texts", {.head = HeadChoice::Kind::sequence_classification, .metrics = {"right"}},
            [](const Config&, const HeadChoice&, const TokenizerPtr& tokenizer) {
              return std::make_unique<LongTexts>(tokenizer);
            })
      .metric("long-texts", "too_long", [](const Predicted& p) { return p.logits.argmax(1).sum().item<double>(); })
      .after_step([](const StepReport& report) {
        if (std::FILE* file = report.step == 1 ? std::fopen("steps.txt", "w") : std::fopen("steps.txt", "a")) {
          std::fprintf(file, "%ld ", long(report.step));
          std::fclose(file);
        }
      });
  return run(argc, argv, registry);
}
