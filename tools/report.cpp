// `tpgm report`: an HTML report of runs.
#include <fmt/format.h>

#include <memory>

#include "tools/command.h"
#include "tools/command_line.h"
#include "tpgm/report/sections/run_report.h"

namespace tpgm::tools {
namespace {

namespace fs = std::filesystem;

int report(const std::vector<std::string>& paths, std::string output, const std::string& title) {
  const auto runs = load_runs({paths.begin(), paths.end()});
  if (output.empty()) output = (fs::path(paths.front()) / "report.html").string();
  for (const auto& note : notes_of(runs)) say_line("report", note);
  const auto files = write_report(runs, output, title, repeat_command);
  fmt::print("{}\n", files.front().string());
  if (const auto text = summary(runs); !text.empty()) fmt::print("\n{}\n", text);
  return 0;
}

}  // namespace

Run configure_report(CLI::App& app) {
  struct Arguments {
    std::vector<std::string> runs;
    std::string output, title = "Fine-tuning with and without TPGM";
  };
  auto args = std::make_shared<Arguments>();
  app.add_option("RUN", args->runs,
                 "Run folders, or folders with runs at any depth, such as those of a sweep. Runs that differ "
                 "only in the seed are one row; unfinished runs are left out and listed")
      ->required();
  app.add_option("-o,--output", args->output,
                 "Output page, FILE.html; tables (.md, .tex, .csv) and figures (.svg, .csv) are written to "
                 "the folder FILE beside it, replacing existing ones; default: report.html in the first RUN");
  app.add_option("--title", args->title, "Title of the page");
  return [args] {
    if (!args->output.empty() && fs::path(args->output).extension() != ".html")
      throw UsageError(fmt::format("--output writes HTML: name it *.html, not '{}'", args->output));
    return report(args->runs, args->output, args->title);
  };
}

}  // namespace tpgm::tools
