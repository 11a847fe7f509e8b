// Sections of a report about runs, of run folders with made-up numbers: the content of each figure and table,
// the sentence where data are missing, and that names are escaped in the page.
#include "tpgm/report/sections/sections.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>

#include "tests/study/study_files.h"
#include "tests/study/tiny_classifier.h"
#include "tpgm/io/safetensors.h"
#include "tpgm/report/sections/run_report.h"

namespace tpgm::test_sections {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using Cells = std::vector<std::string>;
using Scores = std::vector<std::tuple<std::string, bool, double>>;  // name, ID, accuracy

// In the order of their bytes, which is that of their folders.
const Cells kClasses = {"\"so\" & 'so'", "<script>alert(1)", "two_words"};

template <class Block>
const Block& block(const Section& section, size_t i) {
  if (i >= section.blocks.size() || !std::holds_alternative<Block>(section.blocks[i])) {
    ADD_FAILURE() << "'" << section.title << "' has no such block at " << i;
    static const Block none{};
    return none;
  }
  return std::get<Block>(section.blocks[i]);
}

const Figure& figure(const Section& section, size_t i = 0) { return block<Figure>(section, i); }

// The text of a section that is one sentence.
std::string sentence(const Section& section) {
  EXPECT_EQ(section.blocks.size(), 1U) << section.title;
  return block<Paragraph>(section, 0).text;
}

// The fields of each line, for CSV files without quotes.
std::vector<Cells> fields_of(const std::string& csv) {
  std::vector<Cells> lines;
  std::istringstream stream(csv);
  for (std::string line; std::getline(stream, line);) {
    auto& fields = lines.emplace_back();
    std::istringstream parts(line);
    for (std::string field; std::getline(parts, field, ',');) fields.push_back(field);
  }
  return lines;
}

// The CSV of a plane without its columns spread and spread_x.
std::string without_bars(const std::string& csv) {
  std::string text;
  for (const auto& fields : fields_of(csv))
    text += fields[0] + "," + fields[1] + "," + fields[2] + "," + (fields.size() > 5 ? fields[5] : "") + "\n";
  return text;
}

// The names of a plot's series, each once.
Cells series_of(const Figure& figure) {
  Cells names;
  for (const auto& fields : fields_of(figure.csv)) {
    if (names.empty() || names.back() != fields.at(0)) names.push_back(fields.at(0));
  }
  names.erase(names.begin());  // the header
  return names;
}

class Sections : public test::Scratch {
 protected:
  Sections() { at::set_num_threads(1); }

  // A finished run with these settings, on the data and from the anchor that all runs share.
  void run(const std::string& name, Settings settings, const test::ResultFile& result = {}) const {
    const Settings all{{"checkpoint", anchor_.string()},
                       {"head", "checkpoint"},
                       {"data-dir", data_.string()},
                       {"train", "home"},
                       {"test", "away"},
                       {"device", "cpu"}};
    settings.insert(all.begin(), all.end());
    test::write_run(runs_ / name, settings, result);
  }
  void put(const std::string& name, const std::string& text) const { test::put_file(runs_ / name, text); }
  void put_scores(const std::string& name, const Scores& scores) const {
    Cells tests;
    for (const auto& [test, id, top1] : scores)
      tests.push_back(
          fmt::format(R"({{"name": "{}", "id": {}, "top1": {}, "pictures": 100}})", test, id, top1));
    put(name + "/result.json", fmt::format(R"({{"tests": [{}], "selection": 50}})", fmt::join(tests, ", ")));
  }
  std::string weights(const std::string& name) const { return (runs_ / name).string(); }
  RunSet load() const { return load_runs({runs_}); }

  // All parameters are 0, so that distances are exact.
  static std::shared_ptr<Classifier> zero_model() {
    auto model = test::tiny_classifier(static_cast<int64_t>(kClasses.size()));
    const at::NoGradGuard no_grad;
    for (auto& parameter : model->parameters()) parameter.zero_();
    return model;
  }
  void write_anchor() const { test::save_classifier(*zero_model(), anchor_, kClasses); }
  // The weights of a run: the first values of these parameters; all others are 0.
  void write_weights(const std::string& name,
                     const std::vector<std::pair<std::string, std::vector<float>>>& values) const {
    auto model = zero_model();
    const at::NoGradGuard no_grad;
    auto parameters = model->named_parameters();
    for (const auto& [parameter, first] : values)
      parameters[parameter]
          .flatten()
          .narrow(0, 0, static_cast<int64_t>(first.size()))
          .copy_(at::tensor(first));
    test::save_classifier(*model, runs_ / name / "best.safetensors", kClasses);
  }
  // Writes so many images of each class, of 8 × 8 pixels.
  void write_images(const std::string& part, const std::vector<int>& counts) const {
    for (size_t k = 0; k < counts.size(); ++k) {
      for (int i = 0; i < counts[k]; ++i)
        test::write_image(image(part, k, i), 100 * k + static_cast<uint64_t>(i), 8, 8);
    }
  }
  fs::path image(const std::string& part, size_t label, int i) const {
    return data_ / part / kClasses[label] / fmt::format("{}.png", i);
  }

  const fs::path runs_ = folder_ / "runs", data_ = folder_ / "data", anchor_ = folder_ / "anchor.safetensors";
};

// ---------------------------------------------------------------------------------------------------------
// The plane.

TEST_F(Sections, PlaneJoinsTheRunsOfAMethod) {
  run("before", {{"epochs", "0"}}, {50, 50, 45});
  run("ft", {}, {50, 80, 40});
  run("lp", {{"method", "lp"}}, {50, 70, 42});
  for (const auto& [ratio, home, away] : {std::tuple{"0.7", 75.0, 44.0}, {"0.3", 65.0, 48.5}})
    run(std::string("wise") + ratio,
        {{"method", "wise"}, {"ratio", ratio}, {"epochs", "0"}, {"weights", weights("ft")}},
        {50, home, away});
  for (const auto& [mu, home, away] :
       {std::tuple{"0", 81.0, 46.0}, {"0.1", 60.0, 50.0}, {"0.01", 78.0, 47.0}})
    run(std::string("tpgm") + mu, {{"method", "tpgm"}, {"mu", mu}}, {50, home, away});
  const auto section = plane_section(load());
  ASSERT_EQ(section.blocks.size(), 1U);
  EXPECT_EQ(figure(section).id, "plane");
  EXPECT_EQ(without_bars(figure(section).csv),
            "series,x,y,label\n"
            "WISE,50,45,\n"  // from the pre-trained model
            "WISE,65,48.5,0.3\n"
            "WISE,75,44,0.7\n"
            "WISE,80,40,\n"  // to the fine-tuned model
            "TPGM-C,81,46,\n"
            "TPGM-C,78,47,μ=0.01\n"
            "TPGM-C,60,50,μ=0.1\n"
            "Pre-trained,50,45,Pre-trained\n"
            "FT,80,40,FT\n"
            "TPGM,81,46,TPGM\n"
            "LP,70,42,LP\n");
  EXPECT_HAS(figure(section).caption, "WISE along ratio from 0.3 to 0.7, through Pre-trained and FT");
  EXPECT_HAS(figure(section).caption, "TPGM-C along μ from 0 to 0.1, beginning with TPGM");
}

TEST_F(Sections, PlaneJoinsAnyNumericSetting) {
  run("a", {{"lr", "0.1"}}, {50, 60, 30});
  run("b", {{"lr", "0.02"}}, {50, 70, 20});
  run("c", {{"lr", "0.02"}, {"opt", "sgd"}}, {50, 72, 22});
  const auto section = plane_section(load());
  const auto lines = fields_of(without_bars(figure(section).csv));
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[1], (Cells{"FT", "70", "20", "lr=0.02"}));
  EXPECT_EQ(lines[2], (Cells{"FT", "60", "30", "lr=0.1"}));
  EXPECT_EQ(lines[3].at(1), "72");  // another optimizer: a point of its own
  EXPECT_HAS(figure(section).caption, "Lines join runs of one method: FT along lr from 0.02 to 0.1.");
}

