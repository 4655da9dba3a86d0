// Tests hosts that do not share the directory of checkpoints. The name of a rank's directory (a, b, ...) stands for its
// host.
#include "engine/checkpoint/stores.h"

#include <set>
#include <thread>

#include "core/comm/communicator_base.h"
#include "engine/checkpoint/checkpoint_union.h"
#include "engine/checkpoint/piece_files.h"
#include "engine/commands/job.h"
#include "tests/engine/checkpoint/checkpoint_runs.h"

namespace shardline::stores_test {

using namespace checkpoint_runs;
using Catch::Contains;

namespace {

using Hosts = std::vector<std::string>;  // by rank
constexpr std::chrono::milliseconds kPatience(200);

// Directories of hosts.
struct Disks {
  std::string of(const std::string& host) const {
    fs::create_directories(scratch / host);
    return scratch / host;
  }
  std::string of(const Hosts& hosts, const CommunicatorPtr& world) const { return of(hosts[world->rank()]); }
  fs::path operator/(const std::string& name) const { return scratch / name; }

  ScratchDirectory scratch;
};

std::set<std::string> names_in(const fs::path& directory) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory))
    if (const auto name = entry.path().filename().string(); name != kAttemptFile) names.insert(name);
  return names;
}

std::map<std::string, std::string> files_in(const fs::path& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(directory))
    files[entry.path().filename().string()] = contents(entry.path().string());
  return files;
}

// Calls work(run, directory, stores) on ranks that have the values of a checkpoint of step 2.
template <class Work>
void on_hosts(const Disks& disks, const Grid& grid, const Hosts& hosts, const fs::path& values, const Work& work) {
  run_ranks(grid.ranks, [&](CommunicatorPtr world) {
    Run run({}, grid, world);
    run.read(values);
    work(run, disks.of(hosts, world));
  });
}

void save_on_hosts(const Disks& disks, const Grid& grid, const Hosts& hosts, const fs::path& values, int64_t step,
                   bool everywhere = false, int64_t keep = 0) {
  on_hosts(disks, grid, hosts, values, [&](Run& run, const std::string& directory) {
    const auto saver = run.saver(directory, keep, everywhere);
    saver->start(step, {{"trainer_state.json", cat("{\"step\": ", step, "}")}});
    saver->finish();
    CHECK(saver->take_failure() == "");
    CHECK(saver->last_saved() == step);
  });
}

// Returns the step of the checkpoint that is complete on each host afterwards.
std::optional<int64_t> complete_newest(const Disks& disks, const Hosts& hosts, NewestCheckpoint* all = nullptr) {
  std::optional<int64_t> step;
  run_ranks(hosts.size(), [&](CommunicatorPtr world) {
    const std::string directory = disks.of(hosts, world);
    const NewestCheckpoint found = complete_newest_checkpoint(directory, find_stores(directory, *world), *world);
    if (found.path) {
      CHECK(fs::path(*found.path).parent_path() == directory);
      CHECK(find_damage(*found.path, read_manifest(*found.path)).empty());
    }
    if (world->rank() == 0 && found.path) step = step_of_checkpoint(fs::path(*found.path).filename().string());
    if (world->rank() == 0 && all) *all = found;
  });
  return step;
}

struct Trained {
  Trained() {
    train_and_save({}, disks.of("base"));
    path = disks / "base/checkpoint-2";
  }
  Disks disks;
  fs::path path;
};

const Grid kTwo = {2, {{"pipeline_parallel_degree", 2}}};
const Grid kFour = {4, {{"pipeline_parallel_degree", 2}, {"tensor_parallel_degree", 2}}};
const Grid kReplicas = {4, {{"shard_optimizer_state", true}}};

}  // namespace

