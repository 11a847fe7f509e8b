// Finished runs as rows: grouped by seed, named, in order, and what is left out of them.
#include "tpgm/io/file.h"
#include "tpgm/study/run_set.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/study/study_files.h"

namespace tpgm::test_run_set {
namespace {

namespace fs = std::filesystem;
using test::error_of;

class RunSets : public test::Scratch {
 protected:
  void run(const std::string& name, const Settings& settings, const test::ResultFile& result = {}) const {
    test::write_run(folder_ / name, settings, result);
  }
  RunSet load() const { return load_runs({folder_}); }
  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const auto& row : load().rows) result.push_back(row.name);
    return result;
  }
};

TEST_F(RunSets, GroupBySeedAndWhatDoesNotMatter) {
  run("a", {{"seed", "0"}}, {50, 60, 40, 100});
  run("b", {{"seed", "1"}, {"workers", "3"}, {"device", "cpu"}, {"cache", "1GB"}}, {50, 70, 50, 100});
  run("c", {{"seed", "0"}, {"lr", "1"}});
  const auto set = load();
  ASSERT_EQ(set.rows.size(), 2);
  EXPECT_EQ(set.rows[0].runs.size(), 2);
  EXPECT_EQ(set.rows[0].scores.at(0).test, "home");
  EXPECT_EQ(set.rows[0].scores.at(0).values, (std::vector<double>{60, 70}));
  EXPECT_EQ(set.rows[0].scores.at(0).mean(), 65);
  EXPECT_EQ(set.rows[0].scores.at(1).values, (std::vector<double>{40, 50}));
}

TEST_F(RunSets, GroupByTheDataSetsOfTestsHoweverTheyAreGiven) {
  const std::string data = (folder_ / "data").string(), far = (folder_ / "far").string();
  fs::create_directories(data);
  fs::create_directories(far);
  run("old", {{"seed", "0"}, {"data-dir", data}, {"test", "far=../far"}});
  run("new", {{"seed", "1"}, {"data-dir", data}, {"test", "far=" + far}});
  EXPECT_EQ(load().rows.size(), 1);
}

TEST_F(RunSets, AreNamedAndOrderedAsMethodsAre) {
  run("1", {{"method", "spd"}});
  run("2", {{"method", "tpgm"}, {"mu", "0.1"}});
  run("3", {{"method", "tpgm"}, {"mu", "0.01"}});
  run("4", {{"method", "tpgm"}});
  run("5", {{"method", "wise"}, {"ratio", "0.7"}});
  run("6", {{"method", "wise"}, {"ratio", "0.3"}});
  run("7", {{"method", "bitfit"}});
  run("8", {});
  run("9", {{"epochs", "0"}, {"head", "checkpoint"}});
  run("10", {{"epochs", "0"}, {"head", "zeroshot"}});
  EXPECT_EQ(names(), (std::vector<std::string>{"Zero-shot", "Pre-trained", "FT", "BitFit", "WISE 0.3",
                                               "WISE 0.7", "TPGM", "TPGM-C μ=0.01", "TPGM-C μ=0.1", "SPD"}));
  const auto set = load();
  EXPECT_EQ(set.rows[set.reference].name, "FT");
  EXPECT_TRUE(set.rows[0].is_anchor());
  EXPECT_FALSE(set.rows[2].is_anchor());
}

TEST_F(RunSets, AHeadThatWasNotTrainedIsNamed) {
  run("1", {});
  run("2", {{"epochs", "0"}, {"head", "fresh"}});
  EXPECT_EQ(names(), (std::vector<std::string>{"Random head", "FT"}));
  EXPECT_TRUE(load().rows[0].is_anchor());
}

TEST_F(RunSets, AreToldApartByTheFewestSettings) {
  run("a", {{"lr", "0.01"}, {"opt", "sgd"}});
  run("b", {{"lr", "0.02"}, {"opt", "sgd"}});
  EXPECT_EQ(names(), (std::vector<std::string>{"FT lr=0.01", "FT lr=0.02"}));
  run("c", {{"lr", "0.02"}, {"opt", "adamw"}});
  const auto all = names();
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), 3);
  // Of several FT the reference is the best on selection data.
  run("b", {{"lr", "0.02"}, {"opt", "sgd"}}, {99, 60, 40, 100});
  const auto set = load();
  EXPECT_EQ(set.rows[set.reference].run().path.filename(), "b");
}

TEST_F(RunSets, SayWhatTheyLeaveOut) {
  run("pretraining", {{"model", "vit"}});
  const Settings ft{{"checkpoint", (folder_ / "pretraining").string()}};
  run("a", ft);
  run("same", ft);
  run("unfinished", {{"lr", "7"}});
  fs::remove(folder_ / "unfinished" / "result.json");
  const auto set = load();
  ASSERT_EQ(set.rows.size(), 1);
  EXPECT_EQ(set.unfinished, std::vector<fs::path>{folder_ / "unfinished"});
  ASSERT_EQ(set.notes.size(), 2);
  EXPECT_HAS(set.notes[0], "pretraining' is left out: other runs started from it");
  EXPECT_HAS(set.notes[1], "same' is left out: ");
}