TEST_F(Sections, PlaneTakesTheLongestCurveFirst) {
  run("a", {{"epochs", "1"}, {"lr", "0.1"}}, {50, 61, 30});
  run("b", {{"epochs", "2"}, {"lr", "0.1"}}, {50, 62, 30});
  run("c", {{"epochs", "3"}, {"lr", "0.1"}}, {50, 63, 30});
  run("d", {{"epochs", "3"}, {"lr", "0.2"}}, {50, 64, 30});
  // Of two curves of one length, that along the option of the method.
  run("e", {{"method", "tpgm"}, {"mu", "0.1"}, {"lr", "1"}}, {50, 71, 20});
  run("f", {{"method", "tpgm"}, {"mu", "0.2"}, {"lr", "1"}}, {50, 72, 20});
  run("g", {{"method", "tpgm"}, {"mu", "0.1"}, {"lr", "2"}}, {50, 73, 20});
  const auto lines = fields_of(without_bars(figure(plane_section(load())).csv));
  ASSERT_EQ(lines.size(), 1U + 7);
  EXPECT_EQ(lines[1], (Cells{"FT", "61", "30", "epochs=1"}));
  EXPECT_EQ(lines[2], (Cells{"FT", "62", "30", "epochs=2"}));
  EXPECT_EQ(lines[3], (Cells{"FT", "63", "30", "epochs=3"}));
  EXPECT_EQ(lines[4], (Cells{"TPGM-C", "71", "20", "μ=0.1"}));
  EXPECT_EQ(lines[5], (Cells{"TPGM-C", "72", "20", "μ=0.2"}));
  EXPECT_EQ(lines[6].at(1), "64");
  EXPECT_EQ(lines[7].at(1), "73");
}

TEST_F(Sections, PlaneHasAveragesAndTheirSpread) {
  for (const auto& [seed, home, away, far] :
       {std::tuple{"0", 60.0, 50.0, 10.0}, {"1", 64.0, 40.0, 40.0}, {"2", 68.0, 60.0, 10.0}}) {
    run(std::string("ft") + seed, {{"seed", seed}});
    put_scores(std::string("ft") + seed, {{"away", false, away}, {"home", true, home}, {"far", false, far}});
  }
  run("lp", {{"method", "lp"}});
  put_scores("lp", {{"away", false, 30}, {"home", true, 55}, {"far", false, 20}});
  const auto section = plane_section(load());
  const auto lines = fields_of(figure(section).csv);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0], (Cells{"series", "x", "y", "spread", "spread_x", "label"}));
  // The OOD averages of the seeds are 30, 40 and 35: their mean is 35, their deviation 5. Those in distribution are
  // 60, 64 and 68. A bar is two standard errors, as the runs have no predictions.
  ASSERT_EQ(lines[1].size(), 6U);
  EXPECT_EQ(lines[1][0], "FT");
  EXPECT_NEAR(std::stod(lines[1][1]), 64, 1e-9);
  EXPECT_NEAR(std::stod(lines[1][2]), 35, 1e-9);
  EXPECT_NEAR(std::stod(lines[1][3]), 10 / std::sqrt(3), 1e-9);
  EXPECT_NEAR(std::stod(lines[1][4]), 8 / std::sqrt(3), 1e-9);
  EXPECT_EQ(lines[2][0], "LP");
  EXPECT_HAS(figure(section).caption, "Bars are two standard errors, from the seeds or");
}

TEST_F(Sections, PlaneOfWiseWithoutWhatItJoins) {
  // The curve does not begin at the pre-trained row, because WISE keeps a fresh head as it was trained; and the
  // run whose weights it started from is not in the report.
  run("before", {{"epochs", "0"}, {"head", "fresh"}}, {50, 50, 45});
  for (const auto& [ratio, home] : {std::pair{"0.3", 65.0}, {"0.7", 75.0}})
    run(std::string("wise") + ratio,
        {{"method", "wise"},
         {"ratio", ratio},
         {"head", "fresh"},
         {"weights", (folder_ / "elsewhere.safetensors").string()}},
        {50, home, 40});
  run("ft", {{"head", "fresh"}}, {50, 80, 30});
  const auto section = plane_section(load());
  EXPECT_EQ(without_bars(figure(section).csv),
            "series,x,y,label\n"
            "WISE,65,40,0.3\n"
            "WISE,75,40,0.7\n"
            "Random head,50,45,Random head\n"
            "FT,80,30,FT\n");
  EXPECT_FALSE(test::contains(figure(section).caption, "through"));
}

TEST_F(Sections, PlaneTakesTestsOfBothKinds) {
  run("ft", {});
  put_scores("ft", {{"home", true, 60}, {"other", true, 50}});
  EXPECT_EQ(sentence(plane_section(load())),
            "No test counts as out-of-distribution, so there is no plane to draw.");
  put_scores("ft", {{"away", false, 60}});
  EXPECT_EQ(sentence(plane_section(load())),
            "No test counts as in-distribution, so there is no plane to draw.");
}

// ---------------------------------------------------------------------------------------------------------
// Training.