TEST_CASE("ranks find out which of them share a directory") {
  const Disks disks;
  fs::create_directory_symlink(disks.of("a"), disks / "link");
  std::ofstream(disks / "file") << "no directory";
  const std::vector<std::string> names = {"b", "a", "b", "link", "file/x", "file/x", "a"};
  run_ranks(names.size(), [&](CommunicatorPtr world) {
    const int rank = world->rank();
    const Stores stores = find_stores((disks / names[rank]).string(), *world, kPatience);
    REQUIRE(stores.all.size() == 3);
    CHECK(stores.all[0].ranks == std::vector<int>{0, 2});
    CHECK(stores.all[1].ranks == std::vector<int>{1, 3, 6});
    CHECK(stores.all[2].ranks == std::vector<int>{4, 5});
    CHECK(stores.writable() == std::vector<size_t>{0, 1});
    for (const auto& store : stores.all)
      CHECK(store.writers == std::vector<std::vector<int>>{store.ranks});  // on one host
    CHECK_THAT(stores.all[2].obstacle, Contains("file/x") && Contains("Not a directory"));
    CHECK_THROWS_WITH(require_checkpoints_for_all(stores, "disk"),
                      Contains("cannot write to disk") && Contains("\n  host ") && Contains("file/x"));
    CHECK(stores.mine == std::vector<size_t>{0, 1, 0, 1, 2, 2, 1}[rank]);
    CHECK(stores.leads(rank) == (rank == 0 || rank == 1 || rank == 4));
  });
  CHECK(names_in(disks / "a").empty());
  CHECK(names_in(disks / "b").empty());
}

TEST_CASE("ranks are grouped by their hosts") {
  const std::vector<std::string> hosts = {"a", "b", "c", "a", "b", "a"};
  using Sets = std::vector<std::vector<int>>;
  CHECK(ranks_by_host({0, 1, 2, 3, 4, 5}, hosts) == Sets{{0, 3, 5}, {1, 4}, {2}});
  CHECK(ranks_by_host({1, 3, 4}, hosts) == Sets{{1, 4}, {3}});
}

TEST_CASE("a host that sees the checkpoints of others need not write there") {
  Stores stores{.all = {{{0}, "a", ""}, {{1}, "b", "Read-only file system", /*sees_other=*/true}}};
  require_checkpoints_for_all(stores, "disk");
  stores.all[1].sees_other = false;
  CHECK_THROWS_AS(require_checkpoints_for_all(stores, "disk"), AllRanks<RunError>);
}

TEST_CASE("hosts save parts, from which any hosts make the checkpoint that a shared directory would have") {
  const Trained trained;
  const std::vector<std::pair<Grid, Hosts>> runs = {{kTwo, {"a", "b"}},
                                                    {kFour, {"a", "b", "a", "b"}},
                                                    {kReplicas, {"a", "a", "b", "c"}},
                                                    {kGrids[10], {"a", "a", "b", "b", "a", "c", "d", "d"}}};
  int64_t step = 10;
  for (const auto& [grid, hosts] : runs) {
    CAPTURE(grid.smp.dump());
    const Disks disks, shared;
    save_on_hosts(disks, grid, hosts, trained.path, ++step);
    save_on_hosts(shared, grid, Hosts(grid.ranks, "a"), trained.path, step);
    const fs::path wanted = shared / ("a/" + checkpoint_name(step));
    const std::set<std::string> all(hosts.begin(), hosts.end());
    uintmax_t bytes = 0;
    for (const auto& host : all) {
      const auto places = checkpoints_in(disks / host);
      REQUIRE(places.size() == 1);
      const Manifest manifest = read_manifest(places.front().path);
      REQUIRE(manifest.part);
      CHECK(manifest.part->part.count == std::ssize(all));
      CHECK(places.front().path == part_path((disks / host / checkpoint_name(step)).string(), manifest.part->part));
      CHECK(whole_manifest(manifest) == read_manifest(wanted));
      CHECK(find_damage(places.front().path, manifest).empty());
      for (const auto& name : names_in(places.front().path)) {
        CHECK((name == kManifestFile || name.ends_with(".part")));
        if (name.find("safetensors") != std::string::npos) bytes += fs::file_size(places.front().path / name);
      }
    }
    CHECK(bytes == fs::file_size(wanted / "model.safetensors") + fs::file_size(wanted / "optimizer.safetensors"));
    // The checkpoint is read on other ranks and hosts, one of which is new.
    Hosts later(all.begin(), all.end());
    later.push_back("new");
    later.push_back("a");
    CHECK(complete_newest(disks, later) == step);
    for (const auto& host : later) {
      CHECK(names_in(disks / host).contains(checkpoint_name(step)));
      CHECK(checkpoints_in(disks / host).size() == 1);
      CHECK(files_in(disks / host / checkpoint_name(step)) == files_in(wanted));
    }
    CHECK(differences(trained.path, disks / "new" / checkpoint_name(step)) == "");
  }
}

