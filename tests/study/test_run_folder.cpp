// A run folder: what is written is what is read, and what is damaged is a sentence.
#include "tpgm/io/file.h"
#include "tpgm/study/run_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <ATen/ops/ones.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/study/study_files.h"
#include "tpgm/io/metadata.h"
#include "tpgm/io/safetensors.h"

namespace tpgm::test_run_folder {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using test::error_of;

class RunFolders : public test::Scratch {
 protected:
  fs::path run() const { return folder_ / "run"; }
};

NamedNumbers numbers(const std::vector<std::pair<std::string, double>>& items) {
  NamedNumbers result;
  for (const auto& [name, value] : items) result.insert(name, value);
  return result;
}

TEST_F(RunFolders, AreNeitherOverwrittenNorMistaken) {
  const TrainOptions options;
  EXPECT_HAS(error_of([&] { RunFolder::open(folder_ / "none"); }), "[RunFolder::open] '");
  EXPECT_HAS(error_of([&] { RunFolder::open(folder_ / "none"); }), "no recipe.toml");
  { RunFolder folder = RunFolder::create(run(), options, {}); }
  EXPECT_HAS(error_of([&] { RunFolder::create(run(), options, {}); }), "resume that run");
  {
    RunFolder folder = RunFolder::open(run());
    EXPECT_FALSE(folder.load_state());
    folder.finish({{"method", "ft"}});
  }
  EXPECT_HAS(error_of([&] { RunFolder::create(run(), options, {}); }), "finished run");
  EXPECT_HAS(error_of([&] { RunFolder::open(run()); }), "finished");
  test::put_file(folder_ / "other" / "thesis.tex", "text");
  EXPECT_HAS(error_of([&] { RunFolder::create(folder_ / "other", options, {}); }), "not empty");
  EXPECT_HAS(error_of([&] { RunFolder::create(folder_ / "other" / "thesis.tex", options, {}); }),
             "is a file");
}

TEST_F(RunFolders, AreReplacedWhereOneAsksForIt) {
  const auto create = [&](const fs::path& path, const TrainOptions& options) {
    RunFolder folder = RunFolder::create(path, options, {}, /*overwrite=*/true);
  };
  TrainOptions options;
  NamedTensors weights("Tensor");
  weights.insert("w", at::ones(1));
  {
    RunFolder folder = RunFolder::create(run(), options, {}, /*overwrite=*/true);  // nothing is there yet
    folder.epoch({{"epoch", 1}, {"train_loss", 0.5}});
    folder.radii(4, numbers({{"a", 1}}), NamedNumbers());
    folder.save_text("bad_batch", "x");
    folder.save_weights("best", weights, {});
    folder.save_state(weights, Json::object());
    folder.finish({{"method", "ft"}});
  }
  test::put_file(run() / "report.html", "page");  // is not the run's
  // What it begins from is not deleted, also by another way to it.
  fs::create_directory_symlink(run(), folder_ / "link");
  options.weights = (folder_ / "link").string();
  EXPECT_HAS(error_of([&] { create(run(), options); }), "`overwrite` would delete `weights` '");
  EXPECT_TRUE(is_finished(run()));
  {
    // Nor what another process writes.
    RunFolder other = RunFolder::create(folder_ / "busy", TrainOptions(), {});
    EXPECT_HAS(error_of([&] { create(folder_ / "busy", TrainOptions()); }), "another process");
  }
  create(run(), TrainOptions());
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(run())) names.insert(entry.path().filename().string());
  const std::set<std::string> of_a_new_run = {
      "environment.json",           "recipe.toml", "log.jsonl", "summary.csv",
      "events.out.tfevents.0.tpgm", "report.html"};
  EXPECT_EQ(names, of_a_new_run);
  EXPECT_EQ(fs::file_size(run() / "summary.csv"), 0U);
  // Weights are not deleted without being asked for, whatever else is missing.
  for (const char* name : {"best.safetensors", "last.safetensors", "predictions.safetensors"}) {
    {
      RunFolder folder = RunFolder::create(folder_ / name, TrainOptions(), {"tpgm train", "0.2.0"});
    }
    EXPECT_TRUE(RunFolder::check_new(folder_ / name)) << "it has only begun";
    save_safetensors(weights, folder_ / name / name);
    EXPECT_HAS(error_of([&] { RunFolder::check_new(folder_ / name); }), "holds an unfinished run");
    EXPECT_TRUE(fs::exists(folder_ / name / name));
  }
  // A folder that holds no run is nobody's to replace.
  test::put_file(folder_ / "other" / "thesis.tex", "text");
  EXPECT_HAS(error_of([&] { create(folder_ / "other", TrainOptions()); }),
             "holds no run that `overwrite` could replace");
  EXPECT_TRUE(fs::exists(folder_ / "other" / "thesis.tex"));
}