TEST_F(Sections, TrainingOverEpochs) {
  run("ft", {});
  put("ft/summary.csv", "epoch,lr,train_loss,selection_accuracy\n1,0.1,2.5,60\n2,0.1,1.25,72.5\n");
  run("wise", {{"method", "wise"}});  // trained like ft
  put("wise/summary.csv", "epoch,lr,train_loss,selection_accuracy\n1,0.1,2.5,60\n2,0.1,1.25,72.5\n");
  run("tpgm", {{"method", "tpgm"}});
  put("tpgm/summary.csv", "epoch,lr,train_loss,selection_accuracy\n1,0.1,3,\n2,0.1,nan,50\n");
  run("lp", {{"method", "lp"}});  // did not train
  const auto section = training_section(load());
  ASSERT_EQ(section.blocks.size(), 2U);
  EXPECT_EQ(figure(section, 0).id, "training-loss");
  EXPECT_EQ(figure(section, 0).csv,
            "series,x,y\n\"FT, WISE 0.5\",1,2.5\n\"FT, WISE 0.5\",2,1.25\nTPGM,1,3\n");
  EXPECT_EQ(figure(section, 1).id, "selection-accuracy");
  EXPECT_EQ(figure(section, 1).csv,
            "series,x,y\n\"FT, WISE 0.5\",1,60\n\"FT, WISE 0.5\",2,72.5\nTPGM,2,50\n");
}

TEST_F(Sections, TrainingWithoutSomeOfItsData) {
  run("ft", {});
  const std::string none = "None of the runs trained for an epoch, so there are no curves.";
  EXPECT_EQ(sentence(training_section(load())), none);
  put("ft/summary.csv", "epoch,train_loss,selection_accuracy\n");
  EXPECT_EQ(sentence(training_section(load())), none);
  put("ft/summary.csv", "epoch,train_loss,selection_accuracy\n1,2.5,\n");
  const auto section = training_section(load());
  ASSERT_EQ(section.blocks.size(), 2U);
  EXPECT_EQ(figure(section).csv, "series,x,y\nFT,1,2.5\n");
  EXPECT_EQ(block<Paragraph>(section, 1).text, "There were no selection data to score epochs on.");
}

TEST_F(Sections, TrainingOfMoreRunsThanAPlotTellsApart) {
  for (int i = 1; i <= 15; ++i) {
    run(fmt::format("ft{}", i), {{"lr", fmt::format("{}", i)}});
    put(fmt::format("ft{}/summary.csv", i), fmt::format("epoch,train_loss\n1,{}\n", i));
  }
  const auto section = training_section(load());
  const auto names = series_of(figure(section));
  ASSERT_EQ(names.size(), 14U);
  EXPECT_EQ(names.front(), "FT lr=1");
  EXPECT_EQ(names.back(), "FT lr=14");
  EXPECT_HAS(figure(section).caption, "Of 15 runs that were trained, the first 14.");
}

// ---------------------------------------------------------------------------------------------------------
// Layer by layer.

TEST_F(Sections, MainRowsAreOneOfEachMethod) {
  run("before", {{"epochs", "0"}});
  for (const auto& [lr, selection] : {std::pair{"1", 60.0}, {"2", 80.0}, {"3", 70.0}})
    run(std::string("ft") + lr, {{"lr", lr}}, {selection, 60, 40});
  for (const char* ratio : {"0.1", "0.4", "0.8"})  // the nearest to 0.5, not the best on selection data
    run(std::string("wise") + ratio, {{"method", "wise"}, {"ratio", ratio}},
        {ratio == std::string("0.8") ? 99.0 : 1.0, 60, 40});
  for (const auto& [mu, selection] : {std::pair{"0", 10.0}, {"0.1", 20.0}, {"0.2", 30.0}})
    run(std::string("tpgm") + mu, {{"method", "tpgm"}, {"mu", mu}}, {selection, 60, 40});
  run("lp", {{"method", "lp"}});
  run("spd", {{"method", "spd"}});
  const auto set = load();
  Cells names;
  for (const auto* row : main_rows(set)) names.push_back(row->name);
  EXPECT_EQ(names, (Cells{"Pre-trained", "FT lr=2", "LP", "WISE 0.4", "TPGM", "TPGM-C μ=0.2", "SPD"}));
}

TEST_F(Sections, DistanceByBlock) {
  write_images("train/home", {20, 20, 20});
  write_images("test/home", {1, 1, 1});
  write_images("test/away", {1, 1, 1});
  write_anchor();
  run("before", {{"epochs", "0"}, {"head", "fresh"}});
  run("ft", {{"head", "fresh"}});
  // The distances are √(3² + 4²) = 5 and √(2² + 2² + 1²) = 3, their mean is 4.
  write_weights(
      "ft", {{"backbone.norm.weight", {3, 4}}, {"backbone.norm.bias", {-2, 0, 2, 1}}, {"head.bias", {9}}});
  run("tpgm", {{"method", "tpgm"}, {"head", "fresh"}});
  write_weights("tpgm", {{"backbone.norm.weight", {0, -1}}});
  Origins origins;
  const auto set = load();
  const auto section = distance_section(set, origins);
  ASSERT_EQ(section.blocks.size(), 1U);
  EXPECT_EQ(figure(section).id, "distance");
  EXPECT_EQ(figure(section).csv,
            "series,x,y\nFT,stem,0\nFT,blocks.0,0\nFT,norm,4\n"
            "TPGM,stem,0\nTPGM,blocks.0,0\nTPGM,norm,0.5\n");
  EXPECT_HAS(figure(section).caption, "The head is left out: it is fresh.");
  EXPECT_FALSE(test::contains(figure(section).caption, "logarithmic"));
}

TEST_F(Sections, DistanceOfTheHeadAndWithoutSomeWeights) {
  write_images("train/home", {20, 20, 20});
  write_images("test/home", {1, 1, 1});
  write_images("test/away", {1, 1, 1});
  write_anchor();
  run("ft", {});
  write_weights("ft", {{"head.weight", {0, 0, 64}}, {"backbone.norm.bias", {0.5}}});
  run("lp", {{"method", "lp"}});
  run("tpgm", {{"method", "tpgm"}});
  write_weights("tpgm", {});
  // A file without the tensors of the norm has other blocks.
  run("spd", {{"method", "spd"}});
  write_weights("spd", {{"head.weight", {1}}});
  const fs::path spd = runs_ / "spd" / "best.safetensors";
  NamedTensors kept("Tensor");
  for (const auto& item : SafetensorsFile(spd).tensors()) {
    if (!item.key().starts_with("backbone.norm.")) kept.insert(item.key(), item.value().clone());
  }
  save_safetensors(kept, spd, {});
  Origins origins;
  const auto section = distance_section(load(), origins);
  ASSERT_EQ(section.blocks.size(), 3U);
  // The means over weight and bias are half of 64 and of 0.5. Blocks that did not move are left out, which are
  // all blocks of TPGM.
  EXPECT_EQ(figure(section).csv, "series,x,y\nFT,norm,0.25\nFT,head,32\n");
  EXPECT_HAS(figure(section).caption, "The scale is logarithmic, and what did not move is left out.");
  EXPECT_FALSE(test::contains(figure(section).caption, "fresh"));
  EXPECT_EQ(block<Paragraph>(section, 1).text,
            fmt::format("No distance of LP: there is no '{}' any more.", weights("lp/best.safetensors")));
  EXPECT_EQ(block<Paragraph>(section, 2).text, "No distance of SPD: it has other blocks than the first.");
}

