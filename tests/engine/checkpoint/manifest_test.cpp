#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/hex.h"
#include "engine/checkpoint/piece_files.h"
#include "engine/checkpoint/trainer_state.h"
#include "models/files/file_layout.h"
#include "models/files/safetensors.h"
#include "tests/models/files/files.h"

#include "tests/catch.h"

namespace shardline::manifest_test {

using Catch::Contains;

namespace {

Manifest small_manifest() {
  return {.step = 7,
          .files = {{"config.json", pieces_of("{}")}, {"model.safetensors", {{8, 1}, {4096, 2}, {5000, 3}}}}};
}

// A directory with a manifest and two files, one of them with two tensors.
struct Checkpoint {
  Checkpoint() {
    const FileLayout layout({{"first", {3, 4}, at::kFloat}, {"second", {5}, at::kDouble}}, "model");
    const auto& file = layout.files().front();
    std::string bytes = file.head;
    while (std::ssize(bytes) < file.bytes) bytes += static_cast<char>(bytes.size() * 7);
    put(scratch / "model.safetensors", bytes);
    put(scratch / "config.json", "{\"model_type\": \"gpt2\"}");
    const int64_t head = file.head.size();
    Manifest manifest{.step = 7, .files = {{"config.json", pieces_of("{\"model_type\": \"gpt2\"}")}}};
    int64_t begin = 0;
    for (const int64_t end : piece_ends(file.bytes, 32, {head, head + 48})) {
      manifest.files["model.safetensors"].push_back({end, checksum(bytes.substr(begin, end - begin))});
      begin = end;
    }
    put(scratch / kManifestFile, manifest_text(manifest));
    data_begin = head;
    size = bytes.size();
  }

  void flip(const std::string& name, int64_t byte, int bit) const {
    std::string bytes = contents(scratch / name);
    bytes[byte] = static_cast<char>(bytes[byte] ^ 1 << bit);
    put(scratch / name, bytes);
  }

  ScratchDirectory scratch;
  int64_t data_begin = 0, size = 0;
};

}  // namespace

TEST_CASE("a manifest is read as it was written") {
  const Manifest manifest = small_manifest();
  CHECK(parse_manifest(manifest_text(manifest), "m") == manifest);
  CHECK(piece_ends(100, 32, {40, 0, 100}) == std::vector<int64_t>{32, 40, 64, 96, 100});
  CHECK(piece_ends(0, 32) == std::vector<int64_t>{0});
}

TEST_CASE("the manifest of a part lists its pieces, and an impossible list is refused") {
  Manifest manifest = small_manifest();
  manifest.part = ManifestPart{.part = {.number = 2, .count = 2}, .hosts = {"a", "b"}};
  for (const int64_t piece : {0, 2}) add_piece(*manifest.part, "model.safetensors", piece);
  CHECK(manifest.part->pieces.at("model.safetensors") == std::vector<PieceRange>{{0, 1}, {2, 3}});
  CHECK(parse_manifest(manifest_text(manifest), "m") == manifest);
  CHECK(whole_manifest(manifest) == small_manifest());
  const auto refusal = [&](const auto& change) {
    Manifest other = manifest;
    change(*other.part);
    return message_of<DataError>([&] { parse_manifest(manifest_text(other), "m"); });
  };
  CHECK_THAT(refusal([](ManifestPart& part) { part.part.number = 3; }), Contains("/part/number"));
  CHECK_THAT(refusal([](ManifestPart& part) { part.part.number = 0; }), Contains("/part/number"));
  CHECK_THAT(refusal([](ManifestPart& part) { part.part.count = 3; }), Contains("/part/hosts"));
  CHECK_THAT(refusal([](ManifestPart& part) { part.pieces["other"] = {{0, 1}}; }), Contains("/part/pieces/other"));
  auto& ranges = manifest.part->pieces["model.safetensors"];
  for (const auto& wrong : std::vector<std::vector<PieceRange>>{
           {{0, 4}}, {{-1, 1}}, {{1, 1}}, {{2, 1}}, {{3, 4}}, {{1, 2}, {0, 1}}, {{0, 2}, {1, 3}}, {{0, 1}, {1, 2}}}) {
    ranges = wrong;
    CHECK_THAT(refusal([](ManifestPart&) {}), Contains("/part/pieces/model.safetensors"));
  }
}

TEST_CASE("any flipped bit of a manifest is found") {
  const std::string text = manifest_text(small_manifest());
  for (size_t byte = 0; byte < text.size(); ++byte)
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = text;
      damaged[byte] = static_cast<char>(damaged[byte] ^ 1 << bit);
      CAPTURE(damaged);
      CHECK_THROWS_AS(parse_manifest(damaged, "m"), DataError);
    }
  for (size_t length = 0; length < text.size(); ++length)
    CHECK_THROWS_AS(parse_manifest(text.substr(0, length), "m"), DataError);
}

