// Tables of papers: what they say, what their runs depend on and cost, and what comes of them.
#include "tpgm/io/file.h"
#include "tpgm/study/plan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/study/study_files.h"

namespace tpgm::test_plan {
namespace {

namespace fs = std::filesystem;
using test::error_of;

class Tables : public test::Scratch {
 protected:
  Tables() {
    test::write_data(folder_ / "data");
    recipe("common", "train = \"home\"\ntest = [\"away\"]\nepochs = 4\nbatch-size = 8\nseeds = [0, 1]\n");
    recipe("ft", "base = \"common.toml\"\nsweep = [\"lr=1e-3,1e-2\"]\n");
    recipe("l2-sp",
           "base = \"common.toml\"\nmethod = \"l2-sp\"\ntake = [\"lr=ft.lr\"]\nsweep = [\"mu=1e-3,1e-2\"]\n");
    recipe("wise", "base = \"common.toml\"\nmethod = \"wise\"\nepochs = 0\ntake = [\"weights=ft\"]\n");
    paper(
        "row,recipe,home=Home,away=Away\nFine-tuning,ft,80.93 (0.08),\n\"WISE, 0.3\",wise:ratio=0.3,50,40\n"
        "L2-SP,l2-sp,,\n");
    options_.output = folder_ / "out";
    options_.given = {{"data-dir", (folder_ / "data").string()}};
    options_.jobs = test::by_script(test::finishing_script());
  }
  void recipe(const std::string& name, const std::string& text) const {
    test::put_file(table_ / (name + ".toml"), text);
  }
  void paper(const std::string& text) const { test::put_file(table_ / "paper.csv", text); }
  PaperTable load() const { return load_table(table_, "mini"); }
  TablePlan plan() const { return {load(), options_}; }
  std::string refused() const {
    return error_of([&] { plan(); });
  }