TEST_F(RunFolders, AreReadAsTheyWereWritten) {
  EXPECT_FALSE(is_run(run()));
  {
    RunFolder folder = RunFolder::create(
        run(), TrainOptions(),
        {"tpgm train --lr 1", "0.1.0", "2.13.0", "cuda:0", 7, "box", "2026-11-16T12:34:56Z"});
    folder.epoch({{"epoch", 1}, {"train_loss", 0.5}, {"selection_accuracy", nullptr}});
    folder.epoch({{"epoch", 2}, {"train_loss", 0.25}, {"selection_accuracy", 75.5}});
    folder.radii(4, numbers({{"a", 1}, {"b", NAN}}), NamedNumbers());
    folder.radii(8, numbers({{"a", 2}, {"b", 3}}), numbers({{"a", 0.5}, {"b", 1}}), 10);
    folder.radii(8, numbers({{"a", 9}, {"b", 9}}), numbers({{"a", 9}, {"b", 9}}), 10);  // is there already
    test::put_file(weights_of(run()), "");
    folder.finish(Json::parse(test::result_json({70, 80, 90, 5})));
  }
  EXPECT_TRUE(is_run(run()));

  const auto environment = read_environment(run()).value();
  EXPECT_EQ(environment.command, "tpgm train --lr 1");
  EXPECT_EQ(environment.version, "0.1.0");
  EXPECT_EQ(environment.libtorch, "2.13.0");
  EXPECT_EQ(environment.device, "cuda:0");
  EXPECT_EQ(environment.threads, 7);
  EXPECT_EQ(environment.host, "box");
  EXPECT_EQ(environment.started, "2026-11-16T12:34:56Z");

  const auto epochs = read_epochs(run()).epochs;
  ASSERT_EQ(epochs.size(), 2);
  EXPECT_EQ(epochs[0].train_loss, 0.5);
  EXPECT_TRUE(std::isnan(epochs[0].selection_accuracy));
  EXPECT_EQ(epochs[1].epoch, 2);
  EXPECT_EQ(epochs[1].selection_accuracy, 75.5);

  const auto radii = read_radii(run()).value();
  EXPECT_EQ(radii.names, (std::vector<std::string>{"a", "b"}));
  ASSERT_EQ(radii.entries.size(), 2);
  EXPECT_EQ(radii.entries[0].step, 4);
  EXPECT_FALSE(radii.entries[0].radius_step);
  EXPECT_TRUE(std::isnan(radii.entries[0].radii.at(1)));
  EXPECT_TRUE(radii.entries[0].ratios.empty());
  EXPECT_EQ(radii.entries[1].radius_step, 10);
  EXPECT_EQ(radii.entries[1].radii, (std::vector<double>{2, 3}));
  EXPECT_EQ(radii.entries[1].ratios, (std::vector<double>{0.5, 1}));

  const auto result = read_result(run()).value();
  EXPECT_EQ(result.selection, 70);
  EXPECT_EQ(result.seconds, 2.5);
  ASSERT_EQ(result.tests.size(), 2);
  EXPECT_EQ(result.tests[0].name, "home");
  EXPECT_TRUE(result.tests[0].id);
  EXPECT_EQ(result.tests[0].top1, 80);
  EXPECT_EQ(result.tests[1].top1, 90);
  EXPECT_EQ(result.tests[1].images, 5);
  EXPECT_EQ(result.tests[1].scored_classes, 2);
  EXPECT_EQ(Json::parse(result.json)["method"], "ft");
  EXPECT_EQ(result.weights, "xxh3-128:99aa06d3014798d86001c324468d497f");  // xxh128sum of an empty file
}

// What a state is followed by is taken back when a run resumes.
TEST_F(RunFolders, ResumeFromTheLastState) {
  const auto one = [](double value) { return numbers({{"a", value}}); };
  {
    RunFolder folder = RunFolder::create(run(), TrainOptions(), {});
    folder.epoch({{"epoch", 1}, {"train_loss", 0.5}});
    folder.radii(4, one(1), one(1));
    NamedTensors tensors;
    tensors.insert("x", at::ones({2}));
    folder.save_state(tensors, {{"step", 4}});
    folder.epoch({{"epoch", 2}, {"train_loss", 0.25}});
    folder.radii(8, one(2), one(1));
    folder.save_weights("last", tensors, {});  // writes radii, too
  }
  EXPECT_EQ(read_radii(run())->entries.size(), 2);
  RunFolder folder = RunFolder::open(run());
  EXPECT_HAS(error_of([&] { RunFolder::open(run()); }), "another process is at work");
  const auto state = folder.load_state();
  ASSERT_TRUE(state);
  EXPECT_EQ(state->numbers["step"], 4);
  EXPECT_EQ(state->tensors["x"].numel(), 2);
  EXPECT_EQ(read_epochs(run()).epochs.size(), 1);
  folder.radii(6, one(3), one(1));
  folder.finish({{"method", "ft"}});
  const auto radii = read_radii(run()).value();
  ASSERT_EQ(radii.entries.size(), 2);
  EXPECT_EQ(radii.entries[1].step, 6);
  EXPECT_FALSE(fs::exists(run() / "resume.safetensors"));
}