TEST_F(RunSets, KeepAnAnchorThatIsNamed) {
  run("first", {{"lr", "0.5"}});
  run("second", {{"checkpoint", (folder_ / "first").string()}});
  const auto set = load_runs({folder_ / "first", folder_ / "second"});
  EXPECT_EQ(set.rows.size(), 2);
  EXPECT_TRUE(set.notes.empty());
  // Found by a search it is left out, also if another run is named.
  for (const auto& found : {load(), load_runs({folder_ / "second", folder_})}) {
    ASSERT_EQ(found.rows.size(), 1);
    EXPECT_EQ(found.rows[0].run().path.filename(), "second");
    ASSERT_EQ(found.notes.size(), 1);
    EXPECT_HAS(found.notes[0], "first' is left out: other runs started from it; name its folder");
  }
  // One of a pre-training, with tests of its own, has no place in the table.
  run("first", {{"lr", "0.5"}}, {50, 60, 40, 99});
  const auto other = load_runs({folder_ / "first", folder_ / "second"});
  ASSERT_EQ(other.rows.size(), 1);
  ASSERT_EQ(other.notes.size(), 1);
  EXPECT_HAS(other.notes[0],
             "first' is left out: other runs started from it, and it was tested on other data");
}

TEST_F(RunSets, KnowARunByWhatItStartedFrom) {
  for (const char* seed : {"0", "1"}) {
    run(fmt::format("ft{}", seed), {{"seed", seed}});
    run(fmt::format("wise{}", seed), {{"seed", seed},
                                      {"method", "wise"},
                                      {"epochs", "0"},
                                      {"weights", (folder_ / fmt::format("ft{}", seed)).string()}});
  }
  const auto set = load();
  ASSERT_EQ(set.rows.size(), 2);  // though the two began with different files
  EXPECT_EQ(set.rows[1].runs.size(), 2);
  const auto settings = identity_settings(set.rows[1].run().options);
  EXPECT_FALSE(settings.contains("weights"));
  EXPECT_FALSE(settings.contains("seed"));
  EXPECT_EQ(settings.at("weights.method"), "ft");
}

// Version 0.1.0 wrote fewer options; those that it did not have are no difference.
TEST_F(RunSets, KnowARunOfAnOlderVersion) {
  const fs::path older = fs::path(TPGM_TEST_DATA) / "study" / "run-0.1.0" / "finished" / "recipe.toml";
  std::string text = read_text(older).value();
  auto settings = load_recipe(older).settings;
  settings["seed"] = "1";
  const auto put = [&](const std::string& recipe) {
    test::put_file(folder_ / "older" / "recipe.toml", recipe);
    test::put_file(folder_ / "older" / "result.json", test::result_json({}));
  };
  put(text);
  run("today", settings);
  EXPECT_EQ(load().rows.size(), 1);

  // With the moving average there is a difference: that version had no warm-up.
  settings["model-ema"] = "true";
  const std::string off = "model-ema = false";
  put(text.replace(text.find(off), off.size(), "model-ema = true"));
  run("today", settings);
  EXPECT_EQ(load().rows.size(), 2);
  settings["model-ema-warmup"] = "false";
  run("today", settings);
  EXPECT_EQ(load().rows.size(), 1);
}

TEST_F(RunSets, AreRefusedWhereTheyCannotBeCompared) {
  EXPECT_HAS(error_of([&] { load_runs({folder_ / "nowhere"}); }), "[load_runs] there is no '");
  EXPECT_HAS(error_of([&] { load(); }), "is not a run and has none below it");
  run("a", {});
  EXPECT_HAS(error_of([&] { load_runs({folder_ / "a" / "recipe.toml"}); }), "is a file");
  run("b", {{"lr", "1"}}, {50, 60, 40, 99});
  const auto message = error_of([&] { load(); });
  EXPECT_HAS(message, "a' and '");
  EXPECT_HAS(message, "were tested on different data");
  EXPECT_HAS(message, "home (ID, 99 ");
  test::put_file(folder_ / "b" / "result.json", "nonsense");
  EXPECT_HAS(error_of([&] { load(); }), "b/result.json' is damaged");
  test::put_file(folder_ / "b" / "result.json",
                 R"({"tests": [{"name": "home", "id": true, "pictures": 0, "top1": null}]})");
  EXPECT_HAS(error_of([&] { load(); }), "of a test could be read");
  fs::remove(folder_ / "a" / "result.json");
  fs::remove(folder_ / "b" / "result.json");
  EXPECT_HAS(error_of([&] { load(); }), "none of the runs is finished; resume '");
}

// The tests of a run may come in another order.
TEST_F(RunSets, OrderTestsAlike) {
  run("a", {});
  run("b", {{"lr", "1"}});
  test::put_file(
      folder_ / "b" / "result.json",
      R"({"tests": [{"name": "away", "id": false, "pictures": 100, "scored_classes": 2, "top1": 1},)"
      R"({"name": "home", "id": true, "pictures": 100, "scored_classes": 2, "top1": 2}]})");
  const auto set = load();
  ASSERT_EQ(set.rows.size(), 2);
  for (const auto& row : set.rows) EXPECT_EQ(row.scores.at(0).test, "home");
  const auto& other = set.rows[0].run().path.filename() == "b" ? set.rows[0] : set.rows[1];
  EXPECT_EQ(other.scores.at(0).values.front(), 2);
}

}  // namespace
}  // namespace tpgm::test_run_set
