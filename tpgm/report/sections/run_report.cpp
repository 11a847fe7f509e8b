// Runs as a page: the summary first, then the results, the sections, and what reproduces them.
#include "tpgm/report/sections/run_report.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "tpgm/base/text.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/io/file.h"
#include "tpgm/report/sections/sections.h"

namespace tpgm {
namespace {

namespace fs = std::filesystem;

// The results of some rows of a report; Δ is relative to the same row as in the table of all.
Table table_of(const RunSet& runs, const std::vector<const ReportRow*>& chosen) {
  std::vector<ResultRow> rows;
  std::set<size_t> seeds;
  size_t reference = 0;
  for (const auto* row : chosen) {
    if (row == &runs.rows[runs.reference]) reference = rows.size();
    rows.push_back({row->name, row->scores, row->hits});
    seeds.insert(row->runs.size());
  }
  std::string caption = "Top-1 accuracy (%)";
  if (*seeds.rbegin() > 1)
    caption += fmt::format(": mean (standard deviation) over {} seeds",
                           seeds.size() == 1 ? fmt::format("{}", *seeds.begin())
                                             : fmt::format("{} to {}", *seeds.begin(), *seeds.rbegin()));
  if (rows.size() > 1)
    caption += fmt::format(", the best in bold; Δ is relative to {}", rows[reference].name);
  std::vector<std::pair<std::string, std::string>> titles;
  for (const auto& score : rows.front().scores) titles.emplace_back(score.test, printable(score.test));
  return results_table(rows, caption, titles, reference);
}

Table table_of(const RunSet& runs) {
  std::vector<const ReportRow*> all;
  for (const auto& row : runs.rows) all.push_back(&row);
  return table_of(runs, all);
}

}  // namespace

std::vector<std::string> notes_of(const RunSet& runs) {
  std::vector<std::string> notes;
  for (const auto& path : runs.unfinished)
    notes.push_back(fmt::format("'{}' is left out: it is not finished (resume it first)",
                                printable(path.string(), kMaxPath)));
  notes.insert(notes.end(), runs.notes.begin(), runs.notes.end());
  for (const auto& row : runs.rows) {
    const auto said = std::find_if(row.runs.begin(), row.runs.end(),
                                   [](const auto& run) { return !run.result.diagnosis.empty(); });
    if (said != row.runs.end())
      notes.push_back(fmt::format("{}: {}", row.name, printable(said->result.diagnosis, kMaxPath)));
  }
  return notes;
}

namespace {

// The summary in words, what the tests look like, and the plane.
Section summary_section(const RunSet& runs, Origins& origins) {
  auto section = plane_section(runs);
  std::vector<Block> first;
  if (const auto text = summary(runs); !text.empty()) first.emplace_back(Paragraph{text});
  for (const auto& note : notes_of(runs)) first.emplace_back(Paragraph{note + "."});
  first.push_back(example_images(runs, origins));
  section.blocks.insert(section.blocks.begin(), first.begin(), first.end());
  return section;
}

// A row of each method; behind it, folded, all rows.
Section result_section(const RunSet& runs, const Table& all) {
  auto rows = main_rows(runs);
  const auto* reference = &runs.rows[runs.reference];
  if (std::find(rows.begin(), rows.end(), reference) == rows.end()) rows.insert(rows.begin(), reference);
  if (rows.size() == runs.rows.size()) return {"Results", {all}};
  const bool wise =
      std::any_of(rows.begin(), rows.end(), [](const auto* row) { return row->kind == RowKind::kWise; });
  return {"Results",
          {table_of(runs, rows),
           Paragraph{fmt::format("One row of each method: {}the best on selection data.",
                                 wise ? "of WISE the ratio nearest to a half, of others " : "")},
           FoldedTable{fmt::format("All {} rows", runs.rows.size()), all}}};
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// The lines of a recipe that another has not.
std::string difference(const std::string& recipe, const std::string& other) {
  const auto lines = lines_of(other);
  std::string text;
  for (const auto& line : lines_of(recipe)) {
    if (std::find(lines.begin(), lines.end(), line) == lines.end()) text += line + "\n";
  }
  return text;
}

Section recipe_section(const RunSet& runs, const RepeatCommand& repeat) {
  Section section{"Reproduce", {}};
  std::string commands;
  std::set<std::string> machines;
  for (const auto& row : runs.rows) {
    for (const auto& run : row.runs) {
      const auto environment = read_environment(run.path);
      if (!environment) continue;
      commands += fmt::format("# {}, {}\n{}\n", row.name, printable(run.path.string(), kMaxPath),
                              printable(environment->command, environment->command.size()));
      machines.insert(
          printable(fmt::format("tpgm {}, LibTorch {}, {}, {} threads", environment->version,
                                environment->libtorch, environment->device, environment->threads)));
    }
  }
  if (!machines.empty())
    section.blocks.emplace_back(Paragraph{fmt::format("Run with {}.", fmt::join(machines, "; "))});
  const auto& first = runs.rows[runs.reference];
  section.blocks.emplace_back(
      Paragraph{"The recipe of a run repeats it: bit-exactly on the CPU, and on CUDA if it has "
                "`deterministic`."});
  if (repeat) section.blocks.emplace_back(Code{"", repeat(recipe_of(first.run().path)) + "\n"});
  if (!commands.empty()) section.blocks.emplace_back(Code{"Commands", commands, runs.rows.size() > 8});
  const auto recipe = read_text(recipe_of(first.run().path)).value_or("");
  section.blocks.emplace_back(Code{fmt::format("Recipe of {}", first.name), recipe, true});
  for (const auto& row : runs.rows) {
    if (&row == &first) continue;
    section.blocks.emplace_back(Code{fmt::format("{}: what differs from it", row.name),
                                     difference(read_text(recipe_of(row.run().path)).value_or(""), recipe),
                                     true});
  }
  return section;
}

// "21 runs; glyph-clip.safetensors fine-tuned on sans; CPU; 2026-11-16": what is common to all, and when.
std::string subtitle_of(const RunSet& runs) {
  size_t count = 0;
  std::set<std::string> starts, devices, days;
  for (const auto& row : runs.rows) {
    for (const auto& run : row.runs) {
      ++count;
      const fs::path checkpoint = run.options.checkpoint;
      auto start = checkpoint.empty() ? std::string("trained from scratch")
                                      : printable(checkpoint.filename().string()) + " fine-tuned";
      if (!run.options.train.empty()) start += " on " + printable(listed(run.options.train));
      starts.insert(start);
      const auto environment = read_environment(run.path);
      if (!environment) continue;
      if (const auto& device = environment->device; !device.empty())
        devices.insert(device == "cpu" ? "CPU" : printable(device));
      if (const auto day = environment->started.substr(0, 10); !day.empty()) days.insert(printable(day));
    }
  }
  std::vector<std::string> parts = {fmt::format("{} {}", count, count == 1 ? "run" : "runs")};
  if (count > runs.rows.size()) parts.back() += fmt::format(" in {} rows", runs.rows.size());
  if (starts.size() == 1) parts.push_back(*starts.begin());
  if (!devices.empty()) parts.push_back(fmt::format("{}", fmt::join(devices, " and ")));
  if (!days.empty())
    parts.push_back(days.size() == 1 ? *days.begin()
                                     : fmt::format("{} to {}", *days.begin(), *days.rbegin()));
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace

std::vector<fs::path> write_report(const RunSet& runs, const fs::path& html, const std::string& title,
                                   const RepeatCommand& repeat) {
  TORCH_CHECK(!runs.rows.empty(), "[write_report] there are no runs to report on");
  const auto table = table_of(runs);
  Origins origins;
  Page page{title,
            subtitle_of(runs),
            {summary_section(runs, origins), result_section(runs, table), image_section(runs, origins),
             distance_section(runs, origins), ratio_section(runs, origins), radius_section(runs, origins),
             training_section(runs), recipe_section(runs, repeat)}};

  fs::path folder = html;
  folder.replace_extension();
  std::vector<fs::path> files = {html};
  const auto write = [&](const std::string& name, const std::string& text) {
    write_file(folder / name, text);
    files.push_back(folder / name);
  };
  with_folder(folder, [&] {
    write("results.md", to_markdown(table));
    write("results.tex", to_latex(table));
    write("results.csv", to_csv(table));
    for (const auto& section : page.sections) {
      for (const auto& block : section.blocks) {
        const auto* figure = std::get_if<Figure>(&block);
        if (!figure) continue;
        write(figure->id + ".svg", figure->svg);
        if (!figure->csv.empty()) write(figure->id + ".csv", figure->csv);
      }
    }
    write_file(html, to_html(page));
  });
  return files;
}

}  // namespace tpgm