TEST_CASE("a checkpoint that is saved on each host survives the loss of all hosts but one") {
  const Trained trained;
  for (const auto& [grid, hosts] : std::vector<std::pair<Grid, Hosts>>{
           {kTwo, {"a", "b"}}, {kFour, {"a", "b", "b", "a"}}, {kReplicas, {"a", "a", "b", "c"}}}) {
    const Disks disks;
    save_on_hosts(disks, grid, hosts, trained.path, 7, /*everywhere=*/true);
    const auto wanted = files_in(disks / "a/checkpoint-7");
    CHECK(differences(trained.path, disks / "b/checkpoint-7") == "");
    CHECK(files_in(disks / "b/checkpoint-7") == wanted);
    for (const std::string host : {"a", "b"}) {
      fs::remove_all(disks / host);
      CHECK(complete_newest(disks, hosts) == 7);
      CHECK(files_in(disks / host / "checkpoint-7") == wanted);
    }
  }
}

TEST_CASE("if no host has a piece, the error names host, file and tensor, and the previous checkpoint is used") {
  const Trained trained;
  const Disks disks;
  const Hosts hosts = {"a", "b"};
  save_on_hosts(disks, kTwo, hosts, trained.path, 5);
  save_on_hosts(disks, kTwo, hosts, trained.path, 6);
  save_on_hosts(disks, kTwo, hosts, trained.path, 7);
  fs::remove_all(disks / "b/checkpoint-7.part-2-of-2");
  const std::string path = disks / "a/checkpoint-6.part-1-of-2/model.safetensors.part";
  std::string bytes = contents(path);
  bytes[bytes.size() - 1] ^= 4;
  put(path, bytes);
  fs::create_directories(disks / "b/checkpoint-9");
  NewestCheckpoint found;
  CHECK(complete_newest(disks, hosts, &found) == 5);
  REQUIRE(found.skipped.size() == 3);
  const std::string missing = cat("part 2 of 2, which host ", host_name(), " wrote, is missing");
  CHECK_THAT(found.skipped[0], Contains("checkpoint-7 is incomplete and skipped: " + missing));
  CHECK_THAT(found.skipped[1], Contains("checkpoint-6 is damaged and skipped: ") &&
                                   Contains("host " + host_name() + ": ") && Contains("checkpoint-6.part-1-of-2: ") &&
                                   Contains("model.safetensors: transformer.h.") &&
                                   Contains("do not match their checksum"));
  CHECK_THAT(found.skipped[2], Contains("checkpoint-9 is skipped: it has no manifest.json"));
  // A host that has the whole checkpoint provides the same pieces.
  save_on_hosts(disks, kTwo, hosts, trained.path, 8, /*everywhere=*/true);
  const auto wanted = files_in(disks / "b/checkpoint-8");
  for (const char* name : {"model.safetensors", "optimizer.safetensors"}) {
    auto damaged = contents(disks / "a/checkpoint-8" / name);
    damaged[100] ^= 1;
    damaged[damaged.size() / 2] ^= 1;
    put(disks / "a/checkpoint-8" / name, damaged);
  }
  CHECK(complete_newest(disks, hosts) == 8);
  CHECK(files_in(disks / "a/checkpoint-8") == wanted);
}

TEST_CASE("if hosts are cut off while checkpoints are published and removed, one checkpoint is complete at any time") {
  const Trained trained;
  for (const bool everywhere : {false, true}) {
    const Disks disks;
    const Hosts hosts = {"a", "b"};
    save_on_hosts(disks, kTwo, hosts, trained.path, 5, everywhere);
    // The directories after each stage of the next checkpoint: written, published, cleaned up.
    int stages = 0;
    on_hosts(disks, kTwo, hosts, trained.path, [&](Run& run, const std::string& directory) {
      const auto saver = run.saver(directory, /*keep=*/1, everywhere);
      saver->start(6, {});
      for (int stage = 0; saver->is_pending(); ++stage) {
        while (saver->is_writing()) std::this_thread::yield();
        fs::copy(directory, cat(directory, "-", stage), fs::copy_options::recursive);
        run.groups.world->barrier();
        saver->proceed();
        if (run.groups.rank == 0) stages = stage + 1;
      }
      CHECK(saver->take_failure() == "");
    });
    REQUIRE(stages == 3);
    CHECK(checkpoints_in(disks / "a").size() == 1);
    const auto take = [&](const std::string& host, int stage) {
      fs::remove_all(disks / host);
      fs::copy(disks / cat(host, "-", stage), disks / host, fs::copy_options::recursive);
    };
    for (int stage = 0; stage < 3; ++stage)
      for (int other = std::max(0, stage - 1); other <= std::min(2, stage + 1); ++other) {
        CAPTURE(everywhere, stage, other);
        take("a", stage);
        take("b", other);
        const bool is_published = everywhere ? std::max(stage, other) >= 1 : std::min(stage, other) >= 1;
        CHECK(complete_newest(disks, hosts) == (is_published ? 6 : 5));
      }
  }
}