TEST_CASE("a manifest of a newer version is distinguished from a damaged one") {
  const auto newer = [](int version, bool is_intact) {
    nlohmann::json body = nlohmann::json::parse(manifest_text(small_manifest()));
    body.erase("checksum");
    body["version"] = version;
    body["compression"] = "zstd";
    body["checksum"] = hex_digits(checksum(body.dump()) ^ (is_intact ? 0 : 1));
    return body.dump() + "\n";
  };
  CHECK_THROWS_AS(parse_manifest(newer(2, true), "m"), NewerManifest);
  CHECK_THAT(message_of<NewerManifest>([&] { parse_manifest(newer(7, true), "m"); }), Contains("version 7"));
  for (const auto& damaged : {newer(2, false), newer(0, true), newer(1, true)}) {
    CHECK_THROWS_AS(parse_manifest(damaged, "m"), DataError);
    CHECK_NOTHROW([&] {
      try {
        parse_manifest(damaged, "m");
      } catch (const NewerManifest&) {
        throw;
      } catch (const DataError&) {
      }
    }());
  }
}

TEST_CASE("a checkpoint has the name of its step, or one of the user's own") {
  const Checkpoint checkpoint;
  const int64_t step = read_manifest(checkpoint.scratch.path()).step;
  const auto below = [&](const std::string& name) {
    const std::string path = checkpoint.scratch / ("../" + name);
    std::filesystem::remove_all(path);
    std::filesystem::copy(checkpoint.scratch.path(), path);
    return path;
  };
  const std::string right = below(checkpoint_name(step)), wrong = below(checkpoint_name(step + 2)), own = below("best");
  CHECK(read_manifest(right).step == step);
  CHECK(read_manifest(right + "/").step == step);
  CHECK(read_manifest(own).step == step);
  CHECK_THAT(message_of<DataError>([&] { read_manifest(wrong); }), Contains(checkpoint_name(step)));
  for (const auto& path : {right, wrong, own}) std::filesystem::remove_all(path);
}

TEST_CASE("any flipped bit of a file is found and named by its tensor") {
  const Checkpoint checkpoint;
  const auto damage = [&] { return find_damage(checkpoint.scratch.path(), read_manifest(checkpoint.scratch.path())); };
  CHECK(damage().empty());
  for (int64_t byte = 0; byte < checkpoint.size; ++byte) {
    const int bit = static_cast<int>(byte % 8);
    checkpoint.flip("model.safetensors", byte, bit);
    const auto found = damage();
    CAPTURE(byte);
    REQUIRE(found.size() == 1);
    const int64_t place = byte - checkpoint.data_begin;
    CHECK_THAT(found.front(), Contains(place < 0 ? "header: bytes" : place < 48 ? "first: bytes" : "second: bytes"));
    checkpoint.flip("model.safetensors", byte, bit);
  }
  checkpoint.flip("config.json", 3, 2);
  CHECK(damage() == std::vector<std::string>{"config.json: bytes 0 to 22 do not match their checksum"});
  checkpoint.flip("config.json", 3, 2);
  put(checkpoint.scratch / "config.json", "{}");
  CHECK(damage() == std::vector<std::string>{"config.json: has 2 bytes instead of 22"});
  std::filesystem::remove(checkpoint.scratch / "config.json");
  CHECK(damage() == std::vector<std::string>{"config.json: is missing or empty"});
}

TEST_CASE("bytes that cannot be read are reported as damage with their position and do not end the process") {
  const Checkpoint checkpoint;
  int pieces = 0;
  const auto shorten = [&](int64_t) {
    if (++pieces == 2)
      std::filesystem::resize_file(checkpoint.scratch / "model.safetensors", 0);  // after its first byte
  };
  const auto manifest = read_manifest(checkpoint.scratch.path());
  const auto damage = find_damage(checkpoint.scratch.path(), manifest, 0, 1, shorten);
  CHECK(damage.size() == manifest.files.at("model.safetensors").size() - 1);
  CHECK(damage.front() == "model.safetensors: bytes 32 to 64 are no longer there");
}