TEST_F(Sections, DistanceWithoutDataOrAnchor) {
  write_anchor();
  run("ft", {});
  write_weights("ft", {{"backbone.norm.weight", {3, 4}}, {"head.bias", {1}}});
  {
    // Without the data the classes of the head are not known, and the backbone remains.
    Origins origins;
    const auto section = distance_section(load(), origins);
    EXPECT_EQ(figure(section).csv, "series,x,y\nFT,stem,0\nFT,blocks.0,0\nFT,norm,2.5\n");
  }
  fs::remove(anchor_);
  Origins origins;
  const auto text = sentence(distance_section(load(), origins));
  EXPECT_TRUE(text.starts_with("No distance of FT: ")) << text;
}

TEST_F(Sections, NoDistanceOfTheAnchorItself) {
  run("before", {{"epochs", "0"}});
  Origins origins;
  EXPECT_EQ(sentence(distance_section(load(), origins)), "No run moved away from the pre-trained weights.");
}

constexpr const char* kTwoNames = R"("names": ["backbone.norm.weight", "backbone.head.<b>"])";

TEST_F(Sections, RatiosByTensor) {
  run("tpgm", {{"method", "tpgm"}});
  put("tpgm/radii.json", fmt::format(R"({{{}, "steps": [5, 10, 15], "radii": [[1, 2], [1, 2], [1, 2]],
      "ratios": [[0.5, 0.5], [0.25, null], []]}})",
                                     kTwoNames));
  run("ftp", {{"method", "ftp"}});
  put("ftp/radii.json",
      fmt::format(R"({{{}, "steps": [5], "radii": [[1, 2]], "ratios": [[1, 0]]}})", kTwoNames));
  for (const char* ratio : {"0.4", "0.9"})
    run(std::string("wise") + ratio, {{"method", "wise"}, {"ratio", ratio}});
  Origins origins;
  const auto section = ratio_section(load(), origins);
  ASSERT_EQ(section.blocks.size(), 1U);
  EXPECT_EQ(figure(section).id, "ratios");
  EXPECT_EQ(figure(section).csv,
            "run,norm.weight,head.<b>\n"
            "TPGM,0.25,\n"  // the last that is known
            "FTP,1,0\n"
            "WISE 0.4,0.4,0.4\n");
  EXPECT_HAS(figure(section).caption, "WISE, which has one ratio for all layers, is there for comparison.");
  EXPECT_FALSE(test::contains(figure(section).svg, "<b>"));
  EXPECT_HAS(figure(section).svg, "&lt;b&gt;");
}

// A map has 64 columns at most.
TEST_F(Sections, RatiosByBlock) {
  write_anchor();
  run("tpgm", {{"method", "tpgm"}});
  Cells names = {"\"backbone.norm.weight\""}, radii = {"1"}, ratios = {"0.5"};
  for (int i = 0; i < 64; ++i) {
    names.push_back(fmt::format("\"backbone.blocks.0.part{}\"", i));
    radii.emplace_back("1");
    ratios.emplace_back(i % 4 == 0 ? "1" : "0");
  }
  put("tpgm/radii.json",
      fmt::format(R"({{"names": [{}], "steps": [1], "radii": [[{}]], "ratios": [[{}]]}})",
                  fmt::join(names, ", "), fmt::join(radii, ", "), fmt::join(ratios, ", ")));
  Origins origins;
  const auto section = ratio_section(load(), origins);
  // From input to output, as the model has them.
  EXPECT_EQ(figure(section).csv, "run,blocks.0,norm\nTPGM,0.25,0.5\n");
  EXPECT_HAS(figure(section).caption, "Of a block the mean over its tensors.");
}

TEST_F(Sections, RatiosOfManyRuns) {
  for (int i = 1; i <= 41; ++i) {
    run(fmt::format("tpgm{}", i), {{"method", "tpgm"}, {"mu", fmt::format("{}", i)}});
    put(fmt::format("tpgm{}/radii.json", i),
        fmt::format(R"({{{}, "steps": [5], "radii": [[1, 2]], "ratios": [[1, 0]]}})", kTwoNames));
  }
  Origins origins;
  const auto section = ratio_section(load(), origins);
  EXPECT_EQ(fields_of(figure(section).csv).size(), 1U + 40);
  EXPECT_HAS(figure(section).caption, "Of 41 runs the first 40.");
}

TEST_F(Sections, RatiosOfOneSetOfTensors) {
  for (const auto& [name, mu] : {std::pair{"a", "1"}, {"b", "2"}, {"c", "3"}})
    run(name, {{"method", "tpgm"}, {"mu", mu}});
  for (const char* name : {"a", "c"})
    put(std::string(name) + "/radii.json",
        fmt::format(R"({{{}, "steps": [5], "radii": [[1, 2]], "ratios": [[1, 0]]}})", kTwoNames));
  put("b/radii.json", R"({"names": ["other"], "steps": [5], "radii": [[1]], "ratios": [[1]]})");
  Origins origins;
  EXPECT_HAS(figure(ratio_section(load(), origins)).caption, "Runs with other tensors are left out: 1.");
}

TEST_F(Sections, RadiiThatWereNotFinite) {
  write_anchor();
  run("tpgm", {{"method", "tpgm"}});
  put("tpgm/radii.json",
      R"({"names": ["backbone.norm.weight"], "steps": [2, 4, 6], "radii": [[1], [null], [7]],
          "ratios": [[], [], []]})");
  Origins origins;
  EXPECT_EQ(figure(radius_section(load(), origins)).csv, "series,x,y\nnorm,2,1\nnorm,6,7\n");
}