TEST_F(RunFolders, SayWhenTheirStateIsDamaged) {
  NamedTensors tensors("Tensor");
  tensors.insert("x", at::ones({2}));
  { RunFolder::create(run(), TrainOptions(), {}).save_state(tensors, {{"step", 4}}); }
  const fs::path file = run() / "resume.safetensors";
  for (const std::string numbers :
       {"", "[]", "{}", R"({"step": 4, "log_bytes": "x", "summary_bytes": 0, "events_bytes": 0})",
        R"({"step": -1, "log_bytes": 0, "summary_bytes": 0, "events_bytes": 0})",
        R"({"step": 4, "log_bytes": 0, "summary_bytes": 0.5, "events_bytes": 0})"}) {
    Metadata metadata;
    keys::kState.set(metadata, numbers);
    save_safetensors(tensors, file, metadata);
    const auto said = error_of([&] { RunFolder::open(run()).load_state(); });
    EXPECT_HAS(said, "[RunFolder::load_state] '" + file.string() + "' is damaged: it has no '");
    EXPECT_HAS(said, "begin the run again with `overwrite`");
  }
}

// Opening a pipe would wait for another process.
TEST_F(RunFolders, WriteToNoPipes) {
  for (const char* name : {"log.jsonl", "summary.csv", "events.out.tfevents.0.tpgm"}) {
    SCOPED_TRACE(name);
    { RunFolder folder = RunFolder::create(run(), {}, {}); }
    fs::remove(run() / name);
    ASSERT_EQ(::mkfifo((run() / name).c_str(), 0600), 0);
    RunFolder folder = RunFolder::open(run());
    EXPECT_HAS(error_of([&] { folder.load_state(); }), name);
    fs::remove_all(run());
  }
}

TEST_F(RunFolders, HaveThePredictionsOfTheTests) {
  EXPECT_FALSE(read_predictions(run()));
  RunFolder folder = RunFolder::create(run(), TrainOptions(), {});
  const auto save = [&](const at::Tensor& classes) {
    NamedTensors tests;
    tests.insert("home", classes);
    folder.save_predictions(tests);
  };
  const auto classes = at::tensor({1, -1, 0}, at::kInt);
  save(classes);
  EXPECT_FALSE(read_predictions(run()));  // only the weights say which class is which
  NamedTensors weights;
  weights.insert("x", at::ones({2}));
  Metadata metadata;
  keys::kClasses.set(metadata, {"dots", "bars"});
  folder.save_weights("best", weights, metadata);
  const auto predictions = read_predictions(run()).value();
  EXPECT_EQ(predictions.classes, (std::vector<std::string>{"dots", "bars"}));
  ASSERT_EQ(predictions.tests.keys(), std::vector<std::string>{"home"});
  EXPECT_TRUE(at::equal(predictions.tests["home"], classes));

  EXPECT_TRUE(predictions.labels.is_empty());  // as of older versions
  NamedTensors with_labels;
  with_labels.insert("home", classes);
  with_labels.insert("home=labels", at::tensor({1, 1, -1}, at::kInt));
  folder.save_predictions(with_labels);
  const auto both = read_predictions(run()).value();
  EXPECT_EQ(both.tests.keys(), std::vector<std::string>{"home"});
  EXPECT_TRUE(at::equal(both.labels["home"], with_labels["home=labels"]));
  with_labels["home=labels"] = at::tensor({1}, at::kInt);
  folder.save_predictions(with_labels);
  EXPECT_HAS(error_of([&] { read_predictions(run()); }), "it has labels of other images than predictions");

  const std::string error = "[read_predictions] '" + predictions_of(run()).string() + "'";
  for (const auto& wrong : {at::zeros({3}), at::zeros({3, 1}, at::kInt)}) {
    save(wrong);
    EXPECT_HAS(error_of([&] { read_predictions(run()); }), error + " is damaged: it ");
  }
  test::put_file(predictions_of(run()), "nonsense");
  EXPECT_HAS(error_of([&] { read_predictions(run()); }), error);
}

