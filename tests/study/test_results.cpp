// Tables of results from made-up numbers: averages, changes, marks and files; lists of recipes; and
// the speed of a short run.
#include "tpgm/study/results.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/study/study_files.h"
#include "tests/study/tiny_classifier.h"
#include "tpgm/study/comparison.h"
#include "tpgm/study/cost.h"
#include "tpgm/study/tables.h"

namespace tpgm::test_results {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using Cells = std::vector<std::string>;
using Places = std::set<std::pair<size_t, size_t>>;  // row, column

Places marks_of(const Table& table) {
  const Places places(table.marked.begin(), table.marked.end());
  EXPECT_EQ(places.size(), table.marked.size()) << "a cell is marked twice";
  return places;
}

TEST(Score, HasAMeanAndASampleDeviation) {
  const Score score{"home", true, {2, 4, 4, 4, 5, 5, 7, 9}};
  EXPECT_EQ(score.mean(), 5);
  EXPECT_DOUBLE_EQ(score.deviation(), std::sqrt(32.0 / 7));  // 9 + 1 + 1 + 1 + 0 + 0 + 4 + 16, by n − 1
  EXPECT_EQ((Score{"home", true, {3}}.deviation()), 0);
  EXPECT_TRUE(std::isnan(Score{}.mean()));
  EXPECT_EQ(Score{}.deviation(), 0);
}

TEST(ResultRow, AveragesOverTests) {
  // The mean of each test counts once, whatever its number of seeds.
  const ResultRow row{"A", {{"home", true, {90}}, {"away", false, {10, 20, 30}}, {"far", false, {50}}}};
  EXPECT_EQ(row.average(true), 90);
  EXPECT_EQ(row.average(false), 35);
  EXPECT_TRUE(std::isnan((ResultRow{"A", {{"home", true, {90}}}}.average(false))));
  EXPECT_TRUE(std::isnan((ResultRow{"failed", {}}.average(true))));
}

RunResult result(const std::vector<std::pair<std::string, double>>& tests) {
  RunResult made;
  for (const auto& [name, top1] : tests)
    made.tests.push_back(
        {.name = name, .id = name == "home", .images = 10, .scored_classes = 2, .top1 = top1});
  return made;
}

TEST(ScoresOf, HaveAValueOfEverySeed) {
  const auto scores = scores_of({result({{"home", 60}, {"away", 40}}), result({{"home", 70}, {"away", 30}})});
  ASSERT_EQ(scores.size(), 2U);
  EXPECT_EQ(scores[0].test, "home");
  EXPECT_TRUE(scores[0].id);
  EXPECT_EQ(scores[0].values, (std::vector<double>{60, 70}));
  EXPECT_EQ(scores[1].test, "away");
  EXPECT_FALSE(scores[1].id);
  EXPECT_EQ(scores[1].values, (std::vector<double>{40, 30}));
  EXPECT_TRUE(scores_of({}).empty());
}

TEST(ScoresOf, AreOfOneSetOfTests) {
  const auto refused = [](const RunResult& other) {
    return error_of([&] { scores_of({result({{"home", 60}, {"away", 40}}), other}); });
  };
  EXPECT_HAS(refused(result({{"home", 60}, {"far", 40}})), "were tested on different data");
  EXPECT_HAS(refused(result({{"away", 40}, {"home", 60}})), "were tested on different data");
  EXPECT_HAS(refused(result({{"home", 60}, {"away", 40}, {"far", 1}})), "were tested on different data");
  EXPECT_HAS(refused(result({{"home", 60}})), "were tested on different data");
}

// Their ID averages are 80, 64 and 72, their OOD averages 30, 40 and 37.5.
std::vector<ResultRow> three_rows() {
  return {{"A", {{"away", false, {40}}, {"home", true, {80}}, {"far", false, {20}}}},
          {"B", {{"away", false, {50}}, {"home", true, {64}}, {"far", false, {30}}}},
          {"C", {{"away", false, {44, 46}}, {"home", true, {72, 72}}, {"far", false, {30, 30}}}}};
}

TEST(ResultsTable, ChangesAreRelativeToTheReference) {
  const auto table = results_table(three_rows(), "a caption", {{"home", "At home"}}, 1);
  EXPECT_EQ(table.caption, "a caption");
  EXPECT_EQ(table.columns, (Cells{"", "At home", "away", "far", "OOD avg.", "ID Δ (%)", "OOD Δ (%)"}));
  EXPECT_EQ(table.groups,
            (std::vector<std::pair<std::string, int>>{{"ID", 1}, {"OOD", 2}, {"Statistics", 3}}));
  ASSERT_EQ(table.rows.size(), 3U);
  EXPECT_EQ(table.rows[0], (Cells{"A", "80.00", "40.00", "20.00", "30.00", "25.00", "-25.00"}));
  EXPECT_EQ(table.rows[1], (Cells{"B", "64.00", "50.00", "30.00", "40.00", "0.00", "0.00"}));
  EXPECT_EQ(table.rows[2],
            (Cells{"C", "72.00 (0.00)", "45.00 (1.41)", "30.00 (0.00)", "37.50", "12.50", "-6.25"}));
  // The best of each column; B and C are equal on far.
  EXPECT_EQ(marks_of(table), (Places{{0, 1}, {1, 2}, {1, 4}, {0, 5}, {1, 6}}));
  EXPECT_HAS(to_markdown(table), " **80.00** ");
  EXPECT_HAS(to_text(table), " 80.00* ");

  const auto first = results_table(three_rows());
  EXPECT_EQ(first.rows[0][5], "0.00");
  EXPECT_EQ(first.rows[1][5], "-20.00");  // 64 of 80
  EXPECT_EQ(first.rows[2][6], "25.00");   // 37.5 of 30
}

TEST(ResultsTable, EqualsArePrintedAlikeAndNotMarked) {
  const auto marks = [](double a, double b) {
    return marks_of(results_table({{"A", {{"away", false, {a}}}}, {"B", {{"away", false, {b}}}}}));
  };
  EXPECT_FALSE(marks(30.001, 30.004).contains({0, 1}));
  EXPECT_FALSE(marks(30.001, 30.004).contains({1, 1}));
  EXPECT_FALSE(marks(30.001, 30.006).contains({0, 1}));  // 30.00 and 30.01
  EXPECT_TRUE(marks(30.001, 30.006).contains({1, 1}));
}

TEST(ResultsTable, HasTheColumnsThatItsTestsTake) {
  // One row: no changes and no marks.
  auto table = results_table({{"A", {{"home", true, {80}}, {"away", false, {40}}}}});
  EXPECT_EQ(table.columns, (Cells{"", "home", "away"}));
  EXPECT_EQ(table.groups, (std::vector<std::pair<std::string, int>>{{"ID", 1}, {"OOD", 1}}));
  EXPECT_TRUE(table.marked.empty());
  // Tests of one kind: no groups, and no kind in the titles.
  const auto at_home = [](const std::string& name, double a, double b) {
    return ResultRow{name, {{"one", true, {a}}, {"two", true, {b}}}};
  };
  table = results_table({at_home("A", 50, 70), at_home("B", 60, 90)});
  EXPECT_EQ(table.columns, (Cells{"", "one", "two", "avg.", "Δ (%)"}));
  EXPECT_TRUE(table.groups.empty());
  EXPECT_EQ(table.rows[1], (Cells{"B", "60.00", "90.00", "75.00", "25.00"}));
}

TEST(ResultsTable, FailedRowsHaveNoNumbers) {
  const ResultRow failed{"B", {}};
  const ResultRow a{"A", {{"home", true, {80}}, {"away", false, {40}}}},
      c{"C", {{"home", true, {90}}, {"away", false, {20}}}};
  auto table = results_table({a, failed, c});
  EXPECT_EQ(table.rows[1], (Cells{"B", "failed", "failed", "–", "–"}));
  EXPECT_EQ(table.rows[2], (Cells{"C", "90.00", "20.00", "12.50", "-50.00"}));
  EXPECT_EQ(marks_of(table), (Places{{2, 1}, {0, 2}, {2, 3}, {0, 4}}));
  // Without the reference there are no changes.
  table = results_table({a, failed, c}, "", {}, 1);
  EXPECT_EQ(table.columns, (Cells{"", "home", "away"}));
  EXPECT_EQ(results_table({failed, a}).columns, (Cells{"", "home", "away"}));
  // There is no change relative to 0 %.
  const ResultRow nothing{"N", {{"home", true, {0}}, {"away", false, {40}}}};
  table = results_table({nothing, a});
  EXPECT_EQ(table.rows[1], (Cells{"A", "80.00", "40.00", "–", "0.00"}));
  EXPECT_EQ(marks_of(table), (Places{{1, 1}}));  // the others are ties
}

TEST(ResultsTable, RefusesWhatCannotBeCompared) {
  const ResultRow a{"first", {{"home", true, {80}}, {"away", false, {40}}}};
  const auto refused = [&](const std::vector<Score>& scores) {
    return error_of([&] { results_table({a, {"second", scores}}); });
  };
  for (const auto& scores : {std::vector<Score>{{"home", true, {80}}},
                             {{"home", true, {80}}, {"far", false, {40}}},
                             {{"away", false, {40}}, {"home", true, {80}}}})
    EXPECT_HAS(refused(scores), "'second' was tested on other data than 'first'");
  EXPECT_HAS(error_of([] { results_table({{"A", {}}, {"B", {}}}); }), "no row has any numbers");
  EXPECT_HAS(error_of([] { results_table({}); }), "no row has any numbers");
}

// The paper has home and away, but not far.
PaperComparison comparison() {
  PaperComparison made;
  made.name = "mini";
  made.tests = {{"home", "Home"}, {"away", "Away"}};
  made.facts = {"Two seeds.", "On the CPU."};
  ComparedRow ft{.label = "Fine-tuning",
                 .variant = "ft",
                 .scores = {{"home", true, {79, 81}}, {"away", false, {40, 40}}, {"far", false, {20, 30}}},
                 .numbers = {PaperNumber{80.93, 0.08}, PaperNumber{42, std::nullopt}},
                 .chosen = "lr=0.01",
                 .seeds = 2,
                 .error = ""};
  ComparedRow tpgm{.label = "TPGM",
                   .variant = "tpgm:mu=0.1,norm=l2",
                   .scores = {{"home", true, {85}}, {"away", false, {50}}, {"far", false, {35}}},
                   .numbers = {std::nullopt, PaperNumber{48.5, 0.5}},
                   .chosen = "",
                   .seeds = 1,
                   .error = ""};
  ComparedRow failed{.label = "L2-SP",
                     .variant = "l2-sp",
                     .scores = {},
                     .numbers = {std::nullopt, std::nullopt},
                     .chosen = "",
                     .seeds = 0,
                     .error = "no luck"};
  made.rows = {ft, tpgm, failed};
  return made;
}

TEST(PaperComparison, StandsRowByRow) {
  const auto table = to_table(comparison());
  EXPECT_EQ(table.columns, (Cells{"", "Home", "Away", "far", "OOD avg.", "ID Δ (%)", "OOD Δ (%)"}));
  EXPECT_EQ(table.groups,
            (std::vector<std::pair<std::string, int>>{{"ID", 1}, {"OOD", 2}, {"Statistics", 3}}));
  ASSERT_EQ(table.rows.size(), 7U);
  EXPECT_EQ(table.rows[0],
            (Cells{"Fine-tuning", "80.00 (1.41)", "40.00 (0.00)", "25.00 (7.07)", "32.50", "0.00", "0.00"}));
  // Without all tests the paper has no average.
  EXPECT_EQ(table.rows[1], (Cells{"  paper", "80.93 (0.08)", "42.00", "–", "–", "0.00", "–"}));
  EXPECT_EQ(table.rows[2], (Cells{"  difference", "−0.93", "−2.00", "–", "–", "", ""}));
  EXPECT_EQ(table.rows[3], (Cells{"TPGM", "85.00", "50.00", "35.00", "42.50", "6.25", "30.77"}));
  EXPECT_EQ(table.rows[4], (Cells{"  paper", "–", "48.50 (0.50)", "–", "–", "–", "–"}));
  EXPECT_EQ(table.rows[5], (Cells{"  difference", "–", "+1.50", "–", "–", "", ""}));
  EXPECT_EQ(table.rows[6], (Cells{"L2-SP", "failed", "failed", "failed", "–", "–", "–"}));
  EXPECT_EQ(table.rules, std::vector<size_t>{3});
  // Only our numbers are marked.
  EXPECT_EQ(marks_of(table), (Places{{3, 1}, {3, 2}, {3, 3}, {3, 4}, {3, 5}, {3, 6}}));
}

TEST(PaperComparison, AveragesWhereThePaperHasAll) {
  auto all = comparison();
  for (auto& row : all.rows)
    std::erase_if(row.scores, [](const Score& score) { return score.test == "far"; });
  all.tests.push_back({"third", "Third"});  // that only the paper has
  all.rows[0].numbers.push_back(PaperNumber{52, std::nullopt});
  const auto table = to_table(all);
  EXPECT_EQ(table.columns, (Cells{"", "Home", "Away", "Third", "OOD avg.", "ID Δ (%)", "OOD Δ (%)"}));
  EXPECT_EQ(table.rows[0].at(3), "–");
  EXPECT_EQ(table.rows[0].at(4), "–");
  EXPECT_EQ(table.rows[1], (Cells{"  paper", "80.93 (0.08)", "42.00", "52.00", "47.00", "0.00", "0.00"}));
  all.rows.clear();
  EXPECT_HAS(error_of([&] { to_table(all); }), "no row of 'mini' has any numbers");
}

TEST(PaperComparison, EqualsAreNotMarked) {
  auto all = comparison();
  all.rows[1].scores = {{"home", true, {80.003}}, {"away", false, {30}}, {"far", false, {25}}};
  const auto marks = marks_of(to_table(all));
  EXPECT_FALSE(marks.contains({0, 1}));
  EXPECT_FALSE(marks.contains({3, 1}));
  EXPECT_TRUE(marks.contains({0, 2}));
  EXPECT_FALSE(marks.contains({3, 2}));
}

constexpr const char* kLong =
    "row,recipe,test,id,mean,std,seeds,paper,paper_std,difference\n"
    "Fine-tuning,ft,home,true,80,1.4142135623730951,2,80.93,0.08,-0.9300\n"
    "Fine-tuning,ft,away,false,40,0,2,42,,-2.0000\n"
    "Fine-tuning,ft,far,false,25,7.0710678118654755,2,,,\n"
    "TPGM,\"tpgm:mu=0.1,norm=l2\",home,true,85,0,1,,,\n"
    "TPGM,\"tpgm:mu=0.1,norm=l2\",away,false,50,0,1,48.5,0.5,1.5000\n"
    "TPGM,\"tpgm:mu=0.1,norm=l2\",far,false,35,0,1,,,\n"
    "L2-SP,l2-sp,home,true,,,0,,,\n"
    "L2-SP,l2-sp,away,false,,,0,,,\n"
    "L2-SP,l2-sp,far,false,,,0,,,\n";

class WrittenTables : public test::Scratch {};

TEST_F(WrittenTables, HaveTheCommandFactsAndFailures) {
  write_tables(comparison(), folder_, "tpgm reproduce mini --seeds 2");
  EXPECT_EQ(files_in_folder(), 3U);
  const auto markdown = test::read_bytes(folder_ / "table.md");
  EXPECT_TRUE(markdown.starts_with("# mini\n\n"));
  EXPECT_HAS(markdown, " **85.00** |");
  EXPECT_HAS(markdown,
             "\n- `tpgm reproduce mini --seeds 2`\n- Two seeds.\n- On the CPU.\n"
             "- Chosen on selection data: Fine-tuning: lr=0.01\n- L2-SP failed: no luck\n");
  const auto latex = test::read_bytes(folder_ / "table.tex");
  EXPECT_TRUE(latex.starts_with("% tpgm reproduce mini --seeds 2\n"));
  EXPECT_HAS(latex, "TPGM & \\textbf{85.00} & \\textbf{50.00} & ");
  EXPECT_EQ(test::read_bytes(folder_ / "table.csv"), kLong);
}

TEST_F(WrittenTables, AreNotWrittenWithoutNumbers) {
  auto none = comparison();
  for (auto& row : none.rows) row.scores.clear();
  EXPECT_HAS(error_of([&] { write_tables(none, folder_, "tpgm"); }), "no row of 'mini' has any numbers");
  EXPECT_EQ(files_in_folder(), 0U);
}

TEST(PaperComparison, AsJson) {
  const auto json = to_json(comparison());
  EXPECT_EQ(json["name"], "mini");
  EXPECT_EQ(json["facts"], (Cells{"Two seeds.", "On the CPU."}));
  ASSERT_EQ(json["rows"].size(), 3U);
  const auto& ft = json["rows"][0];
  EXPECT_EQ(ft["row"], "Fine-tuning");
  EXPECT_EQ(ft["recipe"], "ft");
  EXPECT_EQ(ft["chosen"], "lr=0.01");
  EXPECT_EQ(ft["seeds"], 2);
  EXPECT_TRUE(ft["error"].is_null());
  ASSERT_EQ(ft["tests"].size(), 3U);
  const auto& home = ft["tests"][0];
  EXPECT_EQ(home["name"], "home");
  EXPECT_EQ(home["id"], true);
  EXPECT_EQ(home["mean"], 80);
  EXPECT_DOUBLE_EQ(home["std"], std::sqrt(2));
  EXPECT_EQ(home["values"], (std::vector<double>{79, 81}));
  EXPECT_EQ(home["paper"], 80.93);
  EXPECT_EQ(home["paper_std"], 0.08);
  EXPECT_NEAR(home["difference"], -0.93, 1e-12);
  EXPECT_TRUE(ft["tests"][1]["paper_std"].is_null());
  EXPECT_TRUE(ft["tests"][2]["paper"].is_null());
  const auto& failed = json["rows"][2];
  EXPECT_EQ(failed["error"], "no luck");
  EXPECT_TRUE(failed["tests"][0]["mean"].is_null());
  EXPECT_TRUE(failed["tests"][0]["difference"].is_null());
  EXPECT_EQ(failed["tests"][0]["values"].size(), 0U);
}

class Recipes : public test::Scratch {
 protected:
  Recipes() {
    test::put_file(folder_ / "tables" / "told" / "paper.csv",
                   "## Numbers of the paper \nrow,recipe,home=Home,away=Away\nFine-tuning,ft,,\n");
    test::put_file(folder_ / "tables" / "told" / "ft.toml", "# of a table\n");
    test::put_file(folder_ / "tables" / "a" / "b" / "paper.csv",
                   "row,recipe,home=Home,away\nFine-tuning,ft,1,2\nAgain,ft,,\n");
    test::put_file(folder_ / "tables" / "a" / "b" / "ft.toml", "lr = 1\n");
    test::put_file(folder_ / "tables" / "a" / "empty" / "ft.toml", "lr = 1\n");
    test::put_file(folder_ / "deep" / "er" / "one.toml", "#  What it\tis for \nlr = 1\n");
    test::put_file(folder_ / "plain.toml", "lr = 1\n");
    test::put_file(folder_ / "wise.toml", "method = \"wise\"\n# too late to count\n");
    test::put_file(folder_ / "notes.txt", "# no recipe\n");
  }
};

TEST_F(Recipes, AreListedBehindTables) {
  const auto infos = list_recipes(folder_);
  ASSERT_EQ(infos.size(), 5U);
  const auto check = [&](size_t i, const char* name, const char* about, const fs::path& path, bool table) {
    EXPECT_EQ(infos[i].name, name);
    EXPECT_EQ(infos[i].about, about);
    EXPECT_EQ(infos[i].path, folder_ / path);
    EXPECT_EQ(infos[i].table, table);
  };
  check(0, "a/b", "2 rows on Home, away", fs::path("tables") / "a" / "b", true);
  check(1, "told", "Numbers of the paper", fs::path("tables") / "told", true);
  check(2, "deep/er/one", "What it?is for", fs::path("deep") / "er" / "one.toml", false);
  check(3, "plain", "", "plain.toml", false);
  check(4, "wise", "method wise", "wise.toml", false);
}

TEST_F(Recipes, TablesAreFoundAtAnyDepth) {
  const auto names = [](const std::vector<TableFolder>& tables) {
    Cells result;
    for (const auto& table : tables) result.push_back(table.name);
    return result;
  };
  EXPECT_EQ(names(tables_below(folder_ / "tables", "")), (Cells{"a/b", "told"}));
  EXPECT_EQ(names(tables_below(folder_ / "tables", "x")), (Cells{"x/a/b", "x/told"}));
  const auto itself = tables_below(folder_ / "tables" / "told", "y");
  EXPECT_EQ(names(itself), Cells{"y"});
  EXPECT_EQ(itself.front().path, folder_ / "tables" / "told");
  EXPECT_TRUE(tables_below(folder_ / "deep", "").empty());
}

class Speed : public test::Scratch {
 protected:
  // Ten steps an epoch, of four images.
  TrainOptions options() const {
    for (const auto& [part, count] : {std::pair{"train/home", 20}, {"test/home", 1}}) {
      for (const char* name : {"bars", "dots"}) {
        for (int i = 0; i < count; ++i)
          test::write_image(folder_ / "data" / part / name / fmt::format("{:02}.png", i),
                            static_cast<uint64_t>(i), 8, 8);
      }
    }
    return make_options({{"model", test::kTinyVit},
                         {"data-dir", (folder_ / "data").string()},
                         {"train", "home"},
                         {"epochs", "100"},
                         {"batch-size", "4"},
                         {"radius-fraction", "0"},
                         {"selection-fraction", "0"},
                         {"device", "cpu"},
                         {"workers", "1"}});
  }
};

// The steps that count take a part of the whole time, which bounds the speed from below.
TEST_F(Speed, IsMeasuredInAFewSteps) {
  int asked = 0;
  const auto given = options();
  const auto begin = std::chrono::steady_clock::now();
  const double speed = measure_speed(given, [&] { return ++asked < 0; });
  const std::chrono::duration<double> whole = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(speed, 4 / whole.count());
  EXPECT_LE(asked, 20);  // of 1000 steps
  EXPECT_EQ(files_in_folder(), 1U);
}

TEST_F(Speed, IsNotKnownOfWhatWasStopped) {
  int asked = 0;
  EXPECT_EQ(measure_speed(options(), [&] { return ++asked == 2; }), 0);
  EXPECT_EQ(asked, 2);
}

}  // namespace
}  // namespace tpgm::test_results