TEST_F(Sections, NoRatiosOrRadii) {
  run("ft", {});
  run("tpgm", {{"method", "tpgm"}});
  Origins origins;
  const std::string no_ratios = "No method here has a ratio for each layer (TPGM and FTP have).";
  EXPECT_EQ(sentence(ratio_section(load(), origins)), no_ratios);
  EXPECT_TRUE(sentence(radius_section(load(), origins)).starts_with("No run recorded radii over time"));
  // A single entry is not enough for a curve.
  put("tpgm/radii.json",
      fmt::format(R"({{{}, "steps": [5], "radii": [[1, 2]], "ratios": [[]]}})", kTwoNames));
  EXPECT_EQ(sentence(ratio_section(load(), origins)), no_ratios);
  EXPECT_TRUE(sentence(radius_section(load(), origins)).starts_with("No run recorded radii over time"));
  put("tpgm/radii.json", R"({"names": ["a"]})");
  EXPECT_HAS(error_of([&] { radius_section(load(), origins); }), "tpgm/radii.json' is damaged");
}

TEST_F(Sections, RadiiByBlockOverTraining) {
  write_anchor();
  run("tpgm", {{"method", "tpgm"}});
  put("tpgm/radii.json",
      R"({"names": ["backbone.norm.weight", "backbone.blocks.0.a", "backbone.norm.bias"],
          "steps": [0, 10], "radii": [[1, 5, 2], [3, 6, 8]], "ratios": [[], []]})");
  // L2-SP is before TPGM in the table, but TPGM comes first here.
  run("l2-sp", {{"method", "l2-sp"}, {"mu", "1"}}, {10, 60, 40});
  run("l2-sp-2", {{"method", "l2-sp"}, {"mu", "2"}}, {20, 60, 40});
  for (const char* name : {"l2-sp", "l2-sp-2"})
    put(std::string(name) + "/radii.json",
        R"({"names": ["backbone.norm.weight"], "steps": [2, 4], "radii": [[1], [7]], "ratios": [[], []]})");
  Origins origins;
  const auto section = radius_section(load(), origins);
  ASSERT_EQ(section.blocks.size(), 2U);
  EXPECT_EQ(figure(section, 0).id, "radii-1");
  EXPECT_EQ(figure(section, 0).csv, "series,x,y\nblocks.0,0,5\nblocks.0,10,6\nnorm,0,1.5\nnorm,10,5.5\n");
  EXPECT_EQ(figure(section, 0).caption, "The mean over each block's tensors.");
  EXPECT_HAS(figure(section, 0).svg, "Radii of TPGM");
  EXPECT_HAS(figure(section, 0).svg, "training step");
  EXPECT_EQ(figure(section, 1).id, "radii-2");
  EXPECT_EQ(figure(section, 1).csv, "series,x,y\nnorm,2,1\nnorm,4,7\n");
  EXPECT_HAS(figure(section, 1).svg, "Radii of L2-SP mu=2");
  EXPECT_HAS(figure(section, 1).caption, " Shown is the best of 2 such runs on selection data.");
}

TEST_F(Sections, RadiiWhileTheyAreLearnedAtTheEnd) {
  write_anchor();
  run("tpgm", {{"method", "tpgm"}});
  // An entry of training and one with another number of radii are left out.
  put("tpgm/radii.json",
      R"({"names": ["backbone.norm.weight"], "steps": [3, 8, 8, 8, 8], "radii": [[9], [4], [1, 1], [2], [0.5]],
          "ratios": [[], [], [], [], [0.1]], "radius_steps": [null, 0, 5, 10, 20]})");
  Origins origins;
  const auto section = radius_section(load(), origins);
  EXPECT_EQ(figure(section).csv, "series,x,y\nnorm,0,4\nnorm,10,2\nnorm,20,0.5\n");
  EXPECT_HAS(figure(section).svg, "radius step");
  EXPECT_HAS(figure(section).caption, ", while they are learned at the end");
}

TEST_F(Sections, RadiiOfManyBlocksAndMethods) {
  Cells names;
  Cells radii;
  for (int i = 0; i < 25; ++i) {  // without an anchor, blocks are read off the names
    names.push_back(fmt::format("\"backbone.layer.{}.weight\"", i));
    radii.push_back(fmt::format("{}", i));
  }
  const auto text =
      fmt::format(R"({{"names": [{}], "steps": [1, 2], "radii": [[{}], [{}]], "ratios": [[], []]}})",
                  fmt::join(names, ", "), fmt::join(radii, ", "), fmt::join(radii, ", "));
  for (const char* method : {"ftp", "tpgm", "l2-sp", "spd"}) {
    run(method, {{"method", method}});
    put(std::string(method) + "/radii.json", text);
  }
  Origins origins;
  const auto section = radius_section(load(), origins);
  ASSERT_EQ(section.blocks.size(), 3U);
  const Cells first = {"Radii of TPGM", "Radii of L2-SP", "Radii of FTP"};
  for (size_t i = 0; i < 3; ++i) EXPECT_HAS(figure(section, i).svg, first.at(i));
  // A plot has twelve lines at most: here the blocks 0, 3, 6 to 24.
  const auto lines = series_of(figure(section));
  ASSERT_EQ(lines.size(), 9U);
  EXPECT_EQ(lines[1], "layer.3");
  EXPECT_EQ(fields_of(figure(section).csv).back(), (Cells{"layer.24", "2", "24"}));
  EXPECT_HAS(figure(section).caption, "Shown is every third of 25 blocks.");
}

// ---------------------------------------------------------------------------------------------------------
// Images.

class Disagreements : public Sections {
 protected:
  // Away the labels are 0, 0, 1, 2 and at home 0, 1, 1, 1, 2.
  Disagreements() {
    write_images("train/home", {20, 20, 20});
    write_images("test/away", {2, 1, 1});
    write_images("test/home", {1, 3, 1});
    write_anchor();
  }
  void player(const std::string& name, const Settings& settings, const std::vector<int32_t>& away,
              const std::vector<int32_t>& home) const {
    run(name, settings);
    write_weights(name, {});
    predict(name, away, home);
  }
  void predict(const std::string& name, const std::vector<int32_t>& away,
               const std::vector<int32_t>& home) const {
    NamedTensors tests("Tensor");
    tests.insert("home", at::tensor(home, at::kInt));
    tests.insert("away", at::tensor(away, at::kInt));
    save_safetensors(tests, runs_ / name / "predictions.safetensors", {});
  }
  void six_players() const {
    player("before", {{"epochs", "0"}}, {0, 0, 2, 2}, {1, 1, 0, 1, 2});
    player("ft", {}, {1, 0, 1, 0}, {0, 1, 0, 1, -1});
    player("lp", {{"method", "lp"}}, {0, 0, 1, 2}, {0, 1, 1, 1, 2});
    player("wise", {{"method", "wise"}}, {0, 0, 7, -1}, {0, 1, 1, 1, 2});
    player("tpgm", {{"method", "tpgm"}}, {0, 1, 2, 2}, {0, 0, 1, 1, 2});
    player("spd", {{"method", "spd"}}, {0, 0, 1, 2}, {0, 1, 1, 1, 2});
  }
  Section section() const {
    Origins origins;
    return image_section(load(), origins);
  }
};