  fs::path table_ = folder_ / "tables" / "mini";
  ReproduceOptions options_;
};

TEST_F(Tables, AreRead) {
  const auto table = load();
  EXPECT_EQ(table.name, "mini");
  EXPECT_EQ(table.tests,
            (std::vector<std::pair<std::string, std::string>>{{"home", "Home"}, {"away", "Away"}}));
  ASSERT_EQ(table.rows.size(), 3);
  EXPECT_EQ(table.rows[0].numbers.at(0)->mean, 80.93);
  EXPECT_EQ(table.rows[0].numbers.at(0)->deviation, 0.08);
  EXPECT_FALSE(table.rows[0].numbers.at(1));
  EXPECT_EQ(table.rows[1].label, "WISE, 0.3");
  EXPECT_EQ(table.rows[1].variant, "wise:ratio=0.3");
  EXPECT_EQ(table.rows[1].recipe.settings.at("ratio"), "0.3");
  EXPECT_EQ(table.rows[1].numbers.at(1)->mean, 40);
  EXPECT_FALSE(table.rows[1].numbers.at(1)->deviation);
}

TEST_F(Tables, SayWhatIsWrongWithTheirNumbers) {
  const auto wrong = [&](const std::string& text) {
    paper(text);
    return error_of([&] { load(); });
  };
  const std::string header = "row,recipe,home=Home\n";
  EXPECT_HAS(wrong("row,home\n"), "expected row,recipe,TEST=TITLE");
  EXPECT_HAS(wrong("row,recipe,home,home\n"), "a test without a name, or there twice");
  EXPECT_HAS(wrong(header + "A,ft,80 %\n"), "line 2: '80 %' is not a number");
  EXPECT_HAS(wrong(header + "# a comment\n\nA,ft,80 (x)\n"), "line 4: '80 (x)' is not a number");
  EXPECT_HAS(wrong(header + "A,ft,80 (1\n"), "is not a number");
  EXPECT_HAS(wrong(header + "A,ft,1,2\n"), "4 fields under 3 columns");
  EXPECT_HAS(wrong(header + "A,wise:ratio=0.3,norm=l2,1\n"), "put a recipe with several options in quotes");
  EXPECT_HAS(wrong(header + ",ft,1\n"), "a row needs a label and a recipe");
  EXPECT_HAS(wrong(header + "A,fft,\n"), "did you mean 'ft'?");
  EXPECT_HAS(wrong(header + "A,wise:ratio,\n"), "'ratio': expected KEY=VALUE");
  EXPECT_HAS(wrong(header), "has no rows");
  EXPECT_HAS(error_of([&] { load_table(folder_, "none"); }), "[load_table] cannot read");
}

TEST_F(Tables, AreFoundByPathAndByName) {
  const auto names = [](const std::vector<TableFolder>& tables) {
    std::vector<std::string> result;
    for (const auto& table : tables) result.push_back(table.name);
    return result;
  };
  fs::create_directories(folder_ / "tables" / "more" / "deep");
  test::put_file(folder_ / "tables" / "more" / "deep" / "paper.csv", "");
  const std::vector<fs::path> roots = {folder_ / "nowhere", folder_};
  EXPECT_EQ(names(find_tables({"mini"}, roots)), std::vector<std::string>{"mini"});
  EXPECT_EQ(names(find_tables({"more", table_.string()}, roots)),
            (std::vector<std::string>{"more/deep", "mini"}));
  EXPECT_EQ(names(find_tables({(folder_ / "tables").string()}, {})),
            (std::vector<std::string>{"tables/mini", "tables/more/deep"}));
  EXPECT_HAS(error_of([&] { find_tables({"minni"}, roots); }), "did you mean 'mini'?");
  EXPECT_HAS(error_of([&] { find_tables({"mini"}, {}); }), "no recipes were found");
  EXPECT_HAS(error_of([&] { find_tables({"mini", "mini"}, roots); }), "two tables are called 'mini'");
}

TEST_F(Tables, DependOnRowsThatAreThere) {
  const auto taking = [&](const std::string& take) {
    recipe("l2-sp", "base = \"common.toml\"\nmethod = \"l2-sp\"\ntake = [\"" + take + "\"]\n");
    return refused();
  };
  EXPECT_HAS(taking("lr=ftt.lr"), "no such row; did you mean 'ft'?");
  EXPECT_HAS(taking("lr=ft.momentum"), "neither sweeps, takes nor sets 'momentum'");
  EXPECT_HAS(taking("lrr=ft.lr"), "did you mean 'lr'?");
  EXPECT_HAS(taking("lr"), "KEY=ROW.KEY");
  EXPECT_HAS(taking("lr=ft"), "lr=ROW.KEY");
  recipe("ft", "base = \"common.toml\"\nlr = 1\ntake = [\"mean=l2-sp.lr\"]\n");
  EXPECT_HAS(taking("lr=ft.lr"), "takes from a row that takes from it");
  options_.rows = {"nobody"};
  recipe("ft", "base = \"common.toml\"\nlr = 1\n");
  EXPECT_HAS(taking("lr=ft.lr"), "`rows`: 'mini' has no row 'nobody'");
}

// 40 images of home: 4 are held out for radii, 4 for selection; 12 and 16 are tested on.
TEST_F(Tables, CostStepsAndImages) {
  const auto options = make_options({{"data-dir", (folder_ / "data").string()},
                                     {"train", "home"},
                                     {"test", "away"},
                                     {"epochs", "4"},
                                     {"batch-size", "8"}});
  DataSizes sizes;
  const auto size = sizes.of(options);
  EXPECT_EQ(size.train, 32);
  EXPECT_EQ(size.radius, 4);
  EXPECT_EQ(size.selection, 4);
  EXPECT_EQ(size.tests, 28);
  auto cost = cost_of(options, size);
  EXPECT_EQ(cost.runs, 1);
  EXPECT_EQ(cost.steps, 4 * 4);
  EXPECT_EQ(cost.training, 4 * 32);
  EXPECT_EQ(cost.radius, 0);
  EXPECT_EQ(cost.evaluation, 5 * 4 + 28);
  EXPECT_DOUBLE_EQ(cost.work(), 128 + 48 / 3.0);
  auto tpgm = options;
  tpgm.method = "tpgm";
  EXPECT_EQ(cost_of(tpgm, size).radius, 16 * 2);  // a quarter of a batch, in every step
  tpgm.method_options = {{"every", "5"}, {"radius_steps", "3"}};
  EXPECT_EQ(cost_of(tpgm, size).radius, 4 * 3 * 2);
  tpgm.method_options = {{"every", "end"}};
  EXPECT_EQ(cost_of(tpgm, size).radius, 200 * 2);
  cost += cost_of(tpgm, size);
  EXPECT_EQ(cost.runs, 2);
  EXPECT_EQ(cost.steps, 32);
  EXPECT_EQ(cost.radius, 400);
}

TEST_F(Tables, AreScaledDown) {
  Settings settings{{"method", "tpgm"}, {"every", "end"},      {"epochs", "10"}, {"warmup-epochs", "2"},
                    {"patience", "4"},  {"decay-epochs", "1"}, {"fraction", "1"}};
  scale_down(settings, 0.25, {{"patience", "4"}});
  EXPECT_EQ(settings.at("fraction"), "0.25");
  EXPECT_EQ(settings.at("test-fraction"), "0.25");
  EXPECT_EQ(settings.at("epochs"), "3");  // 2.5, rounded
  EXPECT_EQ(settings.at("warmup-epochs"), "1");
  EXPECT_EQ(settings.at("decay-epochs"), "1");
  EXPECT_EQ(settings.at("patience"), "4");  // given
  EXPECT_EQ(settings.at("radius-steps"), "50");
  Settings probing{{"method", "lp-ft"}, {"epochs", "4"}, {"lp-epochs", "4"}};
  scale_down(probing, 0.25, {});
  EXPECT_EQ(probing.at("epochs"), "1");
  EXPECT_EQ(probing.at("lp-epochs"), "0");  // an epoch is left to fine-tune in
  Settings none{{"epochs", "0"}};
  scale_down(none, 0.25, {});
  EXPECT_EQ(none.at("epochs"), "0");
  const Settings same{{"epochs", "7"}};
  Settings whole = same;
  scale_down(whole, 1, {});
  EXPECT_EQ(whole, same);
}

// Each test is thinned once. What is held out for a test is a share of the images that are used.
TEST_F(Tables, AreScaledDownWithTheirTests) {
  const auto write = [&](const std::string& part, int count) {
    for (const char* name : {"bars", "dots"}) {
      for (int i = 0; i < count; ++i)
        test::put_file(folder_ / "domains" / part / name / fmt::format("{:02}.png", i), "");
    }
  };
  write("art", 100);
  write("photo/train", 100);
  write("photo/test", 30);
  options_.given = {{"data-dir", (folder_ / "domains").string()}, {"train", "photo"}, {"test", "art"}};
  options_.rows = {"Fine-tuning"};
  const auto size = [&](double scale) {
    options_.scale = scale;
    DataSizes sizes;
    return sizes.of(plan().example());
  };
  EXPECT_EQ(size(1).tests, 60 + 200);
  EXPECT_EQ(size(0.5).tests, 30 + 100);
  EXPECT_EQ(size(0.1).tests, 6 + 20);
  EXPECT_EQ(size(1).train, 160);
  EXPECT_EQ(size(0.5).train, 80);
  options_.given["train"] = "art";
  options_.given["test"] = "photo";
  EXPECT_EQ(size(1).tests, 40 + 60);
  EXPECT_EQ(size(0.5).tests, 40 / 4 + 30);
}

TEST_F(Tables, CostIsAskedWithoutATrace) {
  const auto mini = plan();
  DataSizes sizes;
  for (int times = 0; times < 2; ++times) {
    const auto cost = mini.cost(sizes);
    ASSERT_EQ(cost.rows.size(), 3);
    EXPECT_EQ(cost.rows[0].first, "ft");
    EXPECT_EQ(cost.rows[0].second.runs, 4);
    EXPECT_EQ(cost.rows[0].second.steps, 4 * 16);
    EXPECT_EQ(cost.rows[1].second.runs, 2);  // WISE: of the best, for each seed
    EXPECT_EQ(cost.rows[1].second.steps, 0);
    EXPECT_EQ(cost.rows[2].second.runs, 4);  // with the best lr, two mu
    EXPECT_EQ(cost.all.runs, 10);
    EXPECT_EQ(cost.left.runs, 10);
    EXPECT_EQ(cost.finished, 0);
    EXPECT_EQ(to_table(cost).rows.back().at(1), "10");
  }
  EXPECT_EQ(mini.example().method, "ft");
  EXPECT_FALSE(fs::exists(folder_ / "out"));
  // Runs that are there count, and what depends on them is known by then.
  for (const char* lr : {"1e-3", "1e-2"}) {
    for (int seed : {0, 1}) {
      const fs::path run = folder_ / "out" / "mini" / "ft" / fmt::format("lr={},seed={}", lr, seed);
      test::write_run(run, {}, {lr == std::string("1e-3") ? 70.0 : 60.0, 60, 40, 100});
    }
  }
  const fs::path wise = folder_ / "out" / "mini" / "wise,ratio=0.3" / "ft,lr=1e-3" / "seed=1";
  test::write_run(wise, {{"method", "wise"}});
  const auto cost = mini.cost(sizes);
  EXPECT_EQ(cost.finished, 5);
  EXPECT_EQ(cost.left.runs, 5);
}

TEST_F(Tables, AreMadeInTheOrderOfTheirDependencies) {
  auto mini = plan();
  DataSizes sizes;
  EXPECT_TRUE(mini.run(sizes));
  const fs::path out = folder_ / "out" / "mini";
  // lr=1e-2 is the best of ft: it is taken, and its runs are what WISE begins with.
  for (const char* seed : {"0", "1"}) {
    const auto settings =
        load_recipe(out / "wise,ratio=0.3" / "ft,lr=1e-2" / fmt::format("seed={}.toml", seed)).settings;
    EXPECT_EQ(settings.at("weights"), (out / "ft" / fmt::format("lr=1e-2,seed={}", seed)).string());
    EXPECT_EQ(settings.at("epochs"), "0");
    EXPECT_TRUE(fs::exists(out / "l2-sp" / fmt::format("lr=1e-2,mu=1e-3,seed={}", seed) / "result.json"));
    EXPECT_FALSE(fs::exists(out / "l2-sp" / fmt::format("lr=1e-3,mu=1e-3,seed={}", seed)));
  }
  EXPECT_EQ(mini.best_runs().size(), 6);
  const auto comparison = mini.comparison();
  ASSERT_EQ(comparison.rows.size(), 3);
  EXPECT_EQ(comparison.rows[0].chosen, "lr=1e-2");
  EXPECT_EQ(comparison.rows[0].seeds, 2);
  const auto table = to_table(comparison);
  EXPECT_EQ(table.columns, (std::vector<std::string>{"", "Home", "Away", "ID Δ (%)", "OOD Δ (%)"}));
  EXPECT_EQ(table.rows[0].at(1), "60.00 (0.00)");
  EXPECT_EQ(table.rows[1].at(1), "80.93 (0.08)");
  EXPECT_EQ(table.rows[2].at(1), "−20.93");
  EXPECT_HAS(long_csv(comparison), "L2-SP,l2-sp,away,false,40,0,2,,,\n");
  EXPECT_EQ(to_json(comparison)["rows"][1]["tests"][0]["difference"], 10);
  EXPECT_EQ(plan().cost(sizes).left.runs, 0);
}

TEST_F(Tables, LeaveOutWhatDependsOnAFailure) {
  options_.jobs =
      test::by_script("case \"$1\" in */ft/*) echo 'no luck'; exit 1 ;; esac\n" + test::finishing_script());
  std::string said;
  options_.jobs.callbacks.say = [&](const std::string& text) { said += text + "\n"; };
  recipe("l2-sp", "base = \"common.toml\"\nmethod = \"l2-sp\"\nlr = 1e-3\n");
  auto mini = plan();
  DataSizes sizes;
  EXPECT_FALSE(mini.run(sizes));
  EXPECT_HAS(said, "wise:ratio=0.3 cannot be made: it takes from 'ft', which failed");
  const auto rows = mini.comparison().rows;
  EXPECT_HAS(rows[0].error, "no luck");
  EXPECT_TRUE(rows[1].scores.empty());
  EXPECT_EQ(rows[2].scores.at(0).mean(), 60);
  EXPECT_EQ(mini.best_runs().size(), 2);
}

TEST_F(Tables, AreMadeInPart) {
  options_.rows = {"WISE, 0.3"};
  options_.seeds = {"5"};
  const auto mini = plan();
  DataSizes sizes;
  const auto cost = mini.cost(sizes);
  ASSERT_EQ(cost.rows.size(), 2);  // it takes from ft
  EXPECT_EQ(cost.rows[0].second.runs, 2);
  EXPECT_EQ(cost.rows[1].second.runs, 1);
}

}  // namespace
}  // namespace tpgm::test_plan