TEST_CASE("a first save that was cut off between hosts is distinguished from a checkpoint that was lost later") {
  const Trained trained;
  const Disks disks;
  const Hosts hosts = {"a", "b"};
  NewestCheckpoint found;
  const auto was_cut_off = [&] {
    complete_newest(disks, hosts, &found);
    return found.first_was_cut_off;
  };
  const auto save_half = [&](int64_t step) {
    save_on_hosts(disks, kTwo, hosts, trained.path, step);
    fs::remove_all(disks / cat("b/checkpoint-", step, ".part-2-of-2"));
  };
  const auto name_on_both = [&](const std::string& text) {
    for (const char* host : {"a", "b"}) put(disks / host / kNewestFile, text);
  };
  CHECK_FALSE(was_cut_off());  // nothing was saved
  CHECK_FALSE(found.has_some);
  save_half(5);
  for (const char* host : {"a", "b"}) fs::remove(disks / host / kNewestFile);
  CHECK(was_cut_off());
  CHECK(found.has_some);
  CHECK_THAT(found.skipped.front(),
             Contains("checkpoint-5 is skipped, because the job ended before all hosts had it: "));
  for (const char* text : {"checkpoint-5\n", "", "checkpoint-"}) {
    put(disks / "b" / kNewestFile, text);
    CHECK_FALSE(was_cut_off());
    CHECK_THAT(found.skipped.front(), Contains("checkpoint-5 is incomplete and skipped: part 2 of 2, which host "));
  }

  // The next checkpoint.
  save_on_hosts(disks, kTwo, hosts, trained.path, 6);
  save_half(7);
  name_on_both("checkpoint-6\n");
  CHECK(complete_newest(disks, hosts, &found) == 6);
  CHECK_THAT(found.skipped.front(),
             Contains("checkpoint-7 is skipped, because the job ended before all hosts had it: "));
  for (const char* host : {"a", "b"}) fs::remove(disks / host / kNewestFile);
  CHECK_FALSE(was_cut_off());  // 6 is complete
}

// Saves a checkpoint that host b cannot publish, because its files have vanished.
void fail_to_publish(const Disks& disks, const Hosts& hosts, const std::string& model, int64_t step) {
  on_hosts(disks, kTwo, hosts, model, [&](Run& run, const std::string& directory) {
    const auto saver = run.saver(directory, /*keep=*/1);
    saver->start(step, {});
    while (saver->is_writing()) std::this_thread::yield();
    if (directory.ends_with("/b"))
      for (const auto& name : names_in(directory))
        if (name.ends_with(kUnfinishedSuffix)) fs::remove_all(fs::path(directory) / name);
    run.groups.world->barrier();
    saver->finish();
    if (run.groups.rank == 0) {
      const std::string name = checkpoint_name(step);
      CHECK_THAT(saver->take_failure(),
                 Contains(name + " was not saved: host ") && Contains("b/" + name + ".part-2-of-2"));
    }
    CHECK(saver->last_saved() == -1);
  });
}

TEST_CASE("if one host cannot publish a checkpoint, all hosts abandon it and keep the previous one") {
  const Trained trained;
  const Disks disks;
  const Hosts hosts = {"a", "b"};
  save_on_hosts(disks, kTwo, hosts, trained.path, 5);
  const auto written = fs::last_write_time(disks / "a/checkpoint-5.part-1-of-2/manifest.json");
  for (const int64_t step : {6, 5}) {  // 5 replaces the previous one
    CAPTURE(step);
    fail_to_publish(disks, hosts, trained.path, step);
    CHECK(names_in(disks / "a") == std::set<std::string>{"checkpoint-5.part-1-of-2", "newest"});
    CHECK(names_in(disks / "b") == std::set<std::string>{"checkpoint-5.part-2-of-2", "newest"});
    CHECK(fs::last_write_time(disks / "a/checkpoint-5.part-1-of-2/manifest.json") == written);
  }
  save_on_hosts(disks, kTwo, hosts, trained.path, 5);  // nothing is left of the version that this one replaces
  CHECK(names_in(disks / "a") == std::set<std::string>{"checkpoint-5.part-1-of-2", "newest"});
  CHECK(complete_newest(disks, hosts) == 5);
}