TEST_F(Disagreements, AreCountedAndShown) {
  six_players();
  const auto images = section();
  ASSERT_EQ(images.blocks.size(), 3U);
  const auto& table = block<Table>(images, 0);
  EXPECT_EQ(table.caption, "Correct (✓) and wrong (✗) on 9 test images");
  EXPECT_EQ(table.columns, (Cells{"Pre-trained", "FT", "TPGM", "images"}));
  // Not counted: the image without a prediction of FT, and the one on which all agree.
  EXPECT_EQ(table.rows, (std::vector<Cells>{{"✓", "✗", "✓", "2"},
                                            {"✗", "✓", "✗", "1"},
                                            {"✓", "✗", "✗", "0"},
                                            {"✓", "✓", "✗", "2"},
                                            {"✗", "✗", "✓", "1"},
                                            {"✗", "✓", "✓", "1"}}));
  const auto& gallery = block<Gallery>(images, 2);
  // In the order of the table; of each kind those of away first; of two images of a test the second first.
  struct Shown {
    const char* alt;
    fs::path file;
    Cells predicted;
    std::vector<bool> correct;
  };
  const auto &so = kClasses[0], &script = kClasses[1];
  const std::string two = "two words";
  const std::vector<Shown> expected = {{"two words (away)",
                                        image("test/away", 2, 0),
                                        {two, so, two, "–", two},
                                        {true, false, true, false, true}},
                                       {"\"so\" & 'so' (away)",
                                        image("test/away", 0, 0),
                                        {so, script, so, so, so},
                                        {true, false, true, true, true}},
                                       {"<script>alert(1) (away)",
                                        image("test/away", 1, 0),
                                        {two, script, script, "class 7", two},
                                        {false, true, true, false, false}},
                                       {"\"so\" & 'so' (away)",
                                        image("test/away", 0, 1),
                                        {so, so, so, so, script},
                                        {true, true, true, true, false}},
                                       {"<script>alert(1) (home)",
                                        image("test/home", 1, 0),
                                        {script, script, script, script, so},
                                        {true, true, true, true, false}},
                                       {"<script>alert(1) (home)",
                                        image("test/home", 1, 1),
                                        {so, so, script, script, script},
                                        {false, false, true, true, true}},
                                       {"\"so\" & 'so' (home)",
                                        image("test/home", 0, 0),
                                        {script, so, so, so, so},
                                        {false, true, true, true, true}}};
  ASSERT_EQ(gallery.images.size(), expected.size());
  // Five rows at most, without SPD, in the order of the table of results.
  const Cells models = {"Pre-trained", "FT", "LP", "WISE 0.5", "TPGM"};
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto& shown = gallery.images[i];
    EXPECT_EQ(shown.alt, expected[i].alt);
    EXPECT_EQ(shown.png, test::read_bytes(expected[i].file)) << i;  // small PNGs are shown unchanged
    ASSERT_EQ(shown.answers.size(), models.size());
    for (size_t j = 0; j < models.size(); ++j) {
      const auto& [model, predicted, correct] = shown.answers[j];
      EXPECT_EQ(model, models[j]);
      EXPECT_EQ(predicted, expected[i].predicted[j]) << i << ", " << j;
      EXPECT_EQ(correct, expected[i].correct[j]) << i << ", " << j;
    }
  }
}

TEST_F(Disagreements, ShowImagesThatCanBeRead) {
  six_players();
  test::write_image(image("test/away", 2, 0), 7, 120, 60);  // too large: 96 × 48
  test::put_file(image("test/away", 1, 0), "no image");
  const auto small = test::read_bytes(image("test/away", 0, 0)) + "behind its end";
  test::put_file(image("test/away", 0, 0), small);
  const auto images = section();
  EXPECT_EQ(block<Table>(images, 0).rows.at(1), (Cells{"✗", "✓", "✗", "1"}));  // it counts
  const auto& gallery = block<Gallery>(images, 2);
  ASSERT_EQ(gallery.images.size(), 6U);
  EXPECT_EQ(gallery.images[1].png, small);  // unchanged
  const auto& png = gallery.images[0].png;
  EXPECT_TRUE(png.starts_with("\x89PNG"));
  EXPECT_EQ(png.substr(16, 8), std::string("\0\0\0\x60\0\0\0\x30", 8));
}

TEST_F(Disagreements, ShowSixteenAtMost) {
  write_images("test/away", {10, 10, 10});
  std::vector<int32_t> zeros(30, 0), ones(30, 1);
  player("ft", {}, zeros, {0, 1, 1, 1, 2});
  player("lp", {{"method", "lp"}}, ones, {0, 1, 1, 1, 2});
  const auto images = section();
  const auto& table = block<Table>(images, 0);
  EXPECT_EQ(table.columns, (Cells{"FT", "LP", "images"}));
  EXPECT_EQ(table.rows, (std::vector<Cells>{{"✓", "✗", "10"}, {"✗", "✓", "10"}}));
  const auto& gallery = block<Gallery>(images, 2);
  ASSERT_EQ(gallery.images.size(), 16U);
  // The middle one of ten, and then of the other nine.
  std::set<std::string> first, middle;
  for (const size_t i : {4, 5}) {
    first.insert(gallery.images[i - 4].png);
    middle.insert(test::read_bytes(image("test/away", 0, static_cast<int>(i))));
  }
  EXPECT_EQ(first, middle);
  // Eight of each kind.
  EXPECT_TRUE(gallery.images[7].answers[0].correct);
  EXPECT_TRUE(gallery.images[8].answers[1].correct);
}

TEST_F(Disagreements, WithoutAnyThereIsNoGallery) {
  player("ft", {}, {0, 0, 1, 2}, {0, 1, 1, 1, 2});
  player("lp", {{"method", "lp"}}, {0, 0, 1, 2}, {0, 1, 1, 1, 2});
  const auto images = section();
  ASSERT_EQ(images.blocks.size(), 1U);
  EXPECT_EQ(block<Table>(images, 0).rows, (std::vector<Cells>{{"✓", "✗", "0"}, {"✗", "✓", "0"}}));
}