TEST_CASE("a manifest can only name files in its directory") {
  for (const std::string name : {"../config.json", "/etc/passwd", "a/b", "..", ".", "", kManifestFile}) {
    CAPTURE(name);
    CHECK_THROWS_AS(parse_manifest(manifest_text({.step = 1, .files = {{name, pieces_of("x")}}}), "m"), DataError);
  }
  CHECK_THROWS_AS(parse_manifest(manifest_text({.step = 1, .files = {{"a", {{5, 1}, {5, 1}}}}}), "m"), DataError);
  CHECK_THROWS_AS(parse_manifest(manifest_text({.step = 1, .files = {{"a", {}}}}), "m"), DataError);
  CHECK_THROWS_AS(parse_manifest(manifest_text({.step = -1, .files = {}}), "m"), DataError);
}

TEST_CASE("the bytes of a manifest's files can be counted") {
  constexpr int64_t most = (1LL << 53) - 1;
  const auto parse = [](const decltype(Manifest::files)& files) {
    return parse_manifest(manifest_text({.step = 1, .files = files}), "m");
  };
  CHECK(parse({{"a", {{most, 1}}}}).files.at("a").back().end == most);
  CHECK(parse({{"a", {{most - 1, 1}}}, {"b", {{1, 1}}}}).files.size() == 2);
  CHECK_THAT(message_of<DataError>([&] {
               parse({{"a", {{most, 1}}}, {"b", {{1, 1}}}});
             }),
             Contains("/files/b") && Contains("above 9007199254740991 bytes"));
  CHECK_THROWS_AS(parse({{"a", {{most + 1, 1}}}}), DataError);
  CHECK_THROWS_AS(parse({{"a", {{most + 1, 1}, {most + 1, 2}}}}), DataError);
}

// Otherwise the time would grow with the square of the number of pieces: minutes for this many.
TEST_CASE("the time to report damaged pieces of a file is proportional to their number") {
  const ScratchDirectory scratch;
  constexpr int64_t pieces = 20'000;
  std::string header = "{";
  for (int64_t i = 0; i < pieces; ++i)
    header += cat(i > 0 ? "," : "", "\"t", i, R"(":{"dtype":"U8","shape":[1],"data_offsets":[)", i, ",", i + 1, "]}");
  const std::string head = safetensors_head(header + "}");
  put(scratch / "model.safetensors", head + std::string(pieces, '\0'));
  Manifest manifest{.step = 1};
  auto& list = manifest.files["model.safetensors"] = {{std::ssize(head), 1}};
  for (int64_t i = 0; i < pieces; ++i) list.push_back({std::ssize(head) + i + 1, 1});
  const auto damage = find_damage(scratch.path(), manifest);
  REQUIRE(std::ssize(damage) == pieces + 1);
  CHECK_THAT(damage.front(), Contains("header: bytes 0 to "));
  CHECK_THAT(damage.back(), Contains(cat("t", pieces - 1, ": bytes ")));
}

TEST_CASE("a manifest that is larger than the files that it describes is not read") {
  const Checkpoint checkpoint;
  std::filesystem::resize_file(checkpoint.scratch / kManifestFile, (1 << 20) + 1);
  CHECK_THAT(message_of<DataError>([&] { read_manifest(checkpoint.scratch.path()); }),
             Contains("has 1048577 bytes, but the files here allow at most 1048576"));
  std::filesystem::resize_file(checkpoint.scratch / "config.json", 1LL << 32);
  std::filesystem::resize_file(checkpoint.scratch / kManifestFile, (256 << 20) + 1);
  CHECK_THAT(message_of<DataError>([&] { read_manifest(checkpoint.scratch.path()); }),
             Contains("allow at most 268435456"));
}