TEST_F(RunFolders, SayWhichFileIsDamaged) {
  EXPECT_FALSE(read_result(run()));
  EXPECT_FALSE(read_radii(run()));
  EXPECT_FALSE(read_environment(run()));
  EXPECT_TRUE(read_epochs(run()).epochs.empty());
  for (const char* text : {"", "nonsense", "[1]", "{\"tests\": 1", "{}", R"({"tests": [{"name": 1}]})",
                           R"({"tests": [{"name": "a", "id": true, "pictures": 1, "top1": "x"}]})"}) {
    test::put_file(run() / "result.json", text);
    EXPECT_HAS(error_of([&] { read_result(run()); }), (run() / "result.json").string() + "' is damaged: it ")
        << text;
  }
  for (const char* text : {"null", R"({"names": ["a"]})", R"({"names": [1], "steps": []})",
                           R"({"names": ["a"], "steps": [1], "radii": [], "ratios": [[]]})"}) {
    test::put_file(run() / "radii.json", text);
    EXPECT_HAS(error_of([&] { read_radii(run()); }), "radii.json' is damaged: it ") << text;
  }
  for (const char* text : {"", "[]", R"({"device": 1, "threads": "many"})"}) {
    test::put_file(run() / "environment.json", text);
    EXPECT_EQ(read_environment(run()).value_or(RunEnvironment()).device, "") << text;
  }
}

// A folder may come from another person.
TEST_F(RunFolders, TakeNoNumbersThatNoRunHas) {
  const auto test = [&](const std::string& images, const std::string& top1) {
    test::put_file(run() / "result.json",
                   fmt::format(R"({{"tests": [{{"name": "a", "id": true, "pictures": {}, "top1": {}}}]}})",
                               images, top1));
    return error_of([&] { read_result(run()); });
  };
  for (const char* images : {"-1", "1e300", "1.5", "18446744073709551615", "null"})
    EXPECT_HAS(test(images, "50"), "result.json' is damaged: it has ") << images;
  for (const char* top1 : {"-1", "101", "1e300"})
    EXPECT_HAS(test("1", top1), "it has an accuracy of ") << top1;
  for (const char* step : {"-1", "1e300", "\"1\""}) {
    test::put_file(run() / "radii.json",
                   fmt::format(R"({{"names": ["a"], "steps": [{}], "radii": [[1]], "ratios": [[]]}})", step));
    EXPECT_HAS(error_of([&] { read_radii(run()); }), "radii.json' is damaged: it has ") << step;
  }
}

TEST_F(RunFolders, RefuseDeepNestingInsteadOfOverflowingTheStack) {
  const std::string nested = std::string(300000, '[') + std::string(300000, ']');
  test::put_file(run() / "result.json", R"({"tests": [], "x": )" + nested + "}");
  EXPECT_HAS(error_of([&] { read_result(run()); }),
             "result.json' is damaged: it is nested deeper than 64 levels");
  test::put_file(run() / "radii.json",
                 R"({"names": [], "steps": [], "radii": [], "ratios": [], "radius_steps": )" + nested + "}");
  EXPECT_HAS(error_of([&] { read_radii(run()); }),
             "radii.json' is damaged: it is nested deeper than 64 levels");
  test::put_file(run() / "environment.json", R"({"device": "cpu", "x": )" + nested + "}");
  EXPECT_FALSE(read_environment(run()));
}

TEST_F(RunFolders, ReadColumnsOfASummaryInAnyOrder) {
  test::put_file(run() / "summary.csv", "train_loss,x,epoch\n0.5,7,1\n,,2\nnan,1\n0.25,8,3,4\n");
  const auto epochs = read_epochs(run()).epochs;
  ASSERT_EQ(epochs.size(), 3);
  EXPECT_EQ(epochs[0].train_loss, 0.5);
  EXPECT_TRUE(std::isnan(epochs[0].selection_accuracy));
  EXPECT_TRUE(std::isnan(epochs[1].train_loss));
  EXPECT_EQ(epochs[2].epoch, 3);
}

TEST_F(RunFolders, KnowWhatOlderVersionsDidNotWrite) {
  test::put_file(run() / "result.json",
                 R"({"tests": [{"name": "a", "id": false, "pictures": 3, "top1": null}]})");
  const auto result = read_result(run()).value();
  EXPECT_TRUE(std::isnan(result.selection));
  EXPECT_TRUE(std::isnan(result.tests.at(0).top1));
  EXPECT_EQ(result.tests.at(0).scored_classes, 0);
  test::put_file(run() / "radii.json",
                 R"({"names": ["a"], "steps": [7], "radii": [[2.5]], "ratios": [[0.5]]})");
  const auto radii = read_radii(run()).value();
  EXPECT_EQ(radii.entries.at(0).step, 7);
  EXPECT_FALSE(radii.entries.at(0).radius_step);
}

}  // namespace
}  // namespace tpgm::test_run_folder