TEST_F(Disagreements, TakePredictionsForTheseImages) {
  const std::string fewer = "Fewer than two of the methods left predictions for these images";
  player("ft", {}, {1, 0, 1, 2}, {0, 1, 1, 1, 2});
  run("lp", {{"method", "lp"}});
  EXPECT_TRUE(sentence(section()).starts_with(fewer));  // one has none
  player("lp", {{"method", "lp"}}, {0, 0, 1}, {0, 1, 1, 1, 2});
  EXPECT_TRUE(sentence(section()).starts_with(fewer));  // of three images, where there are four
  predict("lp", {0, 0, 1, 2}, {0, 1, 1, 1, 2});
  EXPECT_EQ(section().blocks.size(), 3U);
  // The classes of this head are in another order.
  test::save_classifier(*zero_model(), runs_ / "lp" / "best.safetensors",
                        {kClasses[1], kClasses[0], kClasses[2]});
  EXPECT_TRUE(sentence(section()).starts_with(fewer));
  // Without the images.
  test::remove_folder(data_);
  EXPECT_TRUE(sentence(section()).starts_with("The test images cannot be opened any more: "));
}

TEST_F(Disagreements, ComeAfterExamplesOfEachTest) {
  player("ft", {}, {0, 0, 1, 2}, {0, 1, 1, 1, 2});
  Origins origins;
  const auto examples = std::get<ExampleImages>(example_images(load(), origins));
  EXPECT_HAS(examples.caption, "in distribution (ID)");
  ASSERT_EQ(examples.groups.size(), 2U);
  EXPECT_EQ(examples.groups[0].title, "home (ID)");
  EXPECT_EQ(examples.groups[1].title, "away (OOD)");
  // Of each class the middle one: of three the second, of two the second.
  const std::vector<std::vector<int>> expected = {{0, 1, 0}, {1, 0, 0}};
  for (size_t t = 0; t < 2; ++t) {
    const auto& images = examples.groups[t].images;
    ASSERT_EQ(images.size(), 3U);
    EXPECT_EQ(images[2].alt, "two words");
    for (size_t k = 0; k < 3; ++k) {
      const auto file = image(t == 0 ? "test/home" : "test/away", k, expected[t][k]);
      EXPECT_EQ(images[k].png, test::read_bytes(file)) << file;
      EXPECT_TRUE(images[k].answers.empty());
    }
  }
}

TEST_F(Disagreements, ExamplesAreOfClassesThatAllTestsHave) {
  player("ft", {}, {0, 0, 1, 2}, {0, 1, 1, 1, 2});
  test::remove_folder(data_ / "test" / "away" / kClasses[1]);
  {
    Origins origins;
    const auto examples = std::get<ExampleImages>(example_images(load(), origins));
    for (const auto& group : examples.groups) {
      ASSERT_EQ(group.images.size(), 2U) << group.title;
      EXPECT_EQ(group.images[0].alt, kClasses[0]);
      EXPECT_EQ(group.images[1].alt, "two words");
    }
  }
  test::remove_folder(data_);
  Origins origins;
  EXPECT_HAS(std::get<Paragraph>(example_images(load(), origins)).text,
             "Example images of the tests are left out");
}

// ---------------------------------------------------------------------------------------------------------
// The whole.

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

TEST_F(Sections, ReportHasTablesFiguresAndRecipes) {
  const std::string common = "method = \"ft\"\n";
  const auto environment = [](const char* started) {
    return to_text(RunEnvironment{"tpgm train --lr 1", "0.1.0", "2.11", "cpu", 3, "host", started});
  };
  for (const auto& [name, recipe, selection, home, away] :
       {std::tuple{"a", "lr = 0.25\nopt = \"sgd\"\n", 50.0, 80.0, 40.0},
        {"b", "lr = 0.5\nopt = \"sgd\"\n", 60.0, 60.0, 50.0}}) {
    put(std::string(name) + "/recipe.toml", common + recipe);
    put(std::string(name) + "/result.json", test::result_json({selection, home, away}));
  }
  put("a/environment.json", environment("2026-11-16T12:34:56Z"));
  put("b/environment.json", environment("2026-11-18T12:34:56Z"));
  put("b/summary.csv", "epoch,train_loss,selection_accuracy\n1,2.5,60\n");
  put("unfinished/recipe.toml", common);
  const auto set = load();
  EXPECT_EQ(notes_of(set), Cells{fmt::format("'{}' is left out: it is not finished (resume it first)",
                                             weights("unfinished"))});
  const fs::path page = folder_ / "page.html", out = folder_ / "page";
  const auto repeat = [](const fs::path& recipe) { return "again " + recipe.string(); };
  const auto files = write_report(set, page, "A title", repeat);
  const std::set<std::string> expected = {"results.md",
                                          "results.tex",
                                          "results.csv",
                                          "plane.svg",
                                          "plane.csv",
                                          "training-loss.svg",
                                          "training-loss.csv",
                                          "selection-accuracy.svg",
                                          "selection-accuracy.csv"};
  EXPECT_EQ(names_in(out), expected);
  ASSERT_EQ(files.size(), 1 + expected.size());
  EXPECT_EQ(files.front(), page);
  for (const auto& file : files) EXPECT_TRUE(fs::is_regular_file(file)) << file;
  // The reference is b, which is better on selection data.
  EXPECT_EQ(test::read_bytes(out / "results.csv"),
            ",home,away,ID Δ (%),OOD Δ (%)\n"
            "FT lr=0.25,80.00,40.00,33.33,-20.00\n"
            "FT lr=0.5,60.00,50.00,0.00,0.00\n");
  EXPECT_HAS(test::read_bytes(out / "results.md"), " **80.00** ");
  EXPECT_HAS(test::read_bytes(out / "results.tex"), "\\textbf{80.00}");
  EXPECT_EQ(test::read_bytes(out / "training-loss.csv"), "series,x,y\nFT lr=0.5,1,2.5\n");
  const auto html = test::read_bytes(page);
  for (const std::string& part :
       {std::string("<h1>A title</h1>"),
        std::string("<p>2 runs; trained from scratch; CPU; 2026-11-16 to 2026-11-18</p>"),
        std::string("Top-1 accuracy (%), the best in bold; Δ is relative to FT lr=0.5"),
        std::string("unfinished&#39; is left out: it is not finished (resume it first).</p>"),
        std::string("<p>Run with tpgm 0.1.0, LibTorch 2.11, cpu, 3 threads.</p>"),
        fmt::format("# FT lr=0.25, {}\ntpgm train --lr 1\n", weights("a")),
        // The recipe of the reference, and the differences of the other.
        std::string("<summary>Recipe of FT lr=0.5</summary>\n<pre tabindex=\"0\">\nmethod = "
                    "&quot;ft&quot;\nlr = 0.5\nopt = &quot;sgd&quot;\n</pre>"),
        std::string(
            "<summary>FT lr=0.25: what differs from it</summary>\n<pre tabindex=\"0\">\nlr = 0.25\n</pre>")})
    EXPECT_HAS(html, part);
  // One row of a method comes first; both are behind it.
  EXPECT_HAS(html, "<summary>All 2 rows</summary>");
  EXPECT_LT(html.find("<h2 id=\"section-1\">Summary</h2>"), html.find("id=\"figure-plane\""));
  EXPECT_LT(html.find("id=\"figure-plane\""), html.find("<h2 id=\"section-2\">Results</h2>"));
  EXPECT_HAS(html, fmt::format("<pre tabindex=\"0\">\nagain {}/recipe.toml\n</pre>", weights("b")));
  EXPECT_HAS(html, "<p>One row of each method: the best on selection data.</p>");
  // Again, over it: the same bytes.
  write_report(set, page, "A title", repeat);
  EXPECT_EQ(test::read_bytes(page), html);
  EXPECT_HAS(error_of([&] { write_report(RunSet{}, page, "A title"); }), "there are no runs to report on");
}