TEST_CASE("the error names a host that cannot get the checkpoint") {
  const Trained trained;
  const Disks disks;
  save_on_hosts(disks, kTwo, {"a", "b"}, trained.path, 5);
  std::ofstream(disks / "file") << "no directory";
  const auto complete = [&] {
    run_ranks(2, [&](CommunicatorPtr world) {
      const std::string directory = world->rank() == 0 ? disks.of("a") : (disks / "file/x").string();
      complete_checkpoint(directory + "/checkpoint-5", find_stores(directory, *world, kPatience), *world);
    });
  };
  fs::copy(disks / "b/checkpoint-5.part-2-of-2", disks / "a/checkpoint-5.part-2-of-2", fs::copy_options::recursive);
  CHECK_THAT(message_of<RunError>(complete), Contains("cannot be completed on all hosts") &&
                                                 Contains("host " + host_name()) && Contains("Not a directory"));
}

TEST_CASE("parts that were copied to one place are merged into the checkpoint of a shared directory") {
  const Trained trained;
  const Disks disks, shared;
  const Hosts hosts = {"a", "b", "a", "c"};
  save_on_hosts(disks, kReplicas, hosts, trained.path, 5);
  save_on_hosts(disks, kReplicas, hosts, trained.path, 6);
  save_on_hosts(shared, kTwo, {"a", "a"}, trained.path, 5);
  const std::string one = disks / "a/checkpoint-5.part-1-of-3", two = disks / "b/checkpoint-5.part-2-of-3",
                    three = disks / "c/checkpoint-5.part-3-of-3", output = disks / "merged";
  const auto refusal = [&](const std::vector<std::string>& parts, const std::string& to) {
    const auto message = message_of<Error>([&] { merge_checkpoint(parts, to); });
    CHECK_FALSE(fs::exists(output));
    return message;
  };
  CHECK_THAT(refusal({one, two}, output), Contains("part 3 of 3, which host ") && Contains("have no intact copy"));
  CHECK_THAT(refusal({one, two, disks / "c/checkpoint-6.part-3-of-3"}, output),
             Contains("part-3-of-3 is a part of step 6") && Contains("checkpoint-5.part-1-of-3 of step 5"));
  CHECK_THAT(refusal({one, two, three}, disks / "a"), Contains("already exists"));
  Disks other;
  save_on_hosts(other, kReplicas, hosts, trained.path, 5);
  const std::string stranger = other / "c/checkpoint-5.part-3-of-3";
  const std::string state = stranger + "/trainer_state.json.part", digest = contents(stranger + "/manifest.json");
  Manifest manifest = read_manifest(stranger);
  put(state, "{\"step\": 9}");
  manifest.files["trainer_state.json"] = pieces_of("{\"step\": 9}");
  put(stranger + "/manifest.json", manifest_text(manifest));
  CHECK_THAT(refusal({one, two, stranger}, output),
             Contains("are from different runs") && Contains("files trainer_state.json differ"));
  auto bytes = contents(two + "/optimizer.safetensors.part");
  bytes[7] ^= 1;
  put(two + "/optimizer.safetensors.part", bytes);
  CHECK_THAT(refusal({one, two, three}, output),
             Contains(two + ": optimizer.safetensors: ") && Contains("do not match their checksum"));
  bytes[7] ^= 1;
  put(two + "/optimizer.safetensors.part", bytes);
  CHECK_THAT(merge_checkpoint({three, one, two}, output + "/"), Contains("complete checkpoint of step 5"));
  CHECK(files_in(output) == files_in(shared / "a/checkpoint-5"));
  CHECK(fs::exists(one));
  // verify and inspect read parts, too.
  CHECK_THAT(verified_text(two), Contains("is intact") && Contains("part 2 of 3, from host "));
  CHECK_THAT(verified_text(output), Contains("is intact"));
}

}  // namespace shardline::stores_test
