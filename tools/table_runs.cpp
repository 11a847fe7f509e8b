#include "tools/table_runs.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tools/command.h"
#include "tools/command_line.h"
#include "tools/interrupt.h"
#include "tpgm/base/child_process.h"
#include "tpgm/base/numbers.h"
#include "tpgm/io/file.h"
#include "tpgm/report/sections/run_report.h"
#include "tpgm/study/results.h"
#include "tpgm/train/recipe.h"

namespace tpgm::tools {
namespace {

namespace fs = std::filesystem;

// measure_speed() in a process of its own: this one would keep memory of the device that the runs need.
double measure_apart(const std::string& command, const TrainOptions& options) {
  std::string file = (fs::temp_directory_path() / "tpgm-rate-XXXXXX").string();
  const int descriptor = ::mkstemp(file.data());
  TORCH_CHECK(descriptor >= 0, "[", command, "] cannot write '", file, "': ", std::strerror(errno));
  ::close(descriptor);
  write_file(file, to_toml(options));
  ChildProcess measuring({"/proc/self/exe", command, "--measure", file});
  double rate = 0;
  const bool read = std::fscanf(measuring.output(), "%lf", &rate) == 1;
  measuring.wait();
  fs::remove(file);
  TORCH_CHECK(!interrupted(), "[", command, "] interrupted; the same command resumes");
  TORCH_CHECK(read && rate > 0, "[", command,
              "] the first recipe that trains cannot be run; its error is above");
  return rate;
}

}  // namespace

std::vector<std::string> first_seeds(int64_t count) {
  std::vector<std::string> seeds;
  for (int64_t seed = 0; seed < count; ++seed) seeds.push_back(std::to_string(seed));
  return seeds;
}

std::string plan_text(const std::string& command, const std::string& heading, const TablePlan& plan,
                      DataSizes& sizes) {
  auto cost = plan.cost(sizes);
  cost.name = heading;
  std::string text = to_text(to_table(cost));
  if (cost.finished > 0) text += fmt::format("{} runs are finished\n", cost.finished);
  if (cost.left.runs == 0) return text + "nothing is left to run\n";
  say(fmt::format("tpgm {}: measuring the speed of this machine\n", command));
  const double speed = measure_apart(command, plan.example());
  return text + fmt::format("{} runs to make: about {} at {:.1f} training images/s, measured here\n",
                            cost.left.runs, duration_text(cost.left.work() / speed), speed);
}

void add_measure(CLI::App& app, std::string& recipe) { app.add_option("--measure", recipe, "")->group(""); }

int measure(const std::string& command, const std::string& recipe) {
  const double speed = measure_speed(make_options(load_recipe(recipe).settings), interrupted);
  TORCH_CHECK(speed > 0, "[", command, "] interrupted; the same command resumes");
  fmt::print("{}\n", speed);
  return 0;
}

bool run_and_report(const std::string& command, TablePlan& plan, DataSizes& sizes, const fs::path& folder,
                    const std::string& title) {
  const bool fine = plan.run(sizes);
  TORCH_CHECK(!plan.best_runs().empty(), "[", command,
              "] every run failed; the messages above name their logs");
  const auto runs = load_runs(plan.best_runs());
  for (const auto& note : notes_of(runs)) say(fmt::format("tpgm {}: {}\n", command, note));
  const auto files = write_report(runs, folder / "report.html", title, repeat_command);
  std::vector<ResultRow> rows;
  for (const auto& row : runs.rows) rows.push_back({row.name, row.scores, row.hits});
  fmt::print("\n{}\n", to_text(results_table(rows, "", {}, runs.reference)));
  std::vector<std::string> chosen;
  for (const auto& row : plan.comparison().rows) {
    if (!row.chosen.empty()) chosen.push_back(fmt::format("{} {}", row.label, row.chosen));
  }
  if (!chosen.empty()) fmt::print("Chosen on selection data: {}\n", fmt::join(chosen, "; "));
  fmt::print("{}\n\nThe report: {}\n", summary(runs), files.front().string());
  return fine;
}

}  // namespace tpgm::tools