TEST_F(Sections, ReportShowsARowOfEachMethodAndFoldsTheOthers) {
  run("ft", {}, {50, 80, 40});
  for (const char* ratio : {"0.1", "0.4", "0.9"})
    run(std::string("wise") + ratio, {{"method", "wise"}, {"ratio", ratio}}, {50, 70, 45});
  for (const auto& [mu, selection] : {std::pair{"0.1", 20.0}, {"0.2", 30.0}})
    run(std::string("tpgm") + mu, {{"method", "tpgm"}, {"mu", mu}}, {selection, 60, 40});
  const std::string long_command = "tpgm train --name " + std::string(20000, 'x') + " -o end";
  put("ft/environment.json",
      to_text(RunEnvironment{long_command, "0.1.0", "2.11", "cpu", 1, "host", "2026"}));
  write_report(load(), folder_ / "page.html", "Rows");
  const auto html = test::read_bytes(folder_ / "page.html");
  EXPECT_HAS(html, long_command);  // whole, so that it can be copied
  EXPECT_HAS(
      html,
      "<p>One row of each method: of WISE the ratio nearest to a half, of others the best on selection "
      "data.</p>");
  const auto all = html.find("<summary>All 6 rows</summary>");
  ASSERT_NE(all, std::string::npos);
  const auto begin = html.find(">Results</h2>");
  const auto shown = html.substr(begin, all - begin);
  const auto cell = [](const std::string& name) { return "<th scope=\"row\">" + name + "</th>"; };
  for (const char* name : {"FT", "WISE 0.4", "TPGM-C μ=0.2"}) EXPECT_HAS(shown, cell(name));
  for (const char* name : {"WISE 0.1", "WISE 0.9", "TPGM-C μ=0.1"}) {
    EXPECT_FALSE(test::contains(shown, cell(name))) << name;
    EXPECT_HAS(html.substr(all), cell(name));
  }
}

TEST_F(Sections, ReportOfSeedsSaysSo) {
  for (const auto& [seed, home, away] : {std::tuple{"0", 60.0, 40.0}, {"1", 70.0, 50.0}, {"2", 80.0, 30.0}})
    run(std::string("ft") + seed, {{"seed", seed}}, {50, home, away});
  run("lp", {{"method", "lp"}}, {50, 70, 42});
  write_report(load(), folder_ / "page.html", "Seeds");
  // Both 60, 70, 80 and 40, 50, 30 have a deviation of 10.
  EXPECT_EQ(
      test::read_bytes(folder_ / "page" / "results.csv"),
      ",home,away,ID Δ (%),OOD Δ (%)\nFT,70.00 (10.00),40.00 (10.00),0.00,0.00\nLP,70.00,42.00,0.00,5.00\n");
  const auto html = test::read_bytes(folder_ / "page.html");
  EXPECT_HAS(html, "mean (standard deviation) over 1 to 3 seeds, the best in bold; Δ is relative to FT");
  EXPECT_HAS(html, "<p>4 runs in 2 rows; anchor.safetensors fine-tuned on home</p>");
}

// Each name has a number of its own, so that each is found in its escaped form.
TEST_F(Disagreements, ReportEscapesEveryName) {
  six_players();
  const auto hostile = [](int i) { return fmt::format("<script>alert({},\"'&", i); };
  const auto escaped = [](int i) { return fmt::format("&lt;script&gt;alert({},&quot;&#39;&amp;", i); };
  // Two rows with the names of their folders, because their settings are shown alike.
  for (const auto& [name, place] : {std::pair{hostile(2), "one"}, {hostile(3), "other"}}) {
    run(name, {{"method", "lp"}, {"class-list", (folder_ / place / "list.txt").string()}});
    put(name + "/radii.json",
        R"({"names": ["<script>alert(4,", "b"], "steps": [1, 2], "radii": [[1, 2], [3, 4]],
            "ratios": [[], [1, 0]]})");
    put(name + "/summary.csv", fmt::format("epoch,train_loss\n1,{}\n", place == std::string("one") ? 1 : 2));
  }
  put("ft/environment.json",
      to_text(RunEnvironment{hostile(5), hostile(6), hostile(7), hostile(8), 1, "host", "<script>9"}));
  put(hostile(10) + "/recipe.toml", "lr = 1\n");  // unfinished
  put("ft/recipe.toml", test::read_bytes(runs_ / "ft" / "recipe.toml") + "# " + hostile(11) + "\n");
  write_report(load(), folder_ / "page.html", hostile(12));
  const auto html = test::read_bytes(folder_ / "page.html");
  EXPECT_FALSE(test::contains(html, "<script"));
  EXPECT_FALSE(test::contains(html, "\"so\" & 'so'"));
  for (const int i : {2, 3, 5, 6, 7, 8, 10, 11, 12}) EXPECT_HAS(html, escaped(i));
  for (const char* part :
       {"alt=\"&lt;script&gt;alert(1) (away)\"", "<p>&quot;so&quot; &amp; &#39;so&#39; (home)</p>",
        "&lt;script&gt;alert(4,", "&lt;script&gt;9"})
    EXPECT_HAS(html, part);
  size_t drawings = 0;
  for (const auto& name : names_in(folder_ / "page")) {
    if (!name.ends_with(".svg")) continue;
    ++drawings;
    const auto svg = test::read_bytes(folder_ / "page" / name);
    EXPECT_FALSE(test::contains(svg, "<script")) << name;
    if (name == "plane.svg" || name == "training-loss.svg" || name == "ratios.svg") {
      EXPECT_HAS(svg, escaped(2)) << name;
    }
  }
  EXPECT_GE(drawings, 4U);
}

}  // namespace
}  // namespace tpgm::test_sections