TEST_CASE("the state of a run is read as it was written") {
  TrainerState state{.step = 12, .total_steps = 40, .epoch = 1.5, .samples = 96, .tokens = 1536, .updates = 11};
  state.num_train_epochs = 2.5;
  state.loss_scaler = LossScaler::State{.scale = 1024, .step = 12, .last_overflow = 3, .hysteresis = 1, .skipped = 1};
  state.plateau_rate = PlateauRate::State{.share = 0.1, .best = 2.25, .spent = 2, .cooldown = 1};
  state.best = BestEvaluation{2.25, 10, "out/checkpoint-10"};
  state.best_of = {{"metric", "eval_loss"}};
  state.patience = Patience{.best = 2.25, .spent = 3};
  state.curve = {{"/training/seed", 42}};
  state.log_history.push_back({{"step", 4}, {"loss", 3.5}});
  state.logged_loss = 0.1;
  state.logged_steps = 4;
  const std::string text = trainer_state_text(state);
  const TrainerState again = parse_trainer_state(text, "t");
  CHECK(again.patience == state.patience);
  CHECK(again.num_train_epochs == 2.5);
  CHECK(again.samples == 96);
  CHECK(again.step == 12);
  CHECK(again.updates == 11);
  CHECK(again.loss_scaler == state.loss_scaler);
  CHECK(again.plateau_rate == state.plateau_rate);
  CHECK(again.best == state.best);
  CHECK(again.best_of == state.best_of);
  CHECK(again.curve == state.curve);
  CHECK(again.log_history == state.log_history);
  CHECK(again.logged_loss == state.logged_loss);
  CHECK_THROWS_AS(parse_trainer_state("{\"global_step\": 3}", "t"), DataError);
}

// transformers' TrainerState.load_from_json fails for any other keys.
TEST_CASE("the state of a run has only the keys of transformers") {
  const std::set<std::string> known = {"best_global_step",
                                       "best_metric",
                                       "best_model_checkpoint",
                                       "epoch",
                                       "eval_steps",
                                       "global_step",
                                       "is_hyper_param_search",
                                       "is_local_process_zero",
                                       "is_world_process_zero",
                                       "log_history",
                                       "logging_steps",
                                       "max_steps",
                                       "num_input_tokens_seen",
                                       "num_train_epochs",
                                       "save_steps",
                                       "stateful_callbacks",
                                       "total_flos",
                                       "train_batch_size",
                                       "trial_name",
                                       "trial_params"};
  const auto state = nlohmann::json::parse(trainer_state_text({}));
  for (const auto& [key, value] : state.items()) CHECK(known.contains(key));
}

TEST_CASE("an impossible state of a run is refused, and the error names the key") {
  TrainerState state{.step = 12, .total_steps = 40, .epoch = 1.5, .samples = 96, .tokens = 1536, .updates = 11};
  state.loss_scaler = LossScaler::State{.scale = 1024, .step = 12, .last_overflow = 3, .hysteresis = 1, .skipped = 1};
  state.best = BestEvaluation{2.25, 10, "out/checkpoint-10"};
  const auto text = trainer_state_text(state);
  CHECK(parse_trainer_state(text, "t").step == 12);
  const std::map<std::string, std::vector<nlohmann::json>> hostile = {
      {"/global_step", {-1, 41, 1e300, 1.5, "3", nullptr}},
      {"/max_steps", {-1, 9e15}},
      {"/epoch", {-0.5, 1e300}},
      {"/num_input_tokens_seen", {-1, 1e300}},
      {"/best_global_step", {-1, 13, nullptr}},
      {"/best_model_checkpoint", {7}},
      {"/log_history", {"text"}},
      {"/stateful_callbacks/shardline/samples", {-1, 1e300}},
      {"/stateful_callbacks/shardline/updates", {-1, 13}},
      {"/stateful_callbacks/shardline/logged_steps", {-1, 13}},
      {"/stateful_callbacks/shardline/loss_scaler/scale", {0, -1024}},
      {"/stateful_callbacks/shardline/loss_scaler/step", {-1, 1e300}},
      {"/stateful_callbacks/shardline/loss_scaler/last_overflow", {-2}},
      {"/stateful_callbacks/shardline/loss_scaler/hysteresis", {0, 1e300}},
      {"/stateful_callbacks/shardline/curve", {nlohmann::json::array({1})}}};
  for (const auto& [key, values] : hostile)
    for (const auto& value : values) {
      auto changed = nlohmann::json::parse(text);
      changed[nlohmann::json::json_pointer(key)] = value;
      CAPTURE(key, value.dump());
      CHECK_THAT(message_of<DataError>([&] { parse_trainer_state(changed.dump(), "t"); }),
                 Contains(key.substr(key.rfind('/') + 1)));
    }
}

}  // namespace shardline::manifest_test
